/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which hosts the next MPI world is made of. Those of living agents are in it: it
 * is made for them. Any other is asked first, for mpirun fails as a whole with one
 * that does not answer: `muster reach` does it, under a deadline, while this loop
 * goes on. One that answers gets a new agent; Slurm's are left out, for Slurm has
 * given them up, too. front_grow.c asks in between.
 *
 * A host that does not answer, or does and gets no agent, is asked again after a
 * pause, which doubles each time. Hosts at which mpirun hangs are asked by an mpirun
 * (front_hung.c).
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/cmd_run.h"
#include "launcher/jsonw.h"
#include "launcher/ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    REACH_MS = 5000,
    FRESH_MS = 15000,      /* for so long an answer counts */
    FIRST_PAUSE_MS = 5000, /* between two questions to a host ... */
    LAST_PAUSE_MS = 60000, /* ... at most */
    MIN_TRY_MS = 10000,    /* for an mpirun to a host, and at least ... */
    TRY_LEASES = 3,        /* ... as many leases */
    MAX_ANSWER = 1 << 20,
    MAX_NAMED = 8, /* hosts in one message */
};

/* --- who is lost --- */

static unsigned agents_of(const struct mpirun_plan *plan, size_t host)
{
    unsigned before = (unsigned)host * plan->agents_per_host;
    unsigned left = plan->n_agents > before ? plan->n_agents - before : 0;

    return left < plan->agents_per_host ? left : plan->agents_per_host;
}

static bool is_same_host(const char *given, const char *own)
{
    size_t n = strcspn(given, ".");

    return strcmp(given, own) == 0 ||
           (strncmp(given, own, n) == 0 && own[n] == '\0');
}

/* Agents of the first world are in the order of its hosts. */
static const char *name_by_place(const struct front *f,
                                 const struct run_status *s, size_t host)
{
    const struct reach_host *hosts = f->reach->hosts;
    size_t at = 0;

    for (size_t i = 0; i < host; i++) {
        at += hosts[i].came_later ? 0 : agents_of(&f->config->plan, i);
    }
    return !hosts[host].came_later && at < s->n_nodes ? s->nodes[at].host
                                                      : NULL;
}

/* Later agents have the name that earlier ones had. */
const char *front_host_name(const struct front *f, const struct run_status *s,
                            size_t host)
{
    const char *given = f->config->plan.hosts->items[host].name;
    const struct reach_host *h = &f->reach->hosts[host];

    if (h->name[0]) {
        return h->name;
    }
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (is_same_host(given, s->nodes[i].host)) {
            return s->nodes[i].host;
        }
    }
    return name_by_place(f, s, host);
}

/* Whether all its agents live; `is_of_use`: and take part, or may. */
static bool is_there(const struct front *f, size_t host, bool is_of_use)
{
    const struct run_status *s = screen_last(f->screen);
    const char *name = s ? front_host_name(f, s, host) : NULL;
    unsigned n_alive = 0;

    if (!s || !s->n_nodes) {
        return !f->reach->hosts[host].came_later;
    }
    for (size_t i = 0; name && i < s->n_nodes; i++) {
        enum status_node_state state = s->nodes[i].state;

        n_alive += strcmp(s->nodes[i].host, name) == 0 &&
                   state != STATUS_NODE_LOST && state != STATUS_NODE_LEFT &&
                   (!is_of_use || state != STATUS_NODE_EXCLUDED);
    }
    return n_alive >= agents_of(&f->config->plan, host);
}

bool front_is_newcomer(const struct front *f, size_t host)
{
    return !is_there(f, host, false) || front_host_hangs(f, host);
}

size_t front_count_hosts(struct front *f)
{
    size_t n = 0;

    for (size_t i = 0; i < f->config->plan.hosts->n; i++) {
        n += is_there(f, i, true);
    }
    return n;
}

/* Nobody has to ask this machine: that it asks is the answer. */
static void answer_by_itself(struct reach_host *h, uint64_t now_ms)
{
    h->is_out = h->is_asked = false;
    h->answered_ms = now_ms;
}

