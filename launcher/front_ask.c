/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks hosts whether they can be part of an MPI world. A child does it, `muster reach`,
 * under a deadline: by ssh, or by an mpirun of its own where mpirun is what hangs. The
 * question goes to it in memory, for the key is part of it.
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/cmd_run.h"
#include "launcher/jsonw.h"
#include "launcher/slurm.h"
#include "launcher/ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    REACH_MS = 5000,
    MIN_TRY_MS = 10000, /* for an mpirun to a host, and at least ... */
    TRY_LEASES = 3,     /* ... as many leases */
    MAX_ANSWER = 1 << 20,
};

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
    _strlist_ struct strlist ssh = {0}, try = {0}, program = {0};
    struct jsonw w = jsonw_start(b);
    int rc;

    /* That of the run: agents look for it, too, where they claim a view. */
    rc = rundir_read_nonce(f->config->dir->path, nonce, e);
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
    strlist_add(&program, f->config->plan.helper);
    strlist_add(&program, "--probe");
    put_words(&w, "program", &program);
    jsonw_int(&w, "try_ms", (int64_t)try_ms(f));
    put_hosts(f, &w, "tried", true);
    jsonw_end_object(&w);
    return b->failed || ssh.failed || try.failed || program.failed
               ? error_set(e, ENOMEM, "ask hosts")
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

void front_read_answer(struct front *f)
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

int front_ask_hosts(struct front *f, struct error *e)
{
    static const char *const words[] = {"muster", "reach"};
    char path[PATH_MAX];
    _buf_ struct buf question = {0};
    _strlist_ struct strlist argv = {0}, env = {0};
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
    if (f->config->own_step) { /* an mpirun of it makes a step as any other does */
        slurm_mpirun_env(environ, f->config->plan.agents_per_host, &env);
        spec.envp = env.items;
    }
    if (argv.failed || env.failed) {
        return error_set(e, ENOMEM, "ask hosts");
    }
    log = open(f->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    spec.argv = argv.items;
    spec.stdio[0] = in;
    spec.stdio[1] = f->reach->answer;
    spec.stdio[2] = log;
    return child_spawn(f->children, &spec, front_on_asked, f, &f->reach->pid,
                       e);
}
