/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/tap.h"

#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int n_cases;
static int n_failed;

static void print_name(const char *fmt, va_list ap)
    __attribute__((format(printf, 1, 0)));
static bool report(bool passed, const char *file, int line, const char *fmt,
                   va_list ap) __attribute__((format(printf, 4, 0)));

static void print_name(const char *fmt, va_list ap)
{
    char name[512];

    vsnprintf(name, sizeof(name), fmt, ap);
    for (char *p = name; *p; p++) {
        if (*p == '\n' || *p == '#') {
            *p = ' ';
        }
    }
    printf(" - %s\n", name);
}

static bool report(bool passed, const char *file, int line, const char *fmt,
                   va_list ap)
{
    n_cases++;
    n_failed += !passed;
    printf("%sok %d", passed ? "" : "not ", n_cases);
    print_name(fmt, ap);
    if (!passed) {
        printf("#   at %s:%d\n", file, line);
    }
    fflush(stdout);
    return passed;
}

bool tap_ok(const char *file, int line, bool cond, const char *name, ...)
{
    va_list ap;

    va_start(ap, name);
    report(cond, file, line, name, ap);
    va_end(ap);
    return cond;
}

bool tap_int(const char *file, int line, intmax_t got, intmax_t want,
             const char *name, ...)
{
    va_list ap;

    va_start(ap, name);
    report(got == want, file, line, name, ap);
    va_end(ap);
    if (got != want) {
        diag("  got %jd, expected %jd", got, want);
    }
    return got == want;
}

bool tap_str(const char *file, int line, const char *got, const char *want,
             const char *name, ...)
{
    bool same = (!got && !want) || (got && want && strcmp(got, want) == 0);
    va_list ap;

    va_start(ap, name);
    report(same, file, line, name, ap);
    va_end(ap);
    if (!same) {
        diag("  got      '%s'", got ? got : "(null)");
        diag("  expected '%s'", want ? want : "(null)");
    }
    return same;
}

bool tap_like(const char *file, int line, const char *got, const char *part,
              const char *name, ...)
{
    bool found = got && strstr(got, part);
    va_list ap;

    va_start(ap, name);
    report(found, file, line, name, ap);
    va_end(ap);
    if (!found) {
        diag("  got         '%s'", got ? got : "(null)");
        diag("  lacks part  '%s'", part);
    }
    return found;
}

void diag(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    printf("# ");
    vprintf(fmt, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
}

void skip(const char *why, ...)
{
    va_list ap;

    va_start(ap, why);
    printf("ok %d # SKIP ", ++n_cases);
    vprintf(why, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
}

void bail_out(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    printf("Bail out! ");
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
    fflush(stdout);
    exit(255);
}

static intmax_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();

    return (intmax_t)(m.uordblks + m.hblkhd);
}

/* What the first calls leave in caches is no leak. */
intmax_t tap_leak(void (*f)(void *arg), void *arg)
{
    enum { N_WARM = 20, N = 100 };
    intmax_t before = 0;

    for (int i = 0; i < N_WARM + N; i++) {
        before = i == N_WARM ? allocated() : before;
        f(arg);
    }
    return (allocated() - before) / N;
}

const char *tap_self(void)
{
    static char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n < 0) {
        bail_out("readlink /proc/self/exe");
    }
    self[n] = '\0';
    return self;
}

bool tap_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");

    return preload && strstr(preload, "vgpreload");
}

int tap_done(void)
{
    printf("1..%d\n", n_cases);
    fflush(stdout);
    return n_failed ? 1 : 0;
}