/* Leaves out who is not there, but for those that have just answered. The rest of
 * them that may be asked now; how many these are. */
static size_t find_lost(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    uint64_t now = front_now_ms(f);
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        h->is_asked = false;
        h->is_tried = front_host_hangs(f, i);
        if (!front_is_newcomer(f, i)) {
            h->is_out = false;
            h->again_ms = h->pause_ms = h->answered_ms = 0;
        } else if (!h->answered_ms || now - h->answered_ms > FRESH_MS) {
            h->is_out = true;
            h->is_asked = now >= h->again_ms;
            if (h->is_asked && hosts->items[i].is_local) {
                answer_by_itself(h, now);
            }
            n += h->is_asked;
        }
    }
    return n;
}

/* --- they are asked --- */

static void put_hex(struct jsonw *w, const char *name, const uint8_t *bytes,
                    size_t n)
{
    char hex[2 * 64 + 1];

    sodium_bin2hex(hex, sizeof(hex), bytes, n);
    jsonw_str(w, name, hex);
    sodium_memzero(hex, sizeof(hex));
}

static void put_words(struct jsonw *w, const char *name, const struct strlist *words)
{
    jsonw_array(w, name);
    for (size_t i = 0; i < words->n; i++) {
        jsonw_str(w, NULL, words->items[i]);
    }
    jsonw_end_array(w);
}

/* Those that are asked by ssh, or are tried by mpirun. */
static void put_hosts(const struct front *f, struct jsonw *w, const char *name,
                      bool is_tried)
{
    const struct host_list *hosts = f->config->plan.hosts;

    jsonw_array(w, name);
    for (size_t i = 0; i < hosts->n; i++) {
        if (f->reach->hosts[i].is_asked && f->reach->hosts[i].is_tried == is_tried) {
            jsonw_str(w, NULL, hosts->items[i].name);
        }
    }
    jsonw_end_array(w);
}

static uint64_t try_ms(const struct front *f)
{
    uint64_t ms = TRY_LEASES * f->config->run->job->heartbeat_timeout_ms;

    return ms > MIN_TRY_MS ? ms : MIN_TRY_MS;
}

static int write_question(const struct front *f, struct buf *b,
                          struct error *e)
{
    uint8_t nonce[RUNDIR_NONCE_BYTES];
    _strlist_ struct strlist ssh = {0}, try = {0};
    struct jsonw w = jsonw_start(b);
    int rc;

    randombytes_buf(nonce, sizeof(nonce));
    rc = rundir_write_nonce(f->config->dir->path, nonce, e);
    if (rc < 0) {
        return rc;
    }
    ssh_argv(f->config->plan.ssh, &ssh);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "run_id", f->config->dir->id);
    jsonw_str(&w, "run_dir", f->config->dir->path);
    put_hex(&w, "nonce", nonce, sizeof(nonce));
    put_hex(&w, "key", f->config->key, CHANNEL_KEY_BYTES);
    jsonw_int(&w, "timeout_ms", REACH_MS);
    put_words(&w, "ssh", &ssh);
    put_hosts(f, &w, "hosts", false);
    mpirun_try_argv(f->config->mpirun, &f->config->plan, &try);
    put_words(&w, "try", &try);
    jsonw_int(&w, "try_ms", (int64_t)try_ms(f));
    put_hosts(f, &w, "tried", true);
    jsonw_end_object(&w);
    return b->failed || ssh.failed || try.failed ? error_set(e, ENOMEM, "ask hosts")
                                                 : 0;
}

/* One line of the answer: the host, and what it calls itself. */
static void take_line(struct front *f, char *line)
{
    const struct host_list *hosts = f->config->plan.hosts;
    const char *name = strsep(&line, " ");

    for (size_t i = 0; name[0] && i < hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        if (strcmp(hosts->items[i].name, name) == 0) {
            h->is_out = h->is_asked = false;
            h->answered_ms = front_now_ms(f);
            if (!h->is_tried) {
                str_copy(h->name, sizeof(h->name), line ? line : "");
            }
        }
    }
}

