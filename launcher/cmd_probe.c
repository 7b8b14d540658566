/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster probe: the far end of launcher/probe.h and launcher/node_view.h. Reads
 * one JSON object from stdin, answers with one line on stdout.
 */
#include <config.h>

#include "base/build.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/key.h"
#include "base/machine.h"
#include "base/str.h"
#include "launcher/commands.h"
#include "launcher/gpus.h"
#include "launcher/jsonw.h"
#include "launcher/node_facts.h"
#include "launcher/rundir.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

/* Puts the key where muster-mpi looks for it when there is no shared run
 * directory. */
static int install_key(const char *run_id, const char *hex, struct error *e)
{
    char base[PATH_MAX], path[PATH_MAX];
    uint8_t key[32];
    size_t len;
    int rc;

    if (sodium_hex2bin(key, sizeof(key), hex, strlen(hex), NULL, &len, NULL) <
            0 || len != sizeof(key) || !run_id[0] || strchr(run_id, '/') ||
        run_id[0] == '.') {
        return error_text(e, ERR_FORMAT, "the question does not parse");
    }
    if ((rc = fs_runtime_dir(base, sizeof(base), e)) < 0 ||
        (rc = fs_path(path, sizeof(path), e, "%s/%s", base, run_id)) < 0 ||
        (rc = fs_mkdirs(path, e)) < 0 ||
        (rc = fs_path(path, sizeof(path), e, "%s/%s/key", base, run_id)) < 0) {
        return rc;
    }
    rc = fs_write_replace(path, key, sizeof(key), e);
    sodium_memzero(key, sizeof(key));
    return rc;
}

static int answer(const json_t *question, struct jsonw *w, struct error *e)
{
    uint8_t nonce[RUNDIR_NONCE_BYTES] = {0};
    const char *hex = text_of(question, "nonce");
    char host[256] = "", id[MACHINE_ID_BYTES];
    int shared, rc = 0;

    if (sodium_hex2bin(nonce, sizeof(nonce), hex, strlen(hex), NULL, NULL,
                       NULL) < 0) {
        return error_text(e, ERR_FORMAT, "the question does not parse");
    }
    shared = rundir_check_nonce(text_of(question, "run_dir"), nonce, NULL);
    if (shared != 1) {
        rc = install_key(text_of(question, "run_id"),
                         text_of(question, "key"), e);
    }
    if (rc < 0) {
        return rc;
    }
    gethostname(host, sizeof(host) - 1);
    machine_id(id, sizeof(id));
    jsonw_str(w, "version", build_name());
    jsonw_str(w, "host", host);
    jsonw_str(w, "id", id);
    jsonw_bool(w, "shared", shared == 1);
    return 0;
}

/* A line like "MemTotal:  16316412 kB". */
static uint64_t meminfo(const char *text, const char *name)
{
    const char *at = text ? strstr(text, name) : NULL;

    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

static void add_gpus(struct jsonw *w)
{
    _free_ struct gpus *gpus = calloc(1, sizeof(*gpus));

    if (!gpus) {
        return;
    }
    gpus_read(gpus);
    jsonw_bool(w, "gpus_detailed", gpus->is_detailed);
    jsonw_array(w, "gpus");
    for (size_t i = 0; i < gpus->n; i++) {
        const struct gpu *g = &gpus->items[i];

        jsonw_object(w, NULL);
        jsonw_int(w, "index", g->index);
        jsonw_opt_str(w, "uuid", g->uuid);
        jsonw_opt_str(w, "name", g->name);
        jsonw_int(w, "used", (int64_t)g->used_bytes);
        jsonw_int(w, "total", (int64_t)g->total_bytes);
        jsonw_array(w, "pids");
        for (size_t k = 0; k < g->n_pids; k++) {
            jsonw_int(w, NULL, g->pids[k]);
        }
        jsonw_end_array(w);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

/* For `muster nodes`: what is there, and how busy it is. */
static void answer_node(struct jsonw *w)
{
    _free_ char *memory = NULL;
    const char *node = getenv("SLURMD_NODENAME");
    struct procs_node facts;
    double load = 0;
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    fs_read("/proc/meminfo", 64 << 10, &memory, NULL, NULL);
    node_facts(NULL, &facts);
    jsonw_str(w, "version", build_name());
    jsonw_str(w, "host", host);
    jsonw_opt_str(w, "slurm_node", node ? node : "");
    jsonw_int(w, "cpus", procs_cpus(&facts));
    if (getloadavg(&load, 1) == 1) {
        jsonw_num(w, "load", load);
    }
    jsonw_int(w, "memory", (int64_t)meminfo(memory, "MemTotal:"));
    jsonw_int(w, "memory_free", (int64_t)meminfo(memory, "MemAvailable:"));
    add_gpus(w);
}

int cmd_probe(int argc, char **argv)
{
    json_t *question = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, NULL);
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);
    struct error e = {0};

    (void)argc;
    (void)argv;
    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", 1);
    if (!question) {
        jsonw_str(&w, "error", "the question does not parse");
    } else if (strcmp(text_of(question, "want"), "node") == 0) {
        answer_node(&w);
    } else if (sodium_init() < 0 || answer(question, &w, &e) < 0) {
        jsonw_str(&w, "error", e.text);
    }
    jsonw_end_object(&w);
    json_decref(question);
    puts(buf_str(&b));
    return EXIT_OK;
}
