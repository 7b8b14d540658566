/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/str.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void strlist_release(struct strlist *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->items[i]);
    }
    free(l->items);
    *l = (struct strlist){0};
}

void strlist_take(struct strlist *l, char *s)
{
    char **grown;

    if (!s || l->failed) {
        l->failed = true;
        free(s);
        return;
    }
    /* Powers of two minus the terminator: grow only when n + 1 is one. */
    if (!l->items || ((l->n + 1) & l->n) == 0) {
        grown = reallocarray(l->items, 2 * (l->n + 1), sizeof(*grown));
        if (!grown) {
            l->failed = true;
            free(s);
            return;
        }
        l->items = grown;
    }
    l->items[l->n++] = s;
    l->items[l->n] = NULL;
}

void strlist_add(struct strlist *l, const char *s)
{
    strlist_take(l, strdup(s));
}

void strlist_addf(struct strlist *l, const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0) {
        s = NULL;
    }
    va_end(ap);
    strlist_take(l, s);
}

void strlist_add_all(struct strlist *l, char *const *items)
{
    for (; items && *items; items++) {
        strlist_add(l, *items);
    }
}

static ssize_t find_env(const struct strlist *l, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < l->n; i++) {
        /* Most differ in the first letter, and some lists are long. */
        if (l->items[i][0] == name[0] && strncmp(l->items[i], name, len) == 0 &&
            l->items[i][len] == '=') {
            return (ssize_t)i;
        }
    }
    return -1;
}

void strlist_setenv(struct strlist *l, const char *name, const char *value)
{
    ssize_t at = find_env(l, name);
    size_t n_name = strlen(name), n_value = strlen(value);
    char *entry = malloc(n_name + n_value + 2);

    if (!entry) {
        l->failed = true;
        return;
    }
    memcpy(entry, name, n_name);
    entry[n_name] = '=';
    memcpy(entry + n_name + 1, value, n_value + 1);
    if (at < 0) {
        strlist_take(l, entry);
        return;
    }
    free(l->items[at]);
    l->items[at] = entry;
}

const char *strlist_getenv(const struct strlist *l, const char *name)
{
    ssize_t at = find_env(l, name);

    return at < 0 ? NULL : l->items[at] + strlen(name) + 1;
}

static void remove_at(struct strlist *l, size_t at)
{
    free(l->items[at]);
    memmove(&l->items[at], &l->items[at + 1],
            (l->n - at) * sizeof(l->items[0]));
    l->n--;
}

void strlist_unsetenv(struct strlist *l, const char *name)
{
    ssize_t at = find_env(l, name);

    if (at >= 0) {
        remove_at(l, (size_t)at);
    }
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);

    return n >= k && strcmp(s + n - k, suffix) == 0;
}

int str_to_u64(const char *s, uint64_t *ret)
{
    unsigned long long v;
    char *end;

    if (!isdigit((unsigned char)s[0])) {
        return -EINVAL;
    }
    errno = 0;
    v = strtoull(s, &end, 10);
    if (*end) {
        return -EINVAL;
    }
    if (errno) {
        return -ERANGE;
    }
    *ret = v;
    return 0;
}

char *str_put_u64(char *to, uint64_t n)
{
    char *end = to + 1;

    for (uint64_t rest = n / 10; rest; rest /= 10) {
        end++;
    }
    for (char *at = end; at > to; n /= 10) {
        *--at = (char)('0' + n % 10);
    }
    return end;
}

int str_to_i64(const char *s, int64_t *ret)
{
    long long v;
    char *end;

    if (!isdigit((unsigned char)s[s[0] == '-'])) {
        return -EINVAL;
    }
    errno = 0;
    v = strtoll(s, &end, 10);
    if (*end) {
        return -EINVAL;
    }
    if (errno) {
        return -ERANGE;
    }
    *ret = v;
    return 0;
}

