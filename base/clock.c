/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t now_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}

uint64_t clock_mono_ms(void)
{
    return now_ns(CLOCK_MONOTONIC) / 1000000u;
}

uint64_t clock_boot_ms(void)
{
    return now_ns(CLOCK_BOOTTIME) / 1000000u;
}

uint64_t clock_wall_ns(void)
{
    return now_ns(CLOCK_REALTIME);
}

void clock_format(uint64_t wall_ns, char *to, size_t size)
{
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    struct tm tm;
    char day[24];

    gmtime_r(&seconds, &tm);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(to, size, "%s.%03uZ", day,
             (unsigned)(wall_ns / 1000000u % 1000u));
}

void clock_format_span(uint64_t span_ms, char *to, size_t size)
{
    unsigned long s = (unsigned long)(span_ms / 1000u);

    if (s < 60) {
        snprintf(to, size, "%lus", s);
    } else if (s < 3600) {
        snprintf(to, size, "%lum%02lus", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(to, size, "%luh%02lum", s / 3600, s / 60 % 60);
    } else {
        snprintf(to, size, "%lud%02luh", s / 86400, s / 3600 % 24);
    }
}
