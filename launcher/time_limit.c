/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/time_limit.h"

#include "base/str.h"

#include <stddef.h>
#include <string.h>

enum {
    ASK_MAX_MS = 300000, /* limits can be changed at any time */
    ASK_MIN_MS = 10000,
    MAX_FIELDS = 3,      /* hours, minutes, seconds */
};

#define MAX_LEFT_S (UINT64_C(1000) * 366 * 86400) /* which no job has */

struct time_limit time_limit_start(uint64_t before_ms)
{
    return (struct time_limit){.before_ms = before_ms};
}

/* The digits at *at, at most nine of them. */
static bool take_number(const char **at, uint64_t *ret)
{
    size_t len = strspn(*at, "0123456789");

    *ret = 0;
    for (size_t i = 0; i < len && len < 10; i++) {
        *ret = *ret * 10 + (uint64_t)((*at)[i] - '0');
    }
    *at += len;
    return len > 0 && len < 10;
}

bool time_limit_parse(const char *text, uint64_t *ret_left_ms)
{
    static const uint64_t units[MAX_FIELDS] = {1, 60, 3600};
    bool has_days = strchr(text, '-');
    uint64_t fields[MAX_FIELDS], days = 0, seconds = 0;
    size_t n = 0;

    if (strcmp(text, "UNLIMITED") == 0 || strcmp(text, "NOT_SET") == 0) {
        *ret_left_ms = TIME_LIMIT_NEVER;
        return true;
    }
    if (has_days && (!take_number(&text, &days) || *text++ != '-')) {
        return false;
    }
    do {
        text += n > 0;
        if (n == MAX_FIELDS || !take_number(&text, &fields[n++])) {
            return false;
        }
    } while (*text == ':');
    if (*text || n < (has_days ? 3 : 2)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        seconds += fields[i] * units[n - 1 - i];
    }
    *ret_left_ms = (days * 86400 + seconds) * 1000;
    return true;
}

bool time_limit_parse_end(const char *text, uint64_t now_s,
                          uint64_t *ret_left_ms)
{
    uint64_t end_s = 0;

    if (str_to_u64(text, &end_s) < 0 || end_s < now_s ||
        end_s - now_s > MAX_LEFT_S) {
        return false;
    }
    *ret_left_ms = (end_s - now_s) * 1000;
    return true;
}

void time_limit_take(struct time_limit *t, uint64_t left_ms, uint64_t mono_ms,
                     uint64_t wall_ms)
{
    int64_t offset_ms = (int64_t)(wall_ms - mono_ms);
    int64_t end_ms;

    if (!t->is_set) {
        t->wall_offset_ms = offset_ms;
        if (left_ms / 2 < t->before_ms) {
            t->before_ms = left_ms / 2;
        }
    }
    t->is_set = true;
    if (left_ms == TIME_LIMIT_NEVER) {
        t->end_ms = TIME_LIMIT_NEVER;
        return;
    }
    end_ms = (int64_t)(mono_ms + left_ms) + offset_ms - t->wall_offset_ms;
    t->end_ms = end_ms > 0 ? (uint64_t)end_ms : 0;
}

uint64_t time_limit_stop_ms(const struct time_limit *t)
{
    if (!t->is_set || t->end_ms == TIME_LIMIT_NEVER) {
        return TIME_LIMIT_NEVER;
    }
    return t->end_ms > t->before_ms ? t->end_ms - t->before_ms : 0;
}

uint64_t time_limit_ask_ms(const struct time_limit *t, uint64_t now_ms)
{
    uint64_t stop_ms = time_limit_stop_ms(t);
    uint64_t half_ms;

    if (stop_ms == TIME_LIMIT_NEVER) {
        return now_ms + ASK_MAX_MS;
    }
    if (stop_ms <= now_ms + 2 * ASK_MIN_MS) {
        return stop_ms > now_ms ? stop_ms : now_ms;
    }
    half_ms = (stop_ms - now_ms) / 2;
    return now_ms + (half_ms < ASK_MAX_MS ? half_ms : ASK_MAX_MS);
}
