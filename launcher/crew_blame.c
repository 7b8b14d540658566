/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who failed first. When a worker fails, its peers fail because of it, and the
 * order of their ends says little: one that raised an exception may take long to
 * unwind, and the peer that lost it ends at once. So:
 *
 *  - A worker has failed when it has ended or, if that is earlier, when it has
 *    written its error file.
 *  - One whose own words tell of the loss of a peer is an *echo* of a failure.
 *    To tell it would have all stopped, the one to blame as well, and nobody
 *    would hear of that one: so it is told only when another failure was, when
 *    all are to stop, or when ECHO_MS are over.
 *  - So is one that mpirun ended, as it does with all ranks when one has failed,
 *    and one whose MPI library ended it with nothing but a code for such a loss.
 *  - Before workers are stopped because one has failed, those that are alive are
 *    looked at: one that has written its error file has failed by itself; one
 *    whose output ends with a traceback most likely has.
 *
 * Member and lead take the lowest grade (rendezvous/failure.h), and of one grade
 * the earliest. A worker that closed its connections, says nothing and does not
 * end within ECHO_MS loses the blame to its echo, whose words name the peer.
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop_timer.h"
#include "launcher/last_words.h"
#include "launcher/oom.h"
#include "launcher/seat.h"
#include "rendezvous/restart.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHOWN_LINES = 20, /* of a worker that failed without a traceback */
    ECHO_MS = 2000,   /* for the cause to show behind what it causes */
    OOM_MS = 5000,    /* two of these: how long the host's kills are news */
};

/* --- what a worker said --- */

/* Without "worker 3 on n1: ", which whoever tells it says in words of its own. */
static const char *why_not_run(const char *text)
{
    const char *why = strstr(text, ": cannot run ");

    return why ? why + 2 : text;
}

/* The kernel counts before it kills. Where only the host's kills are counted, those
 * of the last moments alone are believed: they may have been anybody's. */
static bool is_oom_kill(struct crew *c, const struct worker_end *end)
{
    int64_t before = c->oom_kills;

    if (end->how.signal != SIGKILL || end->stopped) {
        return false;
    }
    c->oom_kills = c->oom_of_host ? oom_kills_host(NULL)
                                  : oom_kills(NULL, NULL);
    c->oom_recent = c->oom_kills;
    return before >= 0 && c->oom_kills > before;
}

/* One that is killed may take seconds to give its memory back. */
static void on_oom_timer(uv_timer_t *t)
{
    struct crew *c = t->data;

    c->oom_kills = c->oom_recent;
    c->oom_recent = oom_kills_host(NULL);
}

static int count_oom_kills(struct crew *c, struct error *e)
{
    c->oom_kills = oom_kills(NULL, NULL);
    if (c->oom_kills >= 0) {
        return 0;
    }
    c->oom_timer = loop_timer_create(&c->agent->loop, c);
    if (!c->oom_timer) {
        return error_set(e, ENOMEM, "start workers");
    }
    c->oom_of_host = true;
    c->oom_kills = c->oom_recent = oom_kills_host(NULL);
    uv_timer_start(c->oom_timer, on_oom_timer, OOM_MS, OOM_MS);
    return 0;
}

/* The end of `from`, where not all of it fits. */
static void copy_end(char *to, size_t size, const char *from)
{
    size_t len = strlen(from);

    str_copy(to, size, len < size ? from : from + len - size + 1);
}

