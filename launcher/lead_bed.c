/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/lead_bed.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void expect(bool fact)
{
    if (!fact) {
        abort();
    }
}

static void on_seen(void *ctx, const struct tree_seen *seen)
{
    (void)ctx;
    (void)seen;
}

static void on_event(void *ctx, uint32_t rank, const void *data, size_t len)
{
    (void)ctx;
    (void)rank;
    (void)data;
    (void)len;
}

static void add_nodes(struct agent *a)
{
    for (uint32_t i = 0; i < BED_NODES; i++) {
        struct roster_entry entry = {.slots = BED_PROCS, .port = 1,
                                     .n_addrs = 1, .host = "somewhere"};

        str_copy(entry.addrs[0], sizeof(entry.addrs[0]), "127.0.0.1");
        expect(roster_add(&a->roster, &entry) == 0);
    }
}

static void make_run(struct agent *a)
{
    str_copy(a->run.id, sizeof(a->run.id), "x");
    snprintf(a->run.dir, sizeof(a->run.dir), "%s/muster-lead.XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    expect(mkdtemp(a->run.dir) != NULL);
    a->config.job = job_create();
    expect(a->config.job && (a->config.job->name = strdup("y")));
    a->config.job->hang_timeout_ms = 1000;
}

void lead_bed_make(struct agent *a)
{
    static const uint8_t key[32] = {1};
    static const struct tree_ops ops = {.on_seen = on_seen,
                                       .on_event = on_event};
    struct tree_config tree = {.loop = &a->loop, .roster = &a->roster,
                               .arity = 2, .lease_ms = 1000, .run_id = "x",
                               .version = "1", .key = key, .ops = &ops};

    expect(uv_loop_init(&a->loop) == 0);
    /* Nothing is ever due: it is kept for whoever looks. */
    uv_timer_init(&a->loop, &a->soon_timer);
    uv_close((uv_handle_t *)&a->soon_timer, NULL);
    add_nodes(a);
    make_run(a);
    expect(link_listen(&a->loop, true, &a->listener, NULL) == 0);
    tree.listener = a->listener;
    expect(tree_create(&tree, &a->tree, NULL) == 0);
}

void lead_bed_release(struct agent *a)
{
    tree_close(a->tree);
    link_listener_close(a->listener);
    uv_run(&a->loop, UV_RUN_DEFAULT);
    expect(uv_loop_close(&a->loop) == 0);
    roster_release(&a->roster);
    job_destroy(a->config.job);
}

bool lead_bed_is_apart(void)
{
    _close_ int fd = memfd_create("apart", MFD_CLOEXEC);
    struct stat own, shared;
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* of the main thread */
    expect(fstat(fd, &own) == 0);
    return stat(path, &shared) < 0 || shared.st_dev != own.st_dev ||
           shared.st_ino != own.st_ino || !thread_can_be_apart();
}

struct order lead_bed_run(uint32_t generation, uint16_t n_procs[BED_NODES])
{
    n_procs[0] = n_procs[2] = BED_PROCS;
    n_procs[1] = 0;
    return (struct order){.serial = generation, .generation = generation,
                          .step = ORDER_RUN, .n_nodes = BED_NODES,
                          .n_procs = n_procs};
}
