/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/workers_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/proc.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_sink(void *arg, uint32_t rank, enum output_which which,
                    enum output_piece piece, const char *data, size_t len)
{
    struct bed *bed = arg;
    bool is_err = memmem(data, len, "err ", 4) != NULL;

    (void)rank;
    (void)piece;
    bed->n_wrong_stream += which != (is_err ? OUTPUT_STDERR : OUTPUT_STDOUT);
    if (bed->printed.len < 1 << 20) {
        buf_append(&bed->printed, data, len);
    }
}

static void on_started(void *arg)
{
    ((struct view *)arg)->n_started++;
}

static void on_exit_view(void *arg, const struct worker_end *end)
{
    struct view *v = arg;

    if (v->n_exits < 64) {
        v->ends[v->n_exits] = *end;
        str_copy(v->text[v->n_exits], 300, end->text);
        str_copy(v->tail[v->n_exits], 300, end->tail);
    }
    v->n_exits++;
    if (v->stop_on_failure && end->status && !end->stopped) {
        workers_stop(v->set, 0);
    }
}

static void on_stuck(void *arg, const struct worker_survivor *who, size_t n)
{
    struct view *v = arg;

    v->n_stuck++;
    v->stuck = n ? who[0] : (struct worker_survivor){0};
}

static void on_gone(void *arg)
{
    struct view *v = arg;

    v->n_gone++;
    workers_destroy(v->set);
    v->set = NULL;
    if (v->then) {
        v->then(v);
    }
}

int bed_try_start(struct bed *bed, struct view *v, struct launch_args a,
                  struct error *e)
{
    struct worker_spec specs[64];
    char words[64][16], who[64][16], pid[32];
    char *argvs[64][4], *envs[64][8];
    struct workers_config c = {.workers = specs, .n = a.n, .cwd = a.cwd,
                               .logs_dir = a.logs_dir, .hold = a.hold,
                               .linger_ms = a.linger_ms,
                               .blanks = bed->blanks};
    struct workers_events ev = {.on_started = on_started,
                                .on_exit = on_exit_view,
                                .on_stuck = on_stuck,
                                .on_gone = on_gone, .arg = v};

    snprintf(pid, sizeof(pid), "AGENT=%d", getpid());
    for (unsigned i = 0; i < a.n; i++) {
        snprintf(words[i], 16, "%d", a.args ? a.args[i] : a.arg);
        snprintf(who[i], 16, "WHO=%u", i);
        argvs[i][0] = (char *)(a.program ? a.program : bed->self);
        argvs[i][1] = (char *)a.verb;
        argvs[i][2] = words[i];
        argvs[i][3] = NULL;
        envs[i][0] = (char *)"PATH=/usr/bin:/bin";
        envs[i][1] = who[i];
        envs[i][2] = pid;
        envs[i][3] = NULL;
        specs[i] = (struct worker_spec){.argv = argvs[i], .envp = envs[i],
                                        .rank = 100 + i};
    }
    return workers_start(&bed->host, &c, &ev, &v->set, e);
}

void bed_use_blanks(struct bed *bed)
{
    static char *const none[] = {NULL};
    struct blanks_config config = {.loop = &bed->loop,
                                   .children = bed->host.children,
                                   .exec_path = bed->host.exec_path,
                                   .envp = none, .first_ms = 1,
                                   .pace_ms = 1};

    if (blanks_create(&config, &bed->blanks, NULL) < 0) {
        bail_out("no blanks");
    }
}

void bed_fill(struct bed *bed, unsigned n)
{
    if (bed->blanks) {
        blanks_fill(bed->blanks, n);
        bed_turn_until(bed, blanks_waiting(bed->blanks) == n);
    }
}

void bed_start(struct bed *bed, struct view *v, struct launch_args a)
{
    struct error e = {0};

    memset(v, 0, sizeof(*v));
    bed_fill(bed, a.n);
    if (bed_try_start(bed, v, a, &e) < 0) {
        bail_out("%s", e.text);
    }
}

void bed_on_tick(uv_timer_t *t)
{
    (void)t;
}

int bed_count(const struct bed *bed, const char *word)
{
    int n = 0;

    for (const char *p = buf_str(&bed->printed); (p = strstr(p, word)); p++) {
        n++;
    }
    return n;
}

void bed_check_nobody(const struct bed *bed, const char *what)
{
    _proc_list_ struct proc_list l = {0};

    proc_descendants(getpid(), &l, NULL);
    is_int((int)l.n, bed->blanks ? (int)blanks_waiting(bed->blanks) : 0,
           "%s: nobody is left", what);
}

static void find_exec(struct bed *bed)
{
    const char *build = getenv("MUSTER_BUILDDIR");
    char *to = bed->host.exec_path, *slash;

    str_copy(bed->self, sizeof(bed->self), tap_self());
    if (build) {
        snprintf(to, sizeof(bed->host.exec_path), "%s/muster-exec", build);
        return;
    }
    str_copy(to, sizeof(bed->host.exec_path) - 16, bed->self);
    slash = strrchr(to, '/');
    snprintf(slash ? slash : to, 20, "/../muster-exec");
}

void bed_open(struct bed *bed)
{
    struct output_config oc = {.sink = on_sink, .arg = bed};

    memset(bed, 0, sizeof(*bed));
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    find_exec(bed);
    uv_loop_init(&bed->loop);
    bed->host.loop = &bed->loop;
    bed->host.node = "node2";
    str_copy(bed->dir, sizeof(bed->dir), "/tmp/workers-test.XXXXXX");
    if (!mkdtemp(bed->dir) || child_become_subreaper(NULL) < 0 ||
        child_table_create(&bed->loop, &bed->host.children, NULL) < 0 ||
        output_create(&bed->loop, &oc, &bed->host.output, NULL) < 0) {
        bail_out("no temporary directory, subreaper, table or output");
    }
    bed->fds_before = proc_fd_inventory();
}

void bed_close(struct bed *bed)
{
    _free_ char *fds = NULL;

    blanks_destroy(bed->blanks);
    uv_run(&bed->loop, UV_RUN_NOWAIT);
    fds = proc_fd_inventory();
    is_str(fds, bed->fds_before, "no descriptor is left open");
    output_destroy(bed->host.output, 5000, NULL, NULL);
    child_table_destroy(bed->host.children);
    proc_env_release(&bed->host.env);
    uv_run(&bed->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&bed->loop), 0, "nothing is left on the loop");
    buf_release(&bed->printed);
    free(bed->fds_before);
    fs_remove_tree(bed->dir, NULL);
}
