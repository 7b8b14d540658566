/* SPDX-License-Identifier: Apache-2.0 */
/* Error files for a run directory that hangs: they take one thread, and so much memory. */
#include <config.h>

#include "launcher/agent.h"

#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MANY = 100, N_KEPT = 65 }; /* one is written, and 64 wait */

int __real_fs_write_replace(const char *path, const void *data, size_t len, struct error *e);
int __wrap_fs_write_replace(const char *path, const void *data, size_t len, struct error *e);
void __wrap_agent_note(struct agent *a, const char *fmt, ...);

static atomic_int n_begun, n_at_once, most_at_once;
static atomic_bool hangs;
static unsigned n_noted;

/* Hangs until it is let go on. */
int __wrap_fs_write_replace(const char *path, const void *data, size_t len, struct error *e)
{
    int n = atomic_fetch_add(&n_at_once, 1) + 1, rc;

    if (n > atomic_load(&most_at_once)) {
        atomic_store(&most_at_once, n);
    }
    atomic_fetch_add(&n_begun, 1);
    while (atomic_load(&hangs)) {
        poll(NULL, 0, 1);
    }
    rc = __real_fs_write_replace(path, data, len, e);
    atomic_fetch_sub(&n_at_once, 1);
    return rc;
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    (void)a, (void)fmt;
    n_noted++;
}

static void keep(struct agent *a, unsigned i)
{
    char name[64], text[16];

    agent_error_name(1, i, name, sizeof(name));
    snprintf(text, sizeof(text), "%u", i);
    agent_keep(a, name, "an error file", strdup(text));
}

static unsigned n_right(const struct agent *a)
{
    unsigned n = 0;

    for (unsigned i = 0; i < N_MANY; i++) {
        char path[PATH_MAX], want[16], *data = NULL;
        size_t len = 0;

        snprintf(path, sizeof(path), "%.3000s/errors/1-%u.json", a->run.dir, i);
        snprintf(want, sizeof(want), "%u", i);
        n += fs_read(path, 100, &data, &len, NULL) == 0 && strcmp(data, want) == 0;
        free(data);
    }
    return n;
}

static void test_hung(struct agent *a)
{
    atomic_store(&hangs, true);
    for (unsigned i = 0; i < N_MANY; i++) {
        keep(a, i);
    }
    for (int i = 0; i < 60000 && atomic_load(&n_begun) < 1; i++) {
        poll(NULL, 0, 1);
    }
    for (int i = 0; i < 200 && atomic_load(&n_begun) < 2; i++) {
        poll(NULL, 0, 1); /* so that another one could come */
    }
    is_int(n_noted, N_MANY - N_KEPT, "what is too much to wait is told of, and not kept");
    atomic_store(&hangs, false);
    while (a->kept_files) {
        uv_run(&a->loop, UV_RUN_ONCE);
    }
    is_int(atomic_load(&most_at_once), 1, "one is written at a time");
    is_int(n_right(a), N_KEPT, "all others are, once it goes on");
    keep(a, N_MANY - 1);
    while (a->kept_files) {
        uv_run(&a->loop, UV_RUN_ONCE);
    }
    is_int(n_right(a), N_KEPT + 1, "and what comes after it");
}

int main(void)
{
    struct agent *a = calloc(1, sizeof(*a));

    if (!a) {
        bail_out("no memory");
    }
    lead_bed_make(a);
    test_hung(a);
    fs_remove_tree(a->run.dir, NULL);
    lead_bed_release(a);
    free(a);
    return tap_done();
}
