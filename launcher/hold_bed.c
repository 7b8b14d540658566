/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/hold_bed.h"

#include "base/fs.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void hold_bed_make(struct hold_bed *b, uint64_t budget, const char *name)
{
    struct snap_hold_config config = snap_bed_config(&b->loop, b->dir, &b->said);

    config.agent = 3;
    config.budget = budget;
    config.name = name;
    config.is_elsewhere = name != NULL;
    b->hold = snap_bed_hold(&config);
}

void hold_bed_open(struct hold_bed *b, uint64_t budget)
{
    memset(b, 0, sizeof(*b));
    snap_bed_open("hold_bed", &b->loop, b->top);
    snprintf(b->dir, sizeof(b->dir), "%s/shm", b->top);
    snprintf(b->root, sizeof(b->root), "%s/ck", b->top);
    fs_mkdirs(b->root, NULL);
    hold_bed_make(b, budget, NULL);
}

void hold_bed_close(struct hold_bed *b)
{
    snap_hold_destroy(b->hold);
    snap_bed_close(&b->loop, b->top);
}

void hold_bed_run_until(struct hold_bed *b, const int *count, int n)
{
    snap_bed_run_until(&b->loop, count, n);
    is_int(*count, n, "so many have come");
}

void hold_bed_run_works(struct hold_bed *b)
{
    uv_run(&b->loop, UV_RUN_DEFAULT);
}

static int begin(struct hold_bed *b, uint32_t rank, uint64_t step,
                 const char *uuid, uint64_t room)
{
    const struct snap_rank who = {.rank = rank, .n_ranks = 4, .generation = 2,
                                  .token = 9};

    return snap_hold_begin(b->hold, &who, step, uuid, b->root, room, step,
                           &b->said.error);
}

int hold_bed_begin(struct hold_bed *b, uint32_t rank, uint64_t step,
                   const char *uuid, uint64_t room)
{
    int n = b->said.n_begun, rc = begin(b, rank, step, uuid, room);

    if (rc == 0) {
        hold_bed_run_until(b, &b->said.n_begun, n + 1);
    }
    return rc;
}

void hold_bed_begin_later(struct hold_bed *b, uint32_t rank, uint64_t step,
                          const char *uuid, uint64_t room)
{
    is_int(begin(b, rank, step, uuid, room), 0, "a save is begun");
}

static int fill(struct hold_bed *b, uint32_t rank, uint64_t step, const char *uuid)
{
    int rc = hold_bed_begin(b, rank, step, uuid, HOLD_ROOM);

    if (rc == 0) {
        memset(b->said.snap->map + SNAP_PAGE_BYTES, (int)step, 5000);
    }
    return rc;
}

int hold_bed_save(struct hold_bed *b, uint32_t rank, uint64_t step,
                  const char *uuid)
{
    int rc = fill(b, rank, step, uuid);

    return rc < 0 ? rc : snap_hold_done(b->hold, rank, uuid, 5000, 100, &b->said.error);
}

int hold_bed_stay(struct hold_bed *b, uint32_t rank, uint64_t step,
                  const char *uuid)
{
    int rc = fill(b, rank, step, uuid);

    return rc < 0 ? rc : snap_hold_stay(b->hold, rank, uuid, 5000, 100, &b->said.error);
}

bool hold_bed_has(const struct hold_bed *b, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", b->dir, name);
    return access(path, F_OK) == 0;
}
