/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which hosts the next MPI world is made of. Those of living agents are in it: it
 * is made for them. A host that has lost an agent is asked first, for mpirun fails
 * as a whole with one that does not answer: `muster reach` does it, under a
 * deadline, while this loop goes on. One that answers gets a new agent; Slurm's
 * are left out, for Slurm has given them up, too.
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
    MAX_ANSWER = 1 << 20,
    MAX_NAMED = 8, /* hosts in one message */
};

struct front_reach {
    pid_t pid;  /* of muster reach; 0: none */
    int answer; /* what it has printed */
    bool *out;  /* by host: not in the next world */
    bool any_out;
    char path[PATH_MAX]; /* of the list for mpirun */
    struct host_list hosts;
};

/* --- who is lost --- */

static unsigned agents_of(const struct mpirun_plan *plan, size_t host)
{
    unsigned before = (unsigned)host * plan->agents_per_host;
    unsigned left = plan->n_agents > before ? plan->n_agents - before : 0;

    return left < plan->agents_per_host ? left : plan->agents_per_host;
}

/* The first agents of the run are in the order of the hosts, later ones have the
 * name that theirs had. */
static bool has_lost_agent(const struct front *f, size_t host)
{
    const struct run_status *s = screen_last(f->screen);
    const struct mpirun_plan *plan = &f->config->plan;
    size_t first = host * plan->agents_per_host;
    unsigned n_alive = 0;

    if (!s || first >= s->n_nodes) {
        return false;
    }
    for (size_t i = 0; i < s->n_nodes; i++) {
        n_alive += strcmp(s->nodes[i].host, s->nodes[first].host) == 0 &&
                   s->nodes[i].state != STATUS_NODE_LOST &&
                   s->nodes[i].state != STATUS_NODE_LEFT;
    }
    return n_alive < agents_of(plan, host);
}

static size_t find_lost(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        f->reach->out[i] = has_lost_agent(f, i);
        n += f->reach->out[i];
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

static int write_question(const struct front *f, struct buf *b,
                          struct error *e)
{
    const struct host_list *hosts = f->config->plan.hosts;
    uint8_t nonce[RUNDIR_NONCE_BYTES];
    _strlist_ struct strlist ssh = {0};
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
    jsonw_array(&w, "ssh");
    for (size_t i = 0; i < ssh.n; i++) {
        jsonw_str(&w, NULL, ssh.items[i]);
    }
    jsonw_end_array(&w);
    jsonw_array(&w, "hosts");
    for (size_t i = 0; i < hosts->n; i++) {
        if (f->reach->out[i] && !hosts->items[i].is_local) {
            jsonw_str(&w, NULL, hosts->items[i].name);
        }
    }
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    return b->failed || ssh.failed ? error_set(e, ENOMEM, "ask hosts") : 0;
}

static void read_answer(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    struct front_reach *r = f->reach;
    _free_ char *text = calloc(1, MAX_ANSWER + 1);
    char *rest = text, *name;

    if (!text || pread(r->answer, text, MAX_ANSWER, 0) < 0) {
        return;
    }
    while ((name = strsep(&rest, "\n"))) {
        for (size_t i = 0; name[0] && i < hosts->n; i++) {
            if (strcmp(hosts->items[i].name, name) == 0) {
                r->out[i] = false;
            }
        }
    }
}

static void tell_left_out(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    _buf_ struct buf names = {0};
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        if (f->reach->out[i] && n++ < MAX_NAMED) {
            buf_printf(&names, "%s%s", names.len ? ", " : "",
                       hosts->items[i].name);
        }
    }
    f->reach->any_out = n > 0;
    if (n) {
        screen_note(f->screen, "the new MPI world is made without %s%s",
                    buf_str(&names), n > MAX_NAMED ? " and others" : "");
    }
}

static void go_on(struct front *f)
{
    tell_left_out(f);
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
    go_on(f);
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

void front_choose_hosts(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    struct error e = {0};

    if (!f->reach) {
        f->reach = calloc(1, sizeof(*f->reach));
        if (f->reach) {
            f->reach->answer = -1;
            f->reach->out = calloc(hosts->n + 1, sizeof(bool));
        }
    }
    if (!f->reach || !f->reach->out) {
        front_repeat_mpirun(f);
        return;
    }
    if (f->reach->pid) {
        return; /* go_on() comes */
    }
    if (hosts_all_local(hosts)) {
        front_repeat_mpirun(f);
    } else if (find_lost(f) == 0 || hosts->source == HOSTS_SLURM) {
        go_on(f);
    } else if (spawn_reach(f, &e) < 0) {
        screen_note(f->screen, "lost hosts are not asked whether they are "
                    "back: %s", e.text);
        go_on(f);
    }
}

/* --- those that are left --- */

int front_plan_world(struct front *f, struct mpirun_plan *plan,
                     struct error *e)
{
    const struct host_list *all = f->config->plan.hosts;
    struct front_reach *r = f->reach;

    if (!r || !r->out || hosts_all_local(all)) {
        return 0;
    }
    host_list_release(&r->hosts);
    r->hosts = (struct host_list){.source = all->source};
    r->hosts.items = calloc(all->n + 1, sizeof(*r->hosts.items));
    if (!r->hosts.items) {
        return error_set(e, ENOMEM, "list hosts");
    }
    plan->n_agents = 0;
    for (size_t i = 0; i < all->n; i++) {
        if (!r->out[i]) {
            r->hosts.items[r->hosts.n++] = all->items[i];
            plan->n_agents += agents_of(&f->config->plan, i);
        }
    }
    plan->hosts = &r->hosts;
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
        free(r->out);
        host_list_release(&r->hosts);
        free(r);
        f->reach = NULL;
    }
}
