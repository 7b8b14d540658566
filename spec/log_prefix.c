/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/log_prefix.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <string.h>

static const char *const names[] = {
    [LOG_PREFIX_RANK] = "rank",
    [LOG_PREFIX_LOCAL_RANK] = "local_rank",
    [LOG_PREFIX_HOST] = "host",
    [LOG_PREFIX_NODE] = "node",
    [LOG_PREFIX_STREAM] = "stream",
    [LOG_PREFIX_TIME] = "time",
    [LOG_PREFIX_GENERATION] = "generation",
    [LOG_PREFIX_RUN] = "run",
    [LOG_PREFIX_N_FIELDS] = NULL,
};

enum kind { END, TEXT, FIELD, UNKNOWN, OPEN, STRAY };

/* The next piece of a template: bytes that are printed, or a name in braces. */
struct piece {
    enum kind kind;
    const char *at;
    size_t len;
    enum log_prefix_field field;
};

static const char *template_of(const char *text)
{
    return strcmp(text, "rank") == 0   ? "[{rank}] "
           : strcmp(text, "host") == 0 ? "[{host}:{rank}] "
           : strcmp(text, "none") == 0 ? ""
                                       : text;
}

static struct piece field_piece(const char *name)
{
    struct piece p = {.kind = UNKNOWN, .at = name, .len = strcspn(name, "{}")};

    if (name[p.len] != '}') {
        p.kind = OPEN;
        p.len = strlen(name);
        return p;
    }
    for (size_t i = 0; i < LOG_PREFIX_N_FIELDS; i++) {
        if (strlen(names[i]) == p.len && memcmp(names[i], name, p.len) == 0) {
            p.kind = FIELD;
            p.field = (enum log_prefix_field)i;
        }
    }
    return p;
}

static struct piece next_piece(const char **s)
{
    struct piece p = {.kind = TEXT, .at = *s, .len = strcspn(*s, "{}")};

    if (!**s) {
        p.kind = END;
    } else if (p.len) {
        *s += p.len;
    } else if ((*s)[1] == **s) {
        p.len = 1;
        *s += 2;
    } else if (**s == '}') {
        p.kind = STRAY;
    } else {
        p = field_piece(*s + 1);
        *s += p.len + (p.kind == OPEN ? 1 : 2);
    }
    return p;
}

static void explain_unknown(const struct piece *p, struct buf *why)
{
    char name[64];
    const char *near;

    str_copy(name, p->len < sizeof(name) ? p->len + 1 : sizeof(name), p->at);
    near = str_nearest(name, names);
    buf_puts(why, "has the unknown field {");
    utf8_put_printable(why, name, sizeof(name));
    buf_puts(why, near ? "}; did you mean {" : "}; expected one of {");
    for (size_t i = 0; !near && i < LOG_PREFIX_N_FIELDS; i++) {
        buf_printf(why, "%s%s", i ? "}, {" : "", names[i]);
    }
    buf_printf(why, "%s}", near ? near : "");
}

static bool is_printable(const char *text)
{
    uint32_t c = 0;
    size_t n;

    while (*text && (n = utf8_next(text, &c)) &&
           (c == '\t' || utf8_is_printable(c))) {
        text += n;
    }
    return !*text;
}

/* A word that is no template is more likely one of the three, misspelt. */
static bool has_pieces(const char *text, struct buf *why)
{
    unsigned n_fields = 0;
    struct piece p;

    while ((p = next_piece(&text)).kind == TEXT || p.kind == FIELD) {
        n_fields += p.kind == FIELD;
    }
    if (p.kind == UNKNOWN) {
        explain_unknown(&p, why);
    } else if (p.kind == OPEN) {
        buf_puts(why, "has a { without its }; {{ is a brace");
    } else if (p.kind == STRAY) {
        buf_puts(why, "has a } without its {; }} is a brace");
    } else if (!n_fields) {
        buf_puts(why, "names no field; expected rank, host, none, or a "
                      "template such as \"[{rank}] \"");
    }
    return p.kind == END && n_fields;
}

bool log_prefix_is_valid(const char *text, struct buf *why)
{
    if (template_of(text) != text) {
        return true;
    }
    if (strlen(text) > LOG_PREFIX_MAX_BYTES) {
        buf_printf(why, "has %zu bytes; expected at most %d", strlen(text),
                   LOG_PREFIX_MAX_BYTES);
        return false;
    }
    if (!is_printable(text)) {
        buf_puts(why, "has bytes that cannot be shown; expected printable "
                      "text");
        return false;
    }
    return has_pieces(text, why);
}

bool log_prefix_has(const char *text, enum log_prefix_field field)
{
    struct piece p;

    text = template_of(text);
    while ((p = next_piece(&text)).kind == TEXT || p.kind == FIELD) {
        if (p.kind == FIELD && p.field == field) {
            return true;
        }
    }
    return false;
}

void log_prefix_write(const char *text,
                      const char *const values[LOG_PREFIX_N_FIELDS],
                      struct buf *to)
{
    struct piece p;

    text = template_of(text);
    while ((p = next_piece(&text)).kind == TEXT || p.kind == FIELD) {
        if (p.kind == TEXT) {
            buf_append(to, p.at, p.len);
        } else {
            buf_puts(to, values[p.field] ? values[p.field] : "?");
        }
    }
}

/* --- torchrun's templates --- */

static const struct {
    const char *name, *as;
} macros[] = {
    {"role_name", NULL},
    {"rank", "{rank}"},
    {"local_rank", "{local_rank}"},
    {"hostname", "{host}"},
};

/* $NAME or ${NAME} at `s`: its length, and what it stands for, which is NULL for
 * the role; 0 if that is no macro. */
static size_t macro_at(const char *s, const char **ret_as)
{
    bool braced = s[1] == '{';
    const char *name = s + 1 + braced;
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz_");

    if (braced && name[len] != '}') {
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(macros); i++) {
        if (strlen(macros[i].name) == len &&
            memcmp(macros[i].name, name, len) == 0) {
            *ret_as = macros[i].as;
            return 1 + len + (braced ? 2 : 0);
        }
    }
    return 0;
}

/* Bytes that are printed as they are. */
static void put_text(struct buf *to, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        buf_putc(to, s[i]);
        if (s[i] == '{' || s[i] == '}') {
            buf_putc(to, s[i]);
        }
    }
}

int log_prefix_from_torch(const char *text, const char *role, struct buf *to)
{
    bool has_field = false;

    while (*text) {
        const char *as = NULL;
        size_t len = *text == '$' ? macro_at(text, &as) : strcspn(text, "$");

        if (*text != '$') {
            put_text(to, text, len);
        } else if (len == 0) {
            return -1;
        } else if (as) {
            buf_puts(to, as);
            has_field = true;
        } else {
            put_text(to, role, strlen(role));
        }
        text += len;
    }
    return has_field;
}