/* Before the next question to it. */
static void pause_host(struct front *f, struct reach_host *h)
{
    h->pause_ms = !h->pause_ms ? FIRST_PAUSE_MS
                  : h->pause_ms < LAST_PAUSE_MS / 2 ? 2 * h->pause_ms
                                                    : LAST_PAUSE_MS;
    h->again_ms = front_now_ms(f) + h->pause_ms;
}

static void read_answer(struct front *f)
{
    struct front_reach *r = f->reach;
    _free_ char *text = calloc(1, MAX_ANSWER + 1);
    char *rest = text, *line;

    if (text && pread(r->answer, text, MAX_ANSWER, 0) >= 0) {
        while ((line = strsep(&rest, "\n"))) {
            take_line(f, line);
        }
    }
}

/* Those that have not answered. */
static void pause_silent(struct front *f)
{
    for (size_t i = 0; i < f->config->plan.hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        if (h->is_asked) {
            h->is_asked = false;
            pause_host(f, h);
        }
    }
}

static void tell_left_out(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    _buf_ struct buf names = {0};
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        if (f->reach->hosts[i].is_out && n++ < MAX_NAMED) {
            buf_printf(&names, "%s%s", names.len ? ", " : "",
                       hosts->items[i].name);
        }
    }
    if (n) {
        screen_note(f->screen, "the new MPI world is made without %s%s",
                    buf_str(&names), n > MAX_NAMED ? " and others" : "");
    }
}

/* Those that come in with this world have to show up: until then they are not
 * tried again. */
static void await_newcomers(struct front *f)
{
    for (size_t i = 0; i < f->config->plan.hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        if (!h->is_out && front_is_newcomer(f, i)) {
            h->answered_ms = 0;
            h->pause_ms = LAST_PAUSE_MS / 2;
            pause_host(f, h);
        }
    }
}

static void go_on(struct front *f)
{
    tell_left_out(f);
    await_newcomers(f);
    front_repeat_mpirun(f);
}

static void on_reach_exit(void *arg, const struct child_exit *how)
{
    struct front *f = arg;

    (void)how;
    f->reach->pid = 0;
    if (f->phase == FRONT_OVER) {
        front_finish_if_done(f);
        return;
    }
    read_answer(f);
    if (f->reach->is_trial) {
        front_judge_trial(f);
        return;
    }
    pause_silent(f);
    if (f->reach->is_for_world) {
        go_on(f);
    } else {
        front_take_newcomers(f);
    }
}

static int spawn_reach(struct front *f, struct error *e)
{
    static const char *const words[] = {"muster", "reach"};
    char path[PATH_MAX];
    _buf_ struct buf question = {0};
    _strlist_ struct strlist argv = {0};
    _close_ int in = memfd_create("muster-question", MFD_CLOEXEC);
    _close_ int log = -1;
    struct child_spec spec = {.path = path, .envp = environ,
                              .new_session = true};
    int rc;

    close_fd(&f->reach->answer);
    f->reach->answer = memfd_create("muster-answer", MFD_CLOEXEC);
    if (in < 0 || f->reach->answer < 0) {
        return error_set(e, errno, "make a memory file");
    }
    rc = write_question(f, &question, e);
    rc = rc < 0 ? rc : fs_write_all(in, question.data, question.len);
    if (question.data) {
        sodium_memzero(question.data, question.len);
    }
    rc = rc < 0 ? rc : fs_program(path, sizeof(path), e);
    if (rc < 0 || lseek(in, 0, SEEK_SET) < 0) {
        return rc < 0 ? rc : -errno;
    }
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        strlist_add(&argv, words[i]);
    }
    log = open(f->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    spec.argv = argv.items;
    spec.stdio[0] = in;
    spec.stdio[1] = f->reach->answer;
    spec.stdio[2] = log;
    return child_spawn(f->children, &spec, on_reach_exit, f, &f->reach->pid,
                       e);
}

