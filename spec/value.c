/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/value.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>


static bool is_one_of(const char *s, const char *const *words)
{
    for (; *words; words++) {
        if (strcasecmp(s, *words) == 0) {
            return true;
        }
    }
    return false;
}

int value_bool(const char *s, bool *ret)
{
    static const char *const yes[] = {"true", "yes", "on", NULL};
    static const char *const no[] = {"false", "no", "off", NULL};

    if (!is_one_of(s, yes) && !is_one_of(s, no)) {
        return -EINVAL;
    }
    *ret = is_one_of(s, yes);
    return 0;
}

int value_count(const char *s, uint64_t *ret)
{
    if (s[0] == '0' && s[1]) {
        return -EINVAL;
    }
    return str_to_u64(s, ret);
}

int value_number(const char *s, double *ret)
{
    double v = 0;
    int rc;

    if (strspn(s, "0123456789.eE+-") != strlen(s)) {
        return -EINVAL; /* no hexadecimal, inf, nan */
    }
    rc = str_to_f64(s, &v);
    if (rc == 0 && !isfinite(v)) {
        rc = -ERANGE;
    }
    if (rc == 0) {
        *ret = v;
    }
    return rc;
}

static const struct unit {
    const char *name;
    uint64_t ms;
} units[] = {
    {"ms", 1},       {"s", 1000},      {"m", 60000},
    {"h", 3600000},  {"d", 86400000},
};

static const struct unit *find_unit(const char *s, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strlen(units[i].name) == len &&
            memcmp(units[i].name, s, len) == 0) {
            return &units[i];
        }
    }
    return NULL;
}

/* One number and its unit; moves *s behind it. */
static int span_part(const char **s, double *ret_ms)
{
    size_t digits = strspn(*s, "0123456789.");
    const struct unit *unit;
    char number[32];
    size_t letters;
    double v;

    if (digits == 0 || digits >= sizeof(number)) {
        return -EINVAL;
    }
    memcpy(number, *s, digits);
    number[digits] = '\0';
    *s += digits;
    letters = strspn(*s, "abcdefghijklmnopqrstuvwxyz");
    unit = find_unit(*s, letters);
    if (!unit || value_number(number, &v) < 0) {
        return -EINVAL;
    }
    *s += letters;
    *ret_ms = v * (double)unit->ms;
    return 0;
}

int value_span(const char *s, uint64_t *ret_ms)
{
    double total = 0;

    if (strcmp(s, "0") == 0) {
        *ret_ms = 0;
        return 0;
    }
    if (!*s) {
        return -EINVAL;
    }
    while (*s) {
        double part;

        if (span_part(&s, &part) < 0) {
            return -EINVAL;
        }
        total += part;
        if (total > (double)VALUE_MAX_SPAN_MS) {
            return -ERANGE;
        }
    }
    *ret_ms = (uint64_t)(total + 0.5);
    return 0;
}

void value_write_span(struct buf *to, uint64_t ms)
{
    for (size_t i = ARRAY_SIZE(units); i-- > 0;) {
        /* 90s rather than 1m30s; 24h and 1d both read well. */
        if (ms && ms % units[i].ms == 0) {
            buf_printf(to, "%llu%s", (unsigned long long)(ms / units[i].ms),
                       units[i].name);
            return;
        }
    }
    buf_puts(to, "0s");
}

int value_range(const char *s, uint32_t max, struct job_nodes *ret)
{
    const char *sep = strstr(s, "..");
    size_t width = 2;
    uint64_t lo, hi;
    char first[24];

    if (!sep) {
        sep = strchr(s, ':');
        width = 1;
    }
    if (!sep) {
        if (value_count(s, &lo) < 0) {
            return -EINVAL;
        }
        hi = lo;
    } else {
        if ((size_t)(sep - s) >= sizeof(first)) {
            return -EINVAL;
        }
        memcpy(first, s, (size_t)(sep - s));
        first[sep - s] = '\0';
        if (value_count(first, &lo) < 0 ||
            value_count(sep + width, &hi) < 0) {
            return -EINVAL;
        }
    }
    if (lo < 1 || hi < lo || hi > max) {
        return -ERANGE;
    }
    *ret = (struct job_nodes){.min = (uint32_t)lo, .max = (uint32_t)hi};
    return 0;
}

