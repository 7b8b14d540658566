/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What muster shell is told of a worker, to be in its place: where it started and
 * with what environment, as it was given; limits and binding can be seen from
 * outside, by its pid. What would make a process count as the worker, or as
 * something that it left behind, is not told.
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/jsonw.h"
#include "launcher/seat.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The marks by which leftovers are swept, the worker's own line to its agent, and
 * the file in which it tells that it has failed. */
static bool is_its_own(const char *entry)
{
    static const char *const names[] = {
        "MUSTER_AGENT=", WORKERS_MARK "=", SEAT_MARK "=", "MUSTER_SOCKET=",
        "TORCHELASTIC_ERROR_FILE=",
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (str_starts(entry, names[i])) {
            return true;
        }
    }
    return false;
}

/* Any bytes, as JSON takes them. */
static int put_bytes(struct jsonw *reply, const char *key, const void *data,
                     size_t len, struct error *e)
{
    size_t size = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
    _free_ char *text = malloc(size);

    if (!text) {
        return error_set(e, ENOMEM, "describe a worker");
    }
    sodium_bin2base64(text, size, data, len, sodium_base64_VARIANT_ORIGINAL);
    jsonw_str(reply, key, text);
    return 0;
}

static int put_env(struct jsonw *reply, const struct strlist *env,
                   struct error *e)
{
    _buf_ struct buf all = {0};

    for (size_t i = 0; i < env->n; i++) {
        if (!is_its_own(env->items[i])) {
            buf_append(&all, env->items[i], strlen(env->items[i]) + 1);
        }
    }
    return all.failed ? error_set(e, ENOMEM, "describe a worker")
                      : put_bytes(reply, "env", all.data, all.len, e);
}

int crew_shell(const struct agent *a, int64_t rank, struct jsonw *reply,
               struct error *e)
{
    const struct crew *c = a->crew;
    mode_t mask = umask(077);
    const char *cwd;
    uint32_t local;
    pid_t pid;
    int rc;

    umask(mask);
    if (!c || rank < c->layout.first_rank ||
        rank >= (int64_t)c->layout.first_rank + c->layout.n_local) {
        return error_text(e, ENOENT, "no worker %lld runs here now",
                          (long long)rank);
    }
    local = (uint32_t)rank - c->layout.first_rank;
    pid = c->workers ? worker_pid(c->workers, local) : -1;
    if (pid <= 0) {
        return error_text(e, ESRCH, "worker %lld has ended", (long long)rank);
    }
    cwd = outfit_cwd(a->config.job, a->config.cwd);
    jsonw_int(reply, "pid", pid);
    jsonw_int(reply, "generation", c->generation);
    jsonw_int(reply, "umask", mask);
    rc = put_bytes(reply, "cwd", cwd, strlen(cwd), e);
    return rc < 0 ? rc : put_env(reply, &c->list[local].outfit.env, e);
}
