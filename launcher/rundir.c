/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rundir.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/jsonw.h"
#include "base/key.h"
#include "launcher/runindex.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_RUN_JSON = 65536,
    MAX_SLURM_RUNS = 10000, /* of one name in one job */
    NONCE_HEX = 2 * RUNDIR_NONCE_BYTES + 1,
};

/* What run.json says. */
struct run_file {
    char id[RUNDIR_ID_SIZE];
    char name[RUNDIR_NAME_SIZE];
    uint64_t created_ns;
    int64_t slurm_restart; /* SLURM_RESTART_COUNT when last opened; -1: none */
};

static bool is_component(const char *s, size_t size)
{
    return s[0] && s[0] != '.' && s[0] != '-' && strlen(s) < size &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "0123456789._-") == strlen(s);
}

/* Slurm's own words, or NULL outside of a job. */
static const char *slurm_job_id(void)
{
    const char *id = getenv("SLURM_JOB_ID");

    return id && id[0] && strlen(id) < 20 &&
           strspn(id, "0123456789") == strlen(id) ? id : NULL;
}

static int64_t slurm_restart_count(void)
{
    const char *s = getenv("SLURM_RESTART_COUNT");
    int64_t n = 0;

    if (!slurm_job_id()) {
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
    if (!id || !is_component(id, sizeof(f->id)) || !name ||
        !is_component(name, sizeof(f->name))) {
        return error_text(e, ERR_FORMAT, "%s: expected a run id and a name",
                          path);
    }
    str_copy(f->id, sizeof(f->id), id);
    str_copy(f->name, sizeof(f->name), name);
    f->created_ns = (uint64_t)(
        json_number_value(json_object_get(root, "created")) * 1e9);
    f->slurm_restart = json_is_integer(restart) ? json_integer_value(restart)
                                                : -1;
    return 0;
}

static int read_run_file(const char *dir, struct run_file *f, struct error *e)
{
    char path[PATH_MAX];
    _free_ char *text = NULL;
    json_error_t je;
    json_t *root;
    size_t len;
    int rc = fs_path(path, sizeof(path), e, "%s/run.json", dir);

    if (rc == 0) {
        rc = fs_read(path, MAX_RUN_JSON, &text, &len, e);
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

static int write_run_file(const struct rundir *r, struct error *e)
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
    if (slurm_job_id()) {
        jsonw_str(&w, "slurm_job", slurm_job_id());
        jsonw_int(&w, "slurm_restart", slurm_restart_count());
    }
    jsonw_end_object(&w);
    buf_putc(&text, '\n');
    if (text.failed) {
        return error_set(e, ENOMEM, "write %s", path);
    }
    return fs_write_atomic(path, text.data, text.len, e);
}

/* "20261121-033400-a1b2c3": sorts by time, and no two runs share one. */
static int random_id(char *to, size_t size, struct error *e)
{
    time_t now = (time_t)(clock_wall_ns() / 1000000000u);
    char day[32];
    struct tm tm;

    if (sodium_init() < 0) {
        return error_text(e, EIO, "libsodium found no source of randomness");
    }
    gmtime_r(&now, &tm);
    strftime(day, sizeof(day), "%Y%m%d-%H%M%S", &tm);
    snprintf(to, size, "%s-%06x", day, (unsigned)randombytes_uniform(1 << 24));
    return 0;
}

static int make_absolute(const char *path, char *to, size_t size,
                         struct error *e)
{
    char cwd[PATH_MAX];

    if (path[0] == '/') {
        return fs_path(to, size, e, "%s", path);
    }
    if (!getcwd(cwd, sizeof(cwd))) {
        return error_set(e, errno, "find the current directory");
    }
    while (str_starts(path, "./")) {
        path += 2;
    }
    return fs_path(to, size, e, "%s/%s", cwd, path);
}

static bool is_empty_dir(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *d;
    bool empty = dir;

    while (empty && (d = readdir(dir))) {
        empty = !strcmp(d->d_name, ".") || !strcmp(d->d_name, "..");
    }
    if (dir) {
        closedir(dir);
    }
    return empty;
}

static int make_parent(const char *path, struct error *e)
{
    char parent[PATH_MAX];
    char *slash;

    str_copy(parent, sizeof(parent), path);
    slash = strrchr(parent, '/');
    slash[slash == parent] = '\0';
    return fs_mkdirs(parent, e);
}

/* Makes r->path. 1 if it is new (or was left behind without its run.json), 0 if
 * it holds a run already, whose file is in *f. */
static int claim_dir(struct rundir *r, bool may_adopt, struct run_file *f,
                     struct error *e)
{
    int rc;

    if (mkdir(r->path, 0700) == 0) {
        return 1;
    }
    if (errno != EEXIST) {
        return error_set(e, errno, "make run directory %s", r->path);
    }
    rc = read_run_file(r->path, f, e);
    if (rc == -ERR_FORMAT && (may_adopt || is_empty_dir(r->path))) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%.*s/run.json", PATH_MAX - 16, r->path);
        if (access(path, F_OK) < 0) {
            return 1;
        }
    }
    return rc;
}

static int path_of_id(struct rundir *r, const char *base, struct error *e)
{
    return fs_path(r->path, sizeof(r->path), e, "%s/%s/%s", base, r->name,
                   r->id);
}

static int claim_random(struct rundir *r, const char *base, struct error *e)
{
    for (int tries = 0; tries < 16; tries++) {
        int rc = random_id(r->id, sizeof(r->id), e);

        rc = rc < 0 ? rc : path_of_id(r, base, e);
        if (rc < 0) {
            return rc;
        }
        if (mkdir(r->path, 0700) == 0) {
            return 1;
        }
        if (errno != EEXIST) {
            return error_set(e, errno, "make run directory %s", r->path);
        }
    }
    return error_text(e, EEXIST, "no free run id under %s", base);
}

static int say_too_many(const struct rundir *r, struct error *e)
{
    return error_text(e, EEXIST, "more than %d runs of %s in job %s",
                      MAX_SLURM_RUNS, r->name, slurm_job_id());
}

static void set_slurm_id(struct rundir *r, int k)
{
    snprintf(r->id, sizeof(r->id), k == 1 ? "%s" : "%s.%d", slurm_job_id(), k);
}

/* The k-th run of this name in this execution of the batch script: a directory
 * that this execution has opened already is that of an earlier one. An id that a
 * run of another name has is not free: agents and commands go by it alone. */
static int claim_slurm(struct rundir *r, const char *base, struct run_file *f,
                       struct error *e)
{
    for (int k = 1; k <= MAX_SLURM_RUNS; k++) {
        int rc;

        set_slurm_id(r, k);
        rc = path_of_id(r, base, e);
        if (rc == 0 && !rundir_is_one(r->path) &&
            runindex_has(r->id, r->path)) {
            continue;
        }
        rc = rc < 0 ? rc : claim_dir(r, true, f, e);
        if (rc != 0 || f->slurm_restart != slurm_restart_count()) {
            return rc;
        }
    }
    return say_too_many(r, e);
}

/* A directory that was named. */
static int claim_given(struct rundir *r, const struct rundir_params *p,
                       struct run_file *f, struct error *e)
{
    int rc = make_absolute(p->dir, r->path, sizeof(r->path), e);

    rc = rc < 0 || p->id ? rc : random_id(r->id, sizeof(r->id), e);
    rc = rc < 0 ? rc : make_parent(r->path, e);
    rc = rc < 0 ? rc : claim_dir(r, false, f, e);
    if (rc != 1 || p->id || !slurm_job_id()) {
        return rc;
    }
    for (int k = 1; k <= MAX_SLURM_RUNS; k++) {
        set_slurm_id(r, k);
        if (!runindex_has(r->id, r->path)) {
            return 1;
        }
    }
    return say_too_many(r, e);
}

static int claim(struct rundir *r, const struct rundir_params *p,
                 struct run_file *f, struct error *e)
{
    char base[PATH_MAX];
    int rc;

    if (p->dir) {
        return claim_given(r, p, f, e);
    }
    rc = make_absolute(p->base ? p->base : "muster-runs", base, sizeof(base),
                       e);
    if (rc < 0) {
        return rc;
    }
    rc = fs_path(r->path, sizeof(r->path), e, "%s/%s", base, r->name);
    rc = rc < 0 ? rc : fs_mkdirs(r->path, e);
    if (rc < 0) {
        return rc;
    }
    if (p->id) {
        rc = path_of_id(r, base, e);
        return rc < 0 ? rc : claim_dir(r, true, f, e);
    }
    return slurm_job_id() ? claim_slurm(r, base, f, e)
                          : claim_random(r, base, e);
}

static int make_layout(struct rundir *r, struct error *e)
{
    static const char *const below[] = {
        "logs", "errors", "ckpt", "control",
    };
    char path[PATH_MAX];
    int rc;

    for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
        rc = rundir_path(r, path, sizeof(path), e, "%s", below[i]);
        if (rc < 0) {
            return rc;
        }
        if (mkdir(path, 0700) < 0 && errno != EEXIST) {
            return error_set(e, errno, "make directory %s", path);
        }
    }
    rc = rundir_make_key(r, e);
    /* Last: only a directory that is whole is a run directory. */
    return rc < 0 ? rc : write_run_file(r, e);
}

