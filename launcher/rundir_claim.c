/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rundir_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/runindex.h"

#include <dirent.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_SLURM_RUNS = 10000, /* of one name in one job */
    TRIES = 5,              /* at a directory that seems to be somebody's */
};

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

int rundir_absolute(const char *path, char *to, size_t size, struct error *e)
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

static bool is_of_none(const char *path, const char *name)
{
    (void)path;
    return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Whether all that is in a directory is so. */
static bool has_only(const char *path,
                     bool (*is_so)(const char *path, const char *name))
{
    DIR *dir = opendir(path);
    struct dirent *d;
    bool is_only = dir;

    while (is_only && (d = readdir(dir))) {
        is_only = is_so(path, d->d_name);
    }
    if (dir) {
        closedir(dir);
    }
    return is_only;
}

/* The rest of a name that fs_write_atomic() writes to; a word, as in "run.json.backup",
 * is somebody's. */
static bool is_temporary(const char *rest)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";

    return rest[0] == '.' && strlen(rest) == sizeof(".XXXXXX") - 1 &&
           rest[1 + strspn(rest + 1, letters)] != '\0';
}

/* What comes before run.json, see rundir_create(): folders, without anything in them,
 * and the key. */
static bool is_of_beginning(const char *path, const char *name)
{
    static const char *const folders[] = {"ckpt", "control", "errors", "logs"};
    char folder[PATH_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        if (strcmp(name, folders[i]) == 0) {
            return fs_path(folder, sizeof(folder), NULL, "%s/%s", path, name) == 0 &&
                   has_only(folder, is_of_none);
        }
    }
    return is_of_none(path, name) || strcmp(name, "key") == 0 ||
           (str_starts(name, "key") && is_temporary(name + strlen("key"))) ||
           (str_starts(name, "run.json") && is_temporary(name + strlen("run.json")));
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

static bool has_run_file(const char *dir)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%.*s/run.json", PATH_MAX - 16, dir);
    return access(path, F_OK) == 0;
}

/* What is of no beginning may be a temporary that looks like a word, of one who is making
 * a run here at this moment: run.json comes then. */
int rundir_adopt(const char *dir, bool may_adopt, struct run_file *f,
                 struct error *e)
{
    static const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    int rc = run_file_read(dir, f, e);

    for (int i = 0; rc == -ERR_FORMAT && i < TRIES; i++) {
        bool is_free = may_adopt || has_only(dir, is_of_beginning);

        if (is_free && !has_run_file(dir)) {
            return 1;
        }
        nanosleep(&pause, NULL);
        rc = run_file_read(dir, f, e);
    }
    return rc;
}

/* Makes r->path; as rundir_adopt(). */
static int claim_dir(struct rundir *r, bool may_adopt, struct run_file *f,
                     struct error *e)
{
    if (mkdir(r->path, 0700) == 0) {
        return 1;
    }
    return errno == EEXIST ? rundir_adopt(r->path, may_adopt, f, e)
                           : error_set(e, errno, "make run directory %s", r->path);
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
                      MAX_SLURM_RUNS, r->name, rundir_slurm_job());
}

static void set_slurm_id(struct rundir *r, int k)
{
    snprintf(r->id, sizeof(r->id), k == 1 ? "%s" : "%s.%d",
             rundir_slurm_job(), k);
}

/* The k-th run of this name in this execution of the batch script: a directory
 * that this execution has opened already is that of an earlier one. An id that
 * a run of another name has is not free: agents and commands go by it alone. */
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
        if (rc != 0 || f->slurm_restart != rundir_slurm_restart()) {
            return rc;
        }
    }
    return say_too_many(r, e);
}

/* A directory that was named. */
static int claim_given(struct rundir *r, const struct rundir_params *p,
                       struct run_file *f, struct error *e)
{
    int rc = rundir_absolute(p->dir, r->path, sizeof(r->path), e);

    rc = rc < 0 || p->id ? rc : random_id(r->id, sizeof(r->id), e);
    rc = rc < 0 ? rc : make_parent(r->path, e);
    rc = rc < 0 ? rc : claim_dir(r, false, f, e);
    if (rc != 1 || p->id || !rundir_slurm_job()) {
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

int rundir_claim(struct rundir *r, const struct rundir_params *p,
                 struct run_file *f, struct error *e)
{
    char base[PATH_MAX];
    int rc;

    if (p->dir) {
        return claim_given(r, p, f, e);
    }
    rc = rundir_absolute(p->base ? p->base : "muster-runs", base, sizeof(base),
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
    return rundir_slurm_job() ? claim_slurm(r, base, f, e)
                          : claim_random(r, base, e);
}
