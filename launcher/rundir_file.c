/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rundir_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RUN_JSON = 65536 };

bool run_file_is_word(const char *s, size_t size)
{
    return s[0] && s[0] != '.' && s[0] != '-' && strlen(s) < size &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "0123456789._-") == strlen(s);
}

/* Slurm's own words, or NULL outside of a job. */
const char *rundir_slurm_job(void)
{
    const char *id = getenv("SLURM_JOB_ID");

    return id && id[0] && strlen(id) < 20 &&
           strspn(id, "0123456789") == strlen(id) ? id : NULL;
}

int64_t rundir_slurm_restart(void)
{
    const char *s = getenv("SLURM_RESTART_COUNT");
    int64_t n = 0;

    if (!rundir_slurm_job()) {
        return -1;
    }
    return s && str_to_i64(s, &n) == 0 ? n : 0;
}

static int parse_run_file(const char *path, const json_t *root,
                          struct run_file *f, struct error *e)
{
    const json_t *version = json_object_get(root, "v");
    const char *id = json_string_value(json_object_get(root, "id"));
    const char *name = json_string_value(json_object_get(root, "name"));
    const json_t *restart = json_object_get(root, "slurm_restart");

    if (!json_is_integer(version) || json_integer_value(version) < 1) {
        return error_text(e, ERR_FORMAT, "%s: expected a format version 'v'",
                          path);
    }
    if (json_integer_value(version) > RUNDIR_FORMAT) {
        return error_text(e, ERR_VERSION, "%s was written by a newer muster "
                          "(format %lld, this one knows %d): use that version",
                          path, json_integer_value(version), RUNDIR_FORMAT);
    }
    if (!id || !run_file_is_word(id, sizeof(f->id)) || !name ||
        !run_file_is_word(name, sizeof(f->name))) {
        return error_text(e, ERR_FORMAT, "%s: expected a run id and a name",
                          path);
    }
    str_copy(f->id, sizeof(f->id), id);
    str_copy(f->name, sizeof(f->name), name);
    f->created_ns = 0;
    jsonw_read_time(json_object_get(root, "created"), &f->created_ns);
    f->slurm_restart = json_is_integer(restart) ? json_integer_value(restart)
                                                : -1;
    return 0;
}

int run_file_read(const char *dir, struct run_file *f, struct error *e)
{
    char path[PATH_MAX];
    _free_ char *text = NULL;
    json_error_t je;
    json_t *root;
    size_t len;
    int rc = fs_path(path, sizeof(path), e, "%s/run.json", dir);

    if (rc == 0) {
        rc = fs_read_regular(path, MAX_RUN_JSON, &text, &len, e);
    }
    if (rc == -ENOENT && access(dir, F_OK) == 0) {
        return error_text(e, ERR_FORMAT, "%s is no run directory: it has no "
                          "run.json", dir);
    }
    if (rc < 0) {
        return rc;
    }
    root = json_loadb(text, len, 0, &je);
    if (!json_is_object(root)) {
        json_decref(root);
        return error_text(e, ERR_FORMAT, "%s: expected a JSON object", path);
    }
    rc = parse_run_file(path, root, f, e);
    json_decref(root);
    return rc;
}

int run_file_write(const struct rundir *r, struct error *e)
{
    char path[PATH_MAX];
    _buf_ struct buf text = {0};
    struct jsonw w = jsonw_start(&text);
    int rc = rundir_path(r, path, sizeof(path), e, "run.json");

    if (rc < 0) {
        return rc;
    }
    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", RUNDIR_FORMAT);
    jsonw_str(&w, "id", r->id);
    jsonw_str(&w, "name", r->name);
    jsonw_time(&w, "created", r->created_ns);
    jsonw_str(&w, "muster", PACKAGE_VERSION);
    if (rundir_slurm_job()) {
        jsonw_str(&w, "slurm_job", rundir_slurm_job());
        jsonw_int(&w, "slurm_restart", rundir_slurm_restart());
    }
    jsonw_end_object(&w);
    buf_putc(&text, '\n');
    if (text.failed) {
        return error_set(e, ENOMEM, "write %s", path);
    }
    return r->reopened ? fs_write_atomic(path, text.data, text.len, e)
                       : fs_write_new(path, text.data, text.len, e);
}
