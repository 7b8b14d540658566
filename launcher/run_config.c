/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/run_config.h"

#include "base/cleanup.h"
#include "base/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FORMAT = 9,
    MAX_JOB_BYTES = 4 * 1024 * 1024,
    MAX_ENV = 16384,
    MAX_HOSTS = 65536,
    MAX_ENV_BYTES = 256 * 1024,
};

int run_config_capture(struct run_config *c, char *const *env,
                       struct error *e)
{
    mode_t mask = umask(077);

    umask(mask);
    c->umask = mask;
    strlist_add_all(&c->env, env);
    if (c->env.failed) {
        return error_set(e, ENOMEM, "take the environment");
    }
    if (!getcwd(c->cwd, sizeof(c->cwd))) {
        return error_set(e, errno, "find the working directory");
    }
    return 0;
}

static void put_list(const struct strlist *l, struct buf *b)
{
    wire_put_u32(b, (uint32_t)l->n);
    for (size_t i = 0; i < l->n; i++) {
        wire_put_str(b, l->items[i]);
    }
}

void run_config_encode(const struct run_config *c, struct buf *b)
{
    _free_ char *job = job_encode(c->job);

    b->failed = b->failed || !job;
    wire_put_u8(b, FORMAT);
    wire_put_str(b, job);
    put_list(&c->env, b);
    wire_put_str(b, c->cwd);
    wire_put_u32(b, c->umask);
    wire_put_u8(b, c->by_hand);
    wire_put_u64(b, c->detach_ms);
    wire_put_str(b, c->resume_path);
    wire_put_i64(b, c->resume_step);
    avoid_put(b, &c->avoid);
    wire_put_u32(b, c->first_generation);
    wire_put_u32(b, c->n_restarts);
    wire_put_u32(b, c->n_starts);
    wire_put_u32(b, c->n_node_failures);
    wire_put_u32(b, c->want_nodes);
    wire_put_u32(b, c->n_nodes);
    wire_put_u64(b, c->ran_ms);
    wire_put_bytes(b, c->nonce, sizeof(c->nonce));
    put_list(&c->mpirun, b);
    put_list(&c->hosts, b);
    put_list(&c->excluded, b);
    put_list(&c->slots, b);
}

static void get_list(struct wire_reader *r, uint32_t most, struct strlist *to)
{
    uint32_t n = wire_get_u32(r);

    r->bad = r->bad || n > most;
    for (uint32_t i = 0; !r->bad && i < n; i++) {
        strlist_take(to, wire_dup_str(r, MAX_ENV_BYTES));
    }
}

static void get_nonce(struct wire_reader *r, uint8_t *to)
{
    size_t len = 0;
    const void *nonce = wire_get_bytes(r, RUNDIR_NONCE_BYTES, &len);

    if (!nonce || len != RUNDIR_NONCE_BYTES) {
        r->bad = true;
        return;
    }
    memcpy(to, nonce, len);
}

int run_config_decode(const void *data, size_t len, struct run_config *ret,
                      struct error *e)
{
    struct wire_reader r = wire_reader(data, len);
    _run_config_ struct run_config c = {0};
    _free_ char *job = NULL;
    int rc;

    if (wire_get_u8(&r) != FORMAT) {
        return error_text(e, ERR_FORMAT, "a run configuration of another "
                          "muster");
    }
    job = wire_dup_str(&r, MAX_JOB_BYTES);
    get_list(&r, MAX_ENV, &c.env);
    wire_get_str(&r, c.cwd, sizeof(c.cwd));
    c.umask = wire_get_u32(&r);
    c.by_hand = wire_get_u8(&r);
    c.detach_ms = wire_get_u64(&r);
    wire_get_str(&r, c.resume_path, sizeof(c.resume_path));
    c.resume_step = wire_get_i64(&r);
    avoid_get(&r, &c.avoid);
    c.first_generation = wire_get_u32(&r);
    c.n_restarts = wire_get_u32(&r);
    c.n_starts = wire_get_u32(&r);
    c.n_node_failures = wire_get_u32(&r);
    c.want_nodes = wire_get_u32(&r);
    c.n_nodes = wire_get_u32(&r);
    c.ran_ms = wire_get_u64(&r);
    get_nonce(&r, c.nonce);
    get_list(&r, MAX_ENV, &c.mpirun);
    get_list(&r, MAX_HOSTS, &c.hosts);
    get_list(&r, MAX_HOSTS, &c.excluded);
    get_list(&r, MAX_HOSTS, &c.slots);
    if (!wire_done(&r) || !job || c.env.failed || c.mpirun.failed ||
        c.hosts.failed || c.excluded.failed || c.slots.failed) {
        return error_text(e, ERR_FORMAT, "a run configuration that does not "
                          "parse");
    }
    rc = job_decode(job, strlen(job), &c.job, e);
    if (rc < 0) {
        return rc;
    }
    *ret = c;
    c = (struct run_config){0};
    return 0;
}

void run_config_release(struct run_config *c)
{
    job_destroy(c->job);
    strlist_release(&c->env);
    strlist_release(&c->mpirun);
    strlist_release(&c->hosts);
    strlist_release(&c->excluded);
    strlist_release(&c->slots);
    *c = (struct run_config){0};
}
