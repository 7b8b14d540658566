/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/status_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <stdio.h>

struct run_status *status_bed_make(enum status_run_state state, size_t n_workers)
{
    struct run_status *s = run_status_create();

    if (!s || run_status_set_nodes(s, 1) < 0 ||
        run_status_set_workers(s, n_workers) < 0) {
        bail_out("no memory");
    }
    str_copy(s->id, sizeof(s->id), "full");
    s->state = state;
    return s;
}

struct run_status *status_bed_read(const char *run_dir)
{
    struct run_status *s = NULL;
    _free_ char *text = NULL;
    char path[PATH_MAX];
    size_t len;

    snprintf(path, sizeof(path), "%s/status.json", run_dir);
    if (fs_read(path, 1 << 20, &text, &len, NULL) < 0 ||
        run_status_from_json(text, len, &s, NULL) < 0) {
        bail_out("%s cannot be read", path);
    }
    return s;
}