int front_know_hosts(struct front *f, const bool *absent)
{
    size_t n = f->config->plan.hosts ? f->config->plan.hosts->n : 0;

    f->reach = calloc(1, sizeof(*f->reach));
    if (f->reach) {
        f->reach->answer = -1;
        f->reach->hosts = calloc(n + 1, sizeof(*f->reach->hosts));
    }
    if (!f->reach || !f->reach->hosts) {
        return -ENOMEM;
    }
    for (size_t i = 0; absent && i < n; i++) {
        if (absent[i]) {
            f->reach->hosts[i].is_out = f->reach->hosts[i].came_later = true;
            pause_host(f, &f->reach->hosts[i]);
        }
    }
    return 0;
}

bool front_look_for_hosts(struct front *f)
{
    struct error e = {0};

    if (f->reach->pid) {
        return false;
    }
    f->reach->is_for_world = false;
    if (find_lost(f) > 0) {
        return spawn_reach(f, &e) == 0;
    }
    if (front_has_newcomers(f, NULL)) {
        front_take_newcomers(f);
    }
    return false;
}

bool front_has_newcomers(struct front *f, struct buf *names)
{
    const struct host_list *hosts = f->config->plan.hosts;
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        const struct reach_host *h = &f->reach->hosts[i];

        if (!h->is_out && h->answered_ms && front_is_newcomer(f, i) &&
            n++ < MAX_NAMED && names) {
            buf_printf(names, "%s%s", names->len ? ", " : "",
                       hosts->items[i].name);
        }
    }
    return n > 0;
}

void front_choose_hosts(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    struct error e = {0};

    if (f->reach->pid) {
        f->reach->is_for_world = true; /* go_on() comes */
        return;
    }
    if (hosts_all_local(hosts)) {
        front_repeat_mpirun(f);
    } else if (front_choose_suspects(f)) {
        f->reach->is_trial = spawn_reach(f, &e) == 0;
        f->repeat_at_ms = f->reach->is_trial ? 0 : front_now_ms(f);
    } else if (find_lost(f) == 0 || hosts->source == HOSTS_SLURM) {
        go_on(f);
    } else {
        f->reach->is_for_world = true;
        if (spawn_reach(f, &e) < 0) {
            screen_note(f->screen, "lost hosts are not asked whether they are "
                        "back: %s", e.text);
            go_on(f);
        }
    }
}

/* --- those that are left --- */

int front_plan_world(struct front *f, struct mpirun_plan *plan,
                     struct error *e)
{
    const struct host_list *all = f->config->plan.hosts;
    struct front_reach *r = f->reach;

    if (hosts_all_local(all)) {
        return 0;
    }
    host_list_release(&r->world);
    r->world = (struct host_list){.source = all->source};
    r->world.items = calloc(all->n + 1, sizeof(*r->world.items));
    if (!r->world.items) {
        return error_set(e, ENOMEM, "list hosts");
    }
    plan->n_agents = 0;
    for (size_t i = 0; i < all->n; i++) {
        if (!r->hosts[i].is_out) {
            r->world.items[r->world.n++] = all->items[i];
            plan->n_agents += agents_of(&f->config->plan, i);
        }
    }
    plan->hosts = &r->world;
    r->n_agents = plan->n_agents;
    return plan->n_agents
               ? run_write_hostfile(f->config->dir, plan, r->path,
                                    sizeof(r->path), e)
               : error_text(e, EHOSTDOWN, "no host is left");
}

bool front_reach_is_gone(struct front *f)
{
    if (!f->reach || !f->reach->pid) {
        return true;
    }
    child_kill(f->children, f->reach->pid, SIGKILL);
    return false;
}

void front_forget_reach(struct front *f)
{
    struct front_reach *r = f->reach;

    if (r) {
        close_fd(&r->answer);
        free(r->hosts);
        host_list_release(&r->world);
        free(r);
        f->reach = NULL;
    }
}
