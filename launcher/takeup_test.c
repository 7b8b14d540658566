/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/takeup.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/status.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/muster-takeup.XXXXXX";

static struct rundir *open_run(void)
{
    struct rundir *r = NULL;
    struct rundir_params p = {.name = "tiny", .dir = "run"};
    struct error e = {0};

    if (rundir_create(&p, &r, &e) < 0) {
        bail_out("%s", e.text);
    }
    return r;
}

static void write_status(const struct rundir *r, const struct run_status *s)
{
    _buf_ struct buf text = {0};
    char path[PATH_MAX];

    rundir_path(r, path, sizeof(path), NULL, "status.json");
    run_status_to_json(s, &text);
    if (fs_write_replace(path, text.data, text.len, NULL) < 0) {
        bail_out("write %s", path);
    }
}

/* Of its agents one was excluded, the second one on its host, and one was lost; another
 * was excluded that took the place of that; and one did not fit. */
static void set_hosts(struct run_status *s)
{
    static const char *const hosts[] = {"a", "b", "a", "c", "c"};

    run_status_set_nodes(s, 5);
    for (size_t i = 0; i < 5; i++) {
        str_copy(s->nodes[i].host, sizeof(s->nodes[i].host), hosts[i]);
        s->nodes[i].state = STATUS_NODE_LEFT;
    }
    str_copy(s->nodes[2].why, sizeof(s->nodes[2].why), "it fails: twice");
    s->nodes[2].excluded = EXCLUSION_FAILS;
    s->nodes[1].excluded = EXCLUSION_MISFIT;
    str_copy(s->nodes[3].why, sizeof(s->nodes[3].why), "no word from it");
    s->nodes[3].state = STATUS_NODE_LOST;
    str_copy(s->nodes[4].why, sizeof(s->nodes[4].why), "it is slow");
    s->nodes[4].excluded = EXCLUSION_SLOW;
}

/* How an earlier life ended, and what of it counts in the next one. */
static void test_states(void)
{
    static const struct {
        enum status_run_state state;
        bool resumes;
        const char *resume_path;
        bool want_spent;
        const char *want_path;
        int64_t want_step;
    } cases[] = {
        {STATUS_RUNNING, false, "ckpt/40", true, "ckpt/40", 40},
        {STATUS_RESTARTING, false, "ckpt/40", true, "ckpt/40", 40},
        {STATUS_STOPPING, false, "ckpt/40", true, "ckpt/40", 40},
        {STATUS_STOPPED, false, "ckpt/40", true, "ckpt/40", 40},
        {STATUS_STOPPED, false, "", true, "", 0},
        {STATUS_SUSPENDED, true, "ckpt/40", true, "ckpt/40", 40},
        {STATUS_SUCCEEDED, false, "ckpt/40", false, "", 0},
        {STATUS_FAILED, false, "ckpt/40", false, "", 0},
        {STATUS_FAILED, true, "ckpt/40", false, "ckpt/40", 40},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(rundir) struct rundir *r = open_run();
        struct run_status *s = run_status_create();
        struct run_config config = {.first_generation = 1};
        const char *name = status_run_name(cases[i].state);
        struct error e = {0};

        str_copy(s->id, sizeof(s->id), r->id);
        str_copy(s->name, sizeof(s->name), "tiny");
        s->state = cases[i].state;
        s->generation = 3;
        s->restarts = 2;
        s->starts = 5;
        s->node_failures = 1;
        s->want_nodes = 3;
        s->max_nodes = 4;
        s->ran_ms = 3500;
        s->resume_step = 40;
        s->avoid.n_deaths = 1;
        str_copy(s->resume_path, sizeof(s->resume_path),
                 cases[i].resume_path);
        set_hosts(s);
        write_status(r, s);
        r->reopened = true;
        is_int(takeup_run(r, cases[i].resumes, &config, &e), 0,
               "%s: taken up %s", name, e.text);
        is_int(config.first_generation, 4, "%s: generations count on", name);
        is_int(config.n_starts, 5, "%s: and so do starts", name);
        is_int(config.n_restarts, cases[i].want_spent ? 2 : 0,
               "%s: spent restarts", name);
        is_int(config.n_node_failures, cases[i].want_spent ? 1 : 0,
               "%s: lost nodes", name);
        is_int(config.want_nodes, cases[i].want_spent ? 3 : 0,
               "%s: wanted nodes", name);
        is_int((intmax_t)config.ran_ms, cases[i].want_spent ? 3500 : 0,
               "%s: spent time", name);
        is_str(config.resume_path, cases[i].want_path, "%s: checkpoint", name);
        is_int(config.resume_step, cases[i].want_step, "%s: its step", name);
        ok(!config.resume_path[0] || config.avoid.n_deaths == 1,
           "%s: who has died of it", name);
        is_str(config.excluded.n ? config.excluded.items[0] : "",
               cases[i].want_spent ? "1 a fails it fails: twice" : "", "%s: bad nodes", name);
        is_str(config.excluded.n > 1 ? config.excluded.items[1] : "",
               cases[i].want_spent ? "0 c slow it is slow" : "",
               "%s: one that had replaced another", name);
        is_int((intmax_t)config.excluded.n, cases[i].want_spent ? 2 : 0, "no other one");
        strlist_release(&config.excluded);
        run_status_destroy(s);
    }
}

