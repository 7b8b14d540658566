/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/since.h"

#include "base/str.h"
#include "spec/value.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MIN_YEAR = 1970, MAX_YEAR = 2500 };

#define MILLI UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

/* A date, with or without a time of the day. */
static bool parse_date(const char *s, uint64_t *ret)
{
    static const int widths[] = {10, 16, 19}; /* without seconds, and with */
    struct tm tm = {.tm_isdst = -1}, same;
    size_t len = strlen(s);
    bool is_utc = len && s[len - 1] == 'Z', fits = false;
    time_t t;
    int n;

    len -= is_utc;
    for (size_t i = 0; i < 3; i++) {
        fits |= len == (size_t)widths[i];
    }
    n = sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon,
               &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec);
    if (!fits || n != (len == 10 ? 3 : len == 16 ? 5 : 6) ||
        tm.tm_year < MIN_YEAR || tm.tm_year > MAX_YEAR) {
        return false;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    same = tm;
    t = is_utc ? timegm(&tm) : mktime(&tm);
    /* "02-30" would be March. */
    if (t < 0 || tm.tm_mday != same.tm_mday || tm.tm_mon != same.tm_mon ||
        tm.tm_min != same.tm_min || tm.tm_sec != same.tm_sec) {
        return false;
    }
    *ret = (uint64_t)t * SECOND;
    return true;
}

static bool parse_seconds(const char *s, uint64_t *ret)
{
    double seconds;

    if (s[0] != '@' || str_to_f64(s + 1, &seconds) < 0 ||
        !(seconds >= 0 && seconds < 1e10)) {
        return false;
    }
    *ret = (uint64_t)(seconds * 1e3 + 0.5) * MILLI;
    return true;
}

static bool parse_span(const char *s, uint64_t now_ns, uint64_t *ret)
{
    uint64_t ms;

    if (value_span(s, &ms) < 0) {
        return false;
    }
    *ret = ms < now_ns / MILLI ? now_ns - ms * MILLI : 1;
    return true;
}

int since_parse(const char *text, uint64_t now_ns, uint64_t *ret,
                struct error *e)
{
    if (parse_date(text, ret) || parse_seconds(text, ret) ||
        parse_span(text, now_ns, ret)) {
        *ret = *ret ? *ret : 1;
        return 0;
    }
    return error_text(e, ERR_USAGE, "option --since: expected a time that has "
                      "passed since, such as 90s or 2h, or a time such as "
                      "2026-11-22T08:00:00 (with a Z: in UTC), found '%.100s'",
                      text);
}