/* Replaces <dir>/latest whole: a reader sees the old one or the new one. */
static void point_latest(const struct rundir *r)
{
    char link[PATH_MAX], temporary[PATH_MAX];

    if (fs_path(link, sizeof(link), NULL, "%s/../latest", r->path) < 0 ||
        fs_path(temporary, sizeof(temporary), NULL, "%s/../.latest.%s",
                r->path, r->id) < 0) {
        return;
    }
    if ((symlink(r->id, temporary) < 0 && errno != EEXIST) ||
        rename(temporary, link) < 0) {
        unlink(temporary);
    }
}

static struct rundir *alloc_rundir(struct error *e)
{
    struct rundir *r = calloc(1, sizeof(*r));

    if (!r) {
        error_set(e, ENOMEM, "open a run directory");
        return NULL;
    }
    r->lock_fd = -1;
    return r;
}

int rundir_create(const struct rundir_params *p, struct rundir **ret,
                  struct error *e)
{
    _cleanup_(rundir) struct rundir *r = NULL;
    struct run_file f = {.slurm_restart = -1};
    _close_ int guard = -1;
    int rc;

    if (!is_component(p->name, sizeof(r->name)) ||
        (p->id && !is_component(p->id, sizeof(r->id)))) {
        return error_text(e, EINVAL, "run name '%.80s'%s%.80s: expected "
                          "letters, digits, '.', '_' and '-', at most %d",
                          p->name, p->id ? ", id " : "", p->id ? p->id : "",
                          RUNDIR_NAME_SIZE - 1);
    }
    r = alloc_rundir(e);
    if (!r) {
        return -ENOMEM;
    }
    str_copy(r->name, sizeof(r->name), p->name);
    str_copy(r->id, sizeof(r->id), p->id ? p->id : "");
    r->created_ns = clock_wall_ns();
    /* Runs of one job draw their ids from the same few. */
    guard = slurm_job_id() ? runindex_guard() : -1;
    rc = claim(r, p, &f, e);
    if (rc < 0) {
        return rc;
    }
    r->reopened = rc == 0;
    if (r->reopened) {
        str_copy(r->id, sizeof(r->id), f.id);
        str_copy(r->name, sizeof(r->name), f.name);
        r->created_ns = f.created_ns;
    }
    rc = make_layout(r, e);
    if (rc < 0) {
        if (!p->dir && !p->id && !slurm_job_id()) {
            fs_remove_tree(r->path, NULL); /* nobody else's: the id is new */
        }
        return error_wrap(e, "run directory %s", r->path);
    }
    if (!p->dir) {
        point_latest(r);
    }
    runindex_add(r);
    *ret = take_ptr(&r);
    return 0;
}