int value_procs(const char *s, uint32_t max, struct job_procs *ret)
{
    static const char *const words[] = {
        [JOB_PROCS_AUTO] = "auto",
        [JOB_PROCS_CPU] = "cpu",
        [JOB_PROCS_GPU] = "gpu",
    };
    uint64_t n;

    for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(s, words[i]) == 0) {
            *ret = (struct job_procs){.mode = i};
            return 0;
        }
    }
    if (value_count(s, &n) < 0) {
        return -EINVAL;
    }
    if (n < 1 || n > max) {
        return -ERANGE;
    }
    *ret = (struct job_procs){.mode = JOB_PROCS_FIXED, .n = (uint32_t)n};
    return 0;
}

static int suffix_factor(const char *s, double *ret)
{
    static const struct {
        const char *suffix;
        double factor;
    } table[] = {
        {"", 1},           {"n", 1e-9},          {"u", 1e-6},
        {"m", 1e-3},       {"k", 1e3},           {"M", 1e6},
        {"G", 1e9},        {"T", 1e12},          {"P", 1e15},
        {"E", 1e18},       {"Ki", 0x1p10},       {"Mi", 0x1p20},
        {"Gi", 0x1p30},    {"Ti", 0x1p40},       {"Pi", 0x1p50},
        {"Ei", 0x1p60},
    };

    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        if (strcmp(s, table[i].suffix) == 0) {
            *ret = table[i].factor;
            return 0;
        }
    }
    return -EINVAL;
}

int value_quantity(const char *s, double *ret)
{
    size_t len = strspn(s, "0123456789.");
    double v, factor;
    char number[64];

    /* "1e3" and "1E-2" are exponents, "1E" is exa. */
    if (len && (s[len] == 'e' || s[len] == 'E')) {
        size_t sign = s[len + 1] == '-' || s[len + 1] == '+';

        if (isdigit((unsigned char)s[len + 1 + sign])) {
            len += 1 + sign;
            len += strspn(s + len, "0123456789");
        }
    }
    if (len == 0 || len >= sizeof(number)) {
        return -EINVAL;
    }
    memcpy(number, s, len);
    number[len] = '\0';
    if (value_number(number, &v) < 0 || suffix_factor(s + len, &factor) < 0) {
        return -EINVAL;
    }
    *ret = v * factor;
    return 0;
}

/* Base 60: digits in groups of colons. */
static bool is_sexagesimal(const char *s)
{
    return isdigit((unsigned char)s[0]) && strchr(s, ':') &&
           strspn(s, "0123456789:.") == strlen(s);
}

bool value_is_ambiguous(const char *s)
{
    static const char *const words[] = {"yes", "no", "on", "off",
                                        "y",   "n",  NULL};
    const char *digits = s + (s[0] == '-' || s[0] == '+');

    if (is_one_of(s, words) || is_sexagesimal(s)) {
        return true;
    }
    if (!isdigit((unsigned char)digits[0])) {
        return false;
    }
    if (digits[0] == '0' && digits[1] &&
        strspn(digits, "01234567_") == strlen(digits)) {
        return true;
    }
    if (str_starts(digits, "0o") || str_starts(digits, "0b")) {
        return true;
    }
    return strchr(digits, '_') &&
           strspn(digits, "0123456789_.") == strlen(digits);
}

bool value_needs_quotes(const char *s)
{
    static const char *const words[] = {"true", "false", "null", "none",
                                        "~",    NULL};
    double number;

    if (!s[0] || is_one_of(s, words) || value_is_ambiguous(s) ||
        value_number(s, &number) == 0 || str_starts(s, "0x")) {
        return true;
    }
    if (!isalpha((unsigned char)s[0]) && !isdigit((unsigned char)s[0]) &&
        !strchr("/._", s[0])) {
        return true;
    }
    if (s[0] == '.' && !strchr("./", s[1])) {
        return true; /* .5, .inf, .nan */
    }
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "0123456789_./@%+=-") != strlen(s);
}

static void write_char(struct buf *to, const char *p, size_t n, uint32_t c)
{
    if (c == '"' || c == '\\') {
        buf_printf(to, "\\%c", (int)c);
    } else if (c == '\n') {
        buf_puts(to, "\\n");
    } else if (c == '\t') {
        buf_puts(to, "\\t");
    } else if (!utf8_is_printable(c) || c == 0xa0) {
        buf_printf(to, c > 0xffff ? "\\U%08x" : "\\u%04x", (unsigned)c);
    } else {
        buf_append(to, p, n);
    }
}

void value_write_quoted(struct buf *to, const char *s)
{
    buf_putc(to, '"');
    while (*s) {
        uint32_t c = 0;
        size_t n = utf8_next(s, &c);

        if (n == 0) {
            buf_puts(to, "\\ufffd");
            n = 1;
        } else {
            write_char(to, s, n, c);
        }
        s += n;
    }
    buf_putc(to, '"');
}