static uint32_t age_ms(uint64_t wall_ns)
{
    uint64_t now = clock_wall_ns();
    uint64_t ms = now > wall_ns ? (now - wall_ns) / 1000000 : 0;

    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

/* Its error file, which goes to the run's records. The time of that file is the
 * worker's own to set, within its life. */
static bool take_file(struct crew *c, struct failure *f)
{
    struct error_file file = {0};
    const char *words;
    char path[PATH_MAX];
    char name[64];
    struct error e = {0};
    int rc = crew_error_path(c, (uint32_t)f->local_rank, path, sizeof(path),
                             &e);

    rc = rc < 0 ? rc : error_file_read(path, &file, &e);
    if (rc < 0) {
        if (rc != -ENOENT) {
            agent_log(c->agent, "%s", e.text);
        }
        return false;
    }
    words = file.stack ? file.stack : file.message;
    last_words_summary(words, f->what, sizeof(f->what));
    if (!f->what[0]) {
        last_words_line(file.message, f->what, sizeof(f->what));
    }
    copy_end(f->text, sizeof(f->text), words);
    f->has_file = true;
    if (file.written_ns < f->wall_ns) {
        f->wall_ns = file.written_ns > c->since_ns ? file.written_ns
                                                   : c->since_ns;
    }
    agent_error_name(c->generation, (uint32_t)f->rank, name, sizeof(name));
    agent_keep(c->agent, name, "an error file", take_ptr(&file.json));
    error_file_release(&file);
    return true;
}

static void take_output(const char *tail, struct failure *f)
{
    if (f->signal != SIGKILL) {
        last_words_summary(tail, f->what, sizeof(f->what));
    }
    copy_end(f->text, sizeof(f->text), last_words_start(tail, SHOWN_LINES));
}

void crew_identify(const struct crew *c, uint32_t local_rank,
                   struct failure *f)
{
    const struct agent *a = c->agent;

    f->generation = c->generation;
    f->node = a->rank;
    f->rank = (int32_t)(c->layout.first_rank + local_rank);
    f->local_rank = (int32_t)local_rank;
    str_copy(f->host, sizeof(f->host), a->host);
    str_copy(f->program, sizeof(f->program), a->config.job->command.items[0]);
}

/* An MPI program: what its stand-in has on record of the end, whose time is that
 * of the program itself. True if its world was ended. */
static bool take_record(const struct crew *c, struct failure *f)
{
    struct seat_record record;
    char path[PATH_MAX];

    if (seat_path(c->agent->dir, c->generation, (uint32_t)f->rank, path,
                  sizeof(path), NULL) < 0 ||
        !seat_record_read(path, &record)) {
        return false;
    }
    if (record.at_ns > c->since_ns && record.at_ns < f->wall_ns) {
        f->wall_ns = record.at_ns;
    }
    return record.by_launch && f->kind != FAILURE_OOM;
}

/* Open MPI ends a process that meets an error in it with the class of the error.
 * What it says of it is printed by mpirun, not here. */
static bool is_of_lost_peer(const struct failure *f)
{
    enum { UNKNOWN = 14, OTHER = 16, INTERN = 17, PROC_ABORTED = 74,
           PROC_FAILED = 75, PROC_FAILED_PENDING = 76, REVOKED = 77 };

    switch (f->kind == FAILURE_EXIT && !f->what[0] ? f->exit_code : 0) {
    case UNKNOWN: /* a connection that closed */
    case OTHER:   /* UCX and libfabric have met such a one */
    case INTERN:
    case PROC_ABORTED:
    case PROC_FAILED:
    case PROC_FAILED_PENDING:
    case REVOKED:
        return true;
    default:
        return false;
    }
}

static enum failure_grade grade_of(const struct crew *c, struct failure *f)
{
    bool is_mpi = c->agent->config.job->program == JOB_MPI;

    if (is_mpi && (take_record(c, f) || is_of_lost_peer(f))) {
        return FAILURE_ECHO;
    }
    return last_words_is_echo(f->what) ? FAILURE_ECHO : FAILURE_OWN;
}

void crew_describe(struct crew *c, const struct worker_end *end,
                   struct failure *f)
{
    crew_identify(c, end->local_rank, f);
    f->kind = end->exec_failed ? FAILURE_EXEC
              : is_oom_kill(c, end) ? FAILURE_OOM
              : end->how.signal ? FAILURE_SIGNAL : FAILURE_EXIT;
    f->pid = end->how.pid;
    f->exit_code = (uint8_t)(end->how.signal ? 0 : end->status);
    f->signal = (uint8_t)end->how.signal;
    f->core_dumped = end->how.core;
    f->killed_by_us = end->stopped;
    f->wall_ns = end->at_wall_ns;
    if (end->exec_failed) {
        str_copy(f->text, sizeof(f->text), why_not_run(end->text));
    } else if (!take_file(c, f)) {
        take_output(end->tail, f);
    }
    f->grade = grade_of(c, f);
    f->age_ms = age_ms(f->wall_ns);
}

/* --- those that are alive --- */

static bool has_failed(struct crew *c, uint32_t local_rank, struct failure *f)
{
    _buf_ struct buf tail = {0};

    crew_identify(c, local_rank, f);
    f->kind = FAILURE_SAID;
    f->grade = FAILURE_OWN;
    f->exit_code = RUN_FAILED;
    f->pid = worker_pid(c->workers, local_rank);
    f->wall_ns = clock_wall_ns();
    if (!take_file(c, f)) {
        f->grade = FAILURE_HINT;
        worker_tail(c->workers, local_rank, &tail);
        take_output(buf_str(&tail), f);
    }
    f->age_ms = age_ms(f->wall_ns);
    return f->what[0] && !last_words_is_echo(f->what);
}

void crew_accuse(struct crew *c)
{
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        struct failure f = {0};
        struct member_event event = {.type = MEMBER_FAILED, .failure = &f,
                                     .generation = c->generation};

        if (worker_pid(c->workers, i) > 0 && !c->list[i].is_accused &&
            has_failed(c, i, &f)) {
            c->list[i].is_accused = true;
            agent_member_soon(c->agent, &event);
        }
    }
}

/* --- echoes --- */

static struct echo *next_echo(struct crew *c)
{
    struct echo *echo = c->echoes;

    if (echo) {
        c->echoes = echo->next;
    }
    return echo;
}

static void on_echo_timer(uv_timer_t *t)
{
    struct crew *c = t->data;
    struct echo *echo;

    crew_accuse(c);
    while ((echo = next_echo(c))) {
        struct member_event event = {.type = MEMBER_EXITED,
                                     .generation = c->generation,
                                     .failure = &echo->failure};

        echo->failure.age_ms = age_ms(echo->failure.wall_ns);
        agent_member_soon(c->agent, &event);
        free(echo);
    }
    if (c->is_gone) {
        crew_finish(c);
    }
}

void crew_tell_echoes(struct crew *c)
{
    if (c->echoes) {
        uv_timer_start(c->echo_timer, on_echo_timer, 0, 0);
    }
}

bool crew_hold_back(struct crew *c, const struct failure *f)
{
    struct echo *echo;
    struct echo **at = &c->echoes;

    if (f->grade != FAILURE_ECHO || !(echo = calloc(1, sizeof(*echo)))) {
        return false;
    }
    echo->failure = *f;
    while (*at) {
        at = &(*at)->next;
    }
    *at = echo;
    if (!uv_is_active((uv_handle_t *)c->echo_timer)) {
        uv_timer_start(c->echo_timer, on_echo_timer, ECHO_MS, 0);
    }
    return true;
}

int crew_blame_start(struct crew *c, struct error *e)
{
    c->echo_timer = loop_timer_create(&c->agent->loop, c);
    return c->echo_timer ? count_oom_kills(c, e)
                         : error_set(e, ENOMEM, "start workers");
}

void crew_blame_end(struct crew *c)
{
    struct echo *echo;

    while ((echo = next_echo(c))) {
        free(echo);
    }
    loop_timer_close(c->echo_timer);
    loop_timer_close(c->oom_timer);
}