int rundir_open(const char *path, struct rundir **ret, struct error *e)
{
    _cleanup_(rundir) struct rundir *r = alloc_rundir(e);
    struct run_file f;
    int rc;

    if (!r) {
        return -ENOMEM;
    }
    if (!realpath(path, r->path)) {
        return error_set(e, errno, "open run directory %s", path);
    }
    rc = read_run_file(r->path, &f, e);
    if (rc < 0) {
        return rc;
    }
    str_copy(r->id, sizeof(r->id), f.id);
    str_copy(r->name, sizeof(r->name), f.name);
    r->created_ns = f.created_ns;
    r->reopened = true;
    *ret = take_ptr(&r);
    return 0;
}

void rundir_destroy(struct rundir *r)
{
    if (r) {
        rundir_unlock(r);
        free(r);
    }
}

int rundir_path(const struct rundir *r, char *to, size_t size, struct error *e,
                const char *fmt, ...)
{
    char below[PATH_MAX];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(below, sizeof(below), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(below)) {
        return error_set(e, ENAMETOOLONG, "path %.80s...", below);
    }
    return fs_path(to, size, e, "%s/%s", r->path, below);
}

int rundir_make_key(const struct rundir *r, struct error *e)
{
    char path[PATH_MAX];
    int rc = rundir_path(r, path, sizeof(path), e, "key");

    return rc < 0 ? rc : key_create(path, e);
}

static int nonce_path(const char *dir, char *to, size_t size, struct error *e)
{
    return fs_path(to, size, e, "%s/nonce", dir);
}

int rundir_write_nonce(const char *path, const void *nonce, struct error *e)
{
    char file[PATH_MAX], hex[NONCE_HEX];
    int rc = nonce_path(path, file, sizeof(file), e);

    if (rc < 0) {
        return rc;
    }
    sodium_bin2hex(hex, sizeof(hex), nonce, RUNDIR_NONCE_BYTES);
    return fs_write_atomic(file, hex, strlen(hex), e);
}

int rundir_check_nonce(const char *path, const void *nonce, struct error *e)
{
    char file[PATH_MAX], hex[NONCE_HEX];
    _free_ char *found = NULL;
    int rc = nonce_path(path, file, sizeof(file), e);

    if (rc < 0) {
        return rc;
    }
    rc = fs_read(file, 1024, &found, NULL, e);
    if (rc == -ENOENT || rc == -ENOTDIR) {
        return 0;
    }
    sodium_bin2hex(hex, sizeof(hex), nonce, RUNDIR_NONCE_BYTES);
    return rc < 0 ? rc : strcmp(found, hex) == 0;
}

void rundir_drop_requests(const struct rundir *r)
{
    char path[PATH_MAX];
    struct dirent *d;
    DIR *dir;

    if (rundir_path(r, path, sizeof(path), NULL, "control") < 0) {
        return;
    }
    dir = opendir(path);
    while (dir && (d = readdir(dir))) {
        if (d->d_name[0] != '.') {
            unlinkat(dirfd(dir), d->d_name, 0);
        }
    }
    if (dir) {
        closedir(dir);
    }
}