/* Who may start what, and when it has had its time. */
static void test_refused(void)
{
    static const struct {
        enum status_run_state state;
        bool resumes;
        uint64_t deadline_ms;
        int want;
        const char *text;
    } cases[] = {
        {STATUS_SUSPENDED, false, JOB_OFF, -ERR_SUSPENDED, "muster resume"},
        {STATUS_SUSPENDED, true, JOB_OFF, 0, ""},
        {STATUS_STOPPED, false, JOB_OFF, 0, ""},
        {STATUS_SUCCEEDED, false, JOB_OFF, 0, ""},
        {STATUS_SUCCEEDED, true, JOB_OFF, -EEXIST, "nothing to resume"},
        {STATUS_FAILED, true, JOB_OFF, 0, ""},
        {STATUS_STOPPED, true, 60001, 0, ""},
        {STATUS_STOPPED, true, 60000, -ERR_DEADLINE, "limits.deadline is 1m"},
        {STATUS_STOPPED, false, 1000, -ERR_DEADLINE, "has run for 1m"},
        {STATUS_FAILED, true, 1000, 0, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(rundir) struct rundir *r = open_run();
        _cleanup_(run_status) struct run_status *s = run_status_create();
        _run_config_ struct run_config config = {.job = job_create()};
        struct error e = {0};
        int rc;

        s->state = cases[i].state;
        s->ran_ms = 60000;
        config.job->limits.deadline_ms = cases[i].deadline_ms;
        write_status(r, s);
        r->reopened = true;
        rc = takeup_check(r, cases[i].resumes, &e);
        rc = rc < 0 ? rc : takeup_run(r, cases[i].resumes, &config, &e);
        is_int(rc, cases[i].want, "case %zu: %s", i, e.text);
        like(e.text, cases[i].text, "which says why");
    }
}

static void test_nothing_there(void)
{
    _cleanup_(rundir) struct rundir *r = open_run();
    struct run_config config = {.first_generation = 1};
    struct error e = {0};
    char path[PATH_MAX];

    rundir_path(r, path, sizeof(path), NULL, "status.json");
    unlink(path);
    is_int(takeup_run(r, false, &config, &e), 0, "no status");
    is_int(config.first_generation, 1, "is a first life");
    fs_write_replace(path, "{", 1, NULL);
    r->reopened = false;
    is_int(takeup_run(r, false, &config, &e), 0, "a new directory is not looked at");
    r->reopened = true;
    ok(takeup_run(r, false, &config, &e) < 0, "half a status is an error");
    like(e.text, "/run: status", "that is named");
    unlink(path);
}

static void put(const struct rundir *r, const char *name)
{
    char path[PATH_MAX], *slash;

    rundir_path(r, path, sizeof(path), NULL, "%s", name);
    slash = strrchr(path, '/');
    *slash = '\0';
    fs_mkdirs(path, NULL);
    *slash = '/';
    fs_write_replace(path, "", 0, NULL);
}

/* A status that somebody has removed: numbers that were given are not given again. */
static void test_no_status(void)
{
    static const struct {
        const char *names[3];
        uint32_t want, starts;
        const char *what;
    } cases[] = {
        {{"logs/3/0/stdout", "logs/2/0/stdout", "logs/x/y"}, 4, 0, "by its logs"},
        {{"logs/3/0/stdout", "errors/12-0.json", "errors/9-1.json"}, 13, 0,
         "by error files"},
        {{"logs/3/0/stdout", "views/2.1", "views/1.7"}, 4, 2, "starts by its views"},
        {{"logs/4294967295/x", "logs/99999999999999999999/x", "logs/1073741825/x"}, 1, 0,
         "numbers that no run has"},
        {{"logs/-1/x", "errors/-1.json", "views/.1"}, 1, 0, "no numbers"},
        {{"logs/3x/y", "errors/5.json", "views/4-1"}, 1, 0, "other names"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(rundir) struct rundir *r = open_run();
        struct run_config config = {.first_generation = 1};
        struct error e = {0};

        for (size_t k = 0; k < ARRAY_SIZE(cases[i].names); k++) {
            put(r, cases[i].names[k]);
        }
        r->reopened = true;
        is_int(takeup_run(r, true, &config, &e), 0, "%s: %s", cases[i].what, e.text);
        is_int(config.first_generation, cases[i].want, "%s: the next generation",
               cases[i].what);
        is_int(config.n_starts, cases[i].starts, "%s: starts", cases[i].what);
        fs_remove_tree(r->path, NULL);
    }
}

/* Workers that print nothing have no logs. */
static void test_events(void)
{
    static const char text[] =
        "{\"v\":1,\"t\":1,\"event\":\"generation_started\",\"generation\":7}\n"
        "{\"v\":1,\"t\":2,\"event\":\"generation_started\",\"generation\":99999999999}\n"
        "{\"v\":1,\"t\":2,\"event\":\"generation_started\",\"generation\":\"8\"}\n"
        "{\"v\":1,\"t\":2,\"event\":\"generation_started\",\"generation\":-4}\n"
        "{\"v\":1,\"t\":2,\"event\":\"generation_preparing\",\"generation\":9}\n"
        "[9]\nx\n{\"v\":1,\"gener";
    _cleanup_(rundir) struct rundir *r = open_run();
    struct run_config config = {.first_generation = 1};
    char path[PATH_MAX];

    put(r, "logs/3/0/stdout");
    rundir_path(r, path, sizeof(path), NULL, "events.jsonl");
    fs_write_replace(path, text, sizeof(text) - 1, NULL);
    r->reopened = true;
    is_int(takeup_run(r, true, &config, NULL), 0, "a run with events");
    is_int(config.first_generation, 8, "goes on from the highest in them");
    fs_remove_tree(r->path, NULL);
}

static void test_no_logs(void)
{
    _cleanup_(rundir) struct rundir *r = open_run();
    struct run_config config = {.first_generation = 1};
    struct error e = {0};
    char path[PATH_MAX];

    rundir_path(r, path, sizeof(path), NULL, "logs");
    rmdir(path);
    fs_write_replace(path, "", 0, NULL);
    r->reopened = true;
    is_int(takeup_run(r, true, &config, &e), -ENOTDIR, "logs that cannot be listed");
    like(e.text, "/run/logs: Not a directory", "are an error");
    fs_remove_tree(r->path, NULL);
}

static struct run_status *running_on(const char *host, uint64_t age_ms)
{
    struct run_status *s = run_status_create();

    run_status_set_nodes(s, 1);
    str_copy(s->nodes[0].host, sizeof(s->nodes[0].host), host);
    s->state = STATUS_RUNNING;
    s->updated_ns = clock_wall_ns() - age_ms * 1000000;
    return s;
}

/* The lead on the other host, for `n` more words. */
static pid_t start_lead(const struct rundir *r, enum status_run_state last)
{
    _cleanup_(run_status) struct run_status *s = running_on("elsewhere", 0);
    pid_t pid = fork();

    if (pid == 0) {
        poll(NULL, 0, 200);
        s->state = last;
        write_status(r, s);
        run_status_destroy(s);
        _exit(0);
    }
    return pid;
}

/* Whether a run that has not ended is still alive. */
static void test_alive(void)
{
    static const struct {
        const char *host;
        uint64_t age_ms;
        enum status_run_state later; /* STATUS_N_STATES: no word comes */
        bool is_alive;
        const char *what;
    } cases[] = {
        {"elsewhere", 1000, STATUS_RUNNING, true, "a lead that says more"},
        {"elsewhere", 1000, STATUS_STOPPED, false, "one that comes to its end"},
        {"elsewhere", STATUS_STALE_MS - 500, STATUS_N_STATES, false,
         "one that says no more"},
        {"elsewhere", STATUS_STALE_MS + 1000, STATUS_N_STATES, false,
         "one that has said nothing for long"},
        {NULL, 1000, STATUS_N_STATES, false, "one of this host, where it is not"},
    };
    char own[256] = "";

    gethostname(own, sizeof(own) - 1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(rundir) struct rundir *r = open_run();
        _cleanup_(run_status) struct run_status *s = running_on(
            cases[i].host ? cases[i].host : own, cases[i].age_ms);
        struct error e = {0};
        pid_t pid;

        r->reopened = true;
        write_status(r, s);
        pid = cases[i].later == STATUS_N_STATES ? -1
                                                : start_lead(r, cases[i].later);
        is_int(takeup_check(r, false, &e), cases[i].is_alive ? -ERR_LOCKED : 0, "%s",
               cases[i].what);
        if (cases[i].is_alive) {
            like(e.text, "muster attach", "says what to do");
        }
        if (pid > 0) {
            waitpid(pid, NULL, 0);
        }
        fs_remove_tree(r->path, NULL);
    }
}

int main(void)
{
    if (!mkdtemp(dir) || chdir(dir) < 0) {
        bail_out("mkdtemp");
    }
    setenv("XDG_STATE_HOME", dir, 1);
    unsetenv("SLURM_JOB_ID");
    test_states();
    test_refused();
    test_nothing_there();
    test_no_status();
    test_events();
    test_no_logs();
    test_alive();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
