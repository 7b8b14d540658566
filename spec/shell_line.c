/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/shell_line.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <ctype.h>
#include <string.h>

struct reading {
    struct arena *arena;
    const char *text;
    const char *at;
    struct shell_line *line;
    bool fresh; /* the next word begins a command */
    bool wants_more; /* there has to be one */
};

/* Behind what $( or ${ began at `s`, or NULL: quotes and brackets in it count as
 * they would for a shell. */
static const char *skip_group(const char *s)
{
    unsigned depth = 0;
    bool is_quoted = false;

    for (s++; *s; s++) {
        if (*s == '\\' && s[1]) {
            s++;
        } else if (*s == '\'' && !is_quoted) {
            s = strchr(s + 1, '\'');
            if (!s) {
                return NULL;
            }
        } else if (*s == '"') {
            is_quoted = !is_quoted;
        } else if (is_quoted) {
            continue;
        } else if (*s == '(' || *s == '{') {
            depth++;
        } else if ((*s == ')' || *s == '}') && --depth == 0) {
            return s + 1;
        }
    }
    return NULL;
}

/* What a $ at `s` begins, copied as it is written. NULL: nothing simple. */
static const char *take_dollar(const char *s, struct buf *to, bool *expands)
{
    const char *end = s + 1;

    if (*end == '\'' || *end == '"') {
        return NULL;
    }
    if (*end == '(' || *end == '{') {
        end = skip_group(s);
        if (!end) {
            return NULL;
        }
        *expands = true;
    } else if (isalpha((unsigned char)*end) || *end == '_') {
        while (isalnum((unsigned char)*end) || *end == '_') {
            end++;
        }
        *expands = true;
    } else if (*end && strchr("0123456789@*#?$!-", *end)) {
        end++;
        *expands = true;
    }
    buf_append(to, s, (size_t)(end - s));
    return end;
}

/* From behind the quote to behind the one at its end. */
static const char *take_quoted(const char *s, struct buf *to, bool *expands)
{
    while (*s != '"') {
        if (!*s || *s == '`') {
            return NULL;
        }
        if (*s == '$') {
            s = take_dollar(s, to, expands);
            if (!s) {
                return NULL;
            }
            continue;
        }
        if (*s == '\\' && s[1] && strchr("$`\"\\\n", s[1])) {
            s++;
            if (*s == '\n') {
                s++;
                continue;
            }
        }
        buf_putc(to, *s++);
    }
    return s + 1;
}

static bool ends_word(char c)
{
    return !c || strchr(" \t\n;&|<>()`", c);
}

/* Words with another meaning at the beginning of a command. */
static bool is_reserved(const char *raw)
{
    static const char *const words[] = {
        "!", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi",
        "for", "function", "if", "select", "then", "time", "until", "while",
        "{", "}", NULL};

    for (size_t i = 0; words[i]; i++) {
        if (strcmp(words[i], raw) == 0) {
            return true;
        }
    }
    return false;
}

static bool add_word(struct reading *r, const char *begin, const struct buf *b,
                     bool expands)
{
    struct shell_line *line = r->line;
    struct shell_word *w = &line->words[line->n];

    if (line->n == SHELL_LINE_MAX_WORDS || b->failed) {
        return false;
    }
    *w = (struct shell_word){
        .text = arena_printf(r->arena, "%s", b->len ? b->data : ""),
        .raw = arena_printf(r->arena, "%.*s", (int)(r->at - begin), begin),
        .expands = expands,
        .is_first = r->fresh,
    };
    if (!w->text || !w->raw || (r->fresh && is_reserved(w->raw))) {
        return false;
    }
    if (r->fresh) {
        line->last = line->n;
        line->last_at = (size_t)(begin - r->text);
    }
    r->fresh = r->wants_more = false;
    line->n++;
    return true;
}

static bool take_word(struct reading *r)
{
    _buf_ struct buf b = {0};
    const char *begin = r->at, *s = begin;
    bool expands = *s == '~';

    while (!ends_word(*s)) {
        if (*s == '\\') {
            if (!s[1]) {
                return false;
            }
            if (s[1] != '\n') {
                buf_putc(&b, s[1]);
            }
            s += 2;
        } else if (*s == '\'') {
            const char *end = strchr(s + 1, '\'');

            if (!end) {
                return false;
            }
            buf_append(&b, s + 1, (size_t)(end - s - 1));
            s = end + 1;
        } else if (*s == '"') {
            s = take_quoted(s + 1, &b, &expands);
        } else if (*s == '$') {
            s = take_dollar(s, &b, &expands);
        } else {
            expands |= strchr("*?[{", *s) != NULL;
            buf_putc(&b, *s++);
        }
        if (!s) {
            return false;
        }
    }
    r->at = s;
    buf_putc(&b, '\0');
    return add_word(r, begin, &b, expands);
}

/* ; && and ends of lines; anything else is not simple. */
static bool take_separator(struct reading *r)
{
    const char *s = r->at;

    if (*s == '\n') {
        r->at++;
    } else if (*s == ';' && s[1] != ';' && !r->fresh) {
        r->at++;
    } else if (*s == '&' && s[1] == '&' && !r->fresh) {
        r->at += 2;
        r->wants_more = true;
    } else {
        return false;
    }
    r->fresh = true;
    return true;
}

bool shell_line_read(struct arena *a, const char *text, struct shell_line *ret)
{
    struct reading r = {.arena = a, .text = text, .at = text, .line = ret,
                        .fresh = true};
    bool good = true;

    *ret = (struct shell_line){0};
    ret->words = arena_alloc(a, SHELL_LINE_MAX_WORDS * sizeof(*ret->words));
    if (!ret->words) {
        return false;
    }
    while (good && *r.at) {
        if (*r.at == ' ' || *r.at == '\t') {
            r.at++;
        } else if (r.at[0] == '\\' && r.at[1] == '\n') {
            r.at += 2;
        } else if (*r.at == '#') {
            r.at += strcspn(r.at, "\n");
        } else {
            good = ends_word(*r.at) ? take_separator(&r) : take_word(&r);
        }
    }
    return good && ret->n > 0 && !r.wants_more;
}