int str_to_f64(const char *s, double *ret)
{
    double v;
    char *end;

    if (!s[0] || isspace((unsigned char)s[0])) {
        return -EINVAL;
    }
    errno = 0;
    v = strtod(s, &end);
    if (*end) {
        return -EINVAL;
    }
    if (errno == ERANGE && (v > 1 || v < -1)) {
        return -ERANGE;
    }
    *ret = v;
    return 0;
}

/* Levenshtein with a swap of neighbours as one edit, capped at 64 characters. */
static unsigned edit_distance(const char *a, const char *b)
{
    enum { CAP = 64 };
    unsigned row[3][CAP + 1];
    size_t n = strlen(a), m = strlen(b);

    if (n > CAP || m > CAP) {
        return CAP;
    }
    for (size_t j = 0; j <= m; j++) {
        row[0][j] = (unsigned)j;
    }
    for (size_t i = 1; i <= n; i++) {
        unsigned *now = row[i % 3], *up = row[(i + 2) % 3];
        const unsigned *up2 = row[(i + 1) % 3];

        now[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            int ca = tolower((unsigned char)a[i - 1]);
            int cb = tolower((unsigned char)b[j - 1]);
            unsigned best = up[j - 1] + (ca != cb);

            best = up[j] + 1 < best ? up[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && tolower((unsigned char)a[i - 2]) == cb &&
                tolower((unsigned char)b[j - 2]) == ca && up2[j - 2] + 1 < best) {
                best = up2[j - 2] + 1;
            }
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

const char *str_nearest(const char *s, const char *const *names)
{
    unsigned limit = (unsigned)strlen(s) / 3;
    const char *best = NULL;

    limit = limit ? limit : 1;
    for (; *names; names++) {
        unsigned d = edit_distance(s, *names);

        if (d <= limit) {
            best = *names;
            limit = d ? d - 1 : 0;
            if (d == 0) {
                break;
            }
        }
    }
    return best;
}

static void quote_into(struct buf *b, const char *s)
{
    if (s[0] && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789@%+=:,./_-") == strlen(s)) {
        buf_puts(b, s);
        return;
    }
    buf_putc(b, '\'');
    for (; *s; s++) {
        if (*s == '\'') {
            buf_puts(b, "'\\''");
        } else {
            buf_putc(b, *s);
        }
    }
    buf_putc(b, '\'');
}

char *str_shell_quote(const char *s)
{
    _buf_ struct buf b = {0};

    quote_into(&b, s);
    return buf_take(&b);
}

static bool is_printable(const char *s)
{
    uint32_t c;

    while (*s) {
        size_t n = utf8_next(s, &c);

        if (n == 0 || !utf8_is_printable(c)) {
            return false;
        }
        s += n;
    }
    return true;
}

/* $'...' of bash and others, for what must not reach a terminal as it is. */
static void quote_hidden(struct buf *b, const char *s)
{
    buf_puts(b, "$'");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c == '\'' || c == '\\') {
            buf_printf(b, "\\%c", c);
        } else if (c == '\n') {
            buf_puts(b, "\\n");
        } else if (c < 0x20 || c >= 0x7f) {
            buf_printf(b, "\\%03o", c);
        } else {
            buf_putc(b, *s);
        }
    }
    buf_putc(b, '\'');
}

char *str_shell_join(char *const *argv)
{
    _buf_ struct buf b = {0};

    for (size_t i = 0; argv && argv[i]; i++) {
        if (i) {
            buf_putc(&b, ' ');
        }
        if (is_printable(argv[i])) {
            quote_into(&b, argv[i]);
        } else {
            quote_hidden(&b, argv[i]);
        }
    }
    return buf_take(&b);
}

void str_copy(char *to, size_t size, const char *from)
{
    size_t len = strnlen(from, size - 1);

    memcpy(to, from, len);
    to[len] = '\0';
}

bool str_is_label(const char *s)
{
    size_t len = strlen(s);

    if (len == 0 || len > 63 || s[0] == '-' || s[len - 1] == '-') {
        return false;
    }
    return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}
