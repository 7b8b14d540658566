/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/beside.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/avoided.h"
#include "ckpt/found_priv.h"
#include "ckpt/step.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CHECKS = 16 }; /* of the newest: each reads what its format needs */

const char *beside_state_name(enum beside_state state)
{
    static const char *const names[] = {
        [BESIDE_ITSELF] = "itself", [BESIDE_OTHER] = "other",
        [BESIDE_NONE] = "none", [BESIDE_NO_DIR] = "no directory",
    };

    return names[state];
}

/* --- names --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool beside_is_like(const char *a, const char *b)
{
    bool has_number = false;
    uint64_t step;

    if (step_parse_name(a, &step)) {
        return step_parse_name(b, &step);
    }
    while (*a && *b) {
        if (is_digit(*a) && is_digit(*b)) {
            has_number = true;
            a += strspn(a, "0123456789");
            b += strspn(b, "0123456789");
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return has_number && !*a && !*b;
}

/* Where to look: names in `dir`, like `name`, and in each of them `rest`. */
struct place {
    char dir[PATH_MAX];
    char name[PATH_MAX];
    char rest[PATH_MAX]; /* "", or begins with a slash */
};

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Moves the last part of `dir` to `name`. False: there is none. */
static bool go_up(struct place *p)
{
    char *slash = strrchr(p->dir, '/');

    if (!slash || !slash[1]) {
        return false;
    }
    str_copy(p->name, sizeof(p->name), slash + 1);
    slash[slash == p->dir] = '\0'; /* the root keeps its own */
    return true;
}

/* The directory that it is in; or the one above, where each checkpoint has one of its
 * own, with a number: because it is not there, or, where those that are older are looked
 * for, because the last name has none. */
static bool find_place(const char *path, bool is_older, struct place *p)
{
    size_t n = strlen(path);

    *p = (struct place){0};
    str_copy(p->dir, sizeof(p->dir), path);
    while (n > 1 && p->dir[n - 1] == '/') {
        p->dir[--n] = '\0';
    }
    if (!go_up(p)) {
        return false;
    }
    if (is_directory(p->dir) && (!is_older || beside_is_like(p->name, p->name))) {
        return true;
    }
    snprintf(p->rest, sizeof(p->rest), "/%.*s", PATH_MAX - 2, p->name);
    return go_up(p) && is_directory(p->dir) && beside_is_like(p->name, p->name);
}

/* --- what is there --- */

struct candidate {
    const char *name; /* borrowed */
    int64_t changed_ns;
    int64_t step;
    uint64_t token; /* of muster's own (step_token()) */
};

/* Of which those that are older are looked for. */
struct older {
    const char *avoided;
    int64_t step;
    const char *own; /* its name, if it is one of muster's; or NULL */
};

static int by_time(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return x->changed_ns > y->changed_ns ? -1 : x->changed_ns < y->changed_ns;
}

static bool join(const struct place *p, const char *name, char ret[PATH_MAX])
{
    int n = snprintf(ret, PATH_MAX, "%s/%s%s", p->dir[1] ? p->dir : "", name,
                     p->rest);

    return n > 0 && n < PATH_MAX;
}

static int64_t step_of(const char *name)
{
    uint64_t step;
    bool is_step;

    return step_parse_name(name, &step) || found_number(name, &step, &is_step)
               ? (int64_t)step : -1;
}

static int by_step(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->step != y->step) {
        return x->step > y->step ? -1 : 1;
    }
    return x->token != y->token ? step_compare(x->token, x->name, y->token, y->name)
                                : by_time(a, b);
}

/* Empty files are none. */
static bool look_at(const struct place *p, const char *name, struct candidate *ret)
{
    char path[PATH_MAX];
    struct stat st;

    *ret = (struct candidate){.name = name, .step = step_of(name)};
    if (!join(p, name, path) || stat(path, &st) < 0 ||
        (S_ISREG(st.st_mode) ? st.st_size == 0 : !S_ISDIR(st.st_mode))) {
        return false;
    }
    ret->changed_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 +
                      st.st_mtim.tv_nsec;
    return true;
}

enum verdict {
    IS_WHOLE,
    IS_UNKNOWN, /* of a format of the program's own */
    IS_BROKEN,
};

static enum verdict judge(struct io *io, const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    _close_ int dir = -1;
    struct found_facts facts;
    struct found f;

    str_copy(parent, sizeof(parent), path);
    parent[slash == path ? 1 : slash - path] = '\0';
    dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || !found_one(io, dir, slash + 1, &f)) {
        return IS_UNKNOWN;
    }
    if (found_check(io, dir, &f, false, &facts, NULL) == 0) {
        return found_lacks_parts(io, dir, &f) ? IS_BROKEN : IS_WHOLE;
    }
    return facts.is_foreign ? IS_UNKNOWN : IS_BROKEN; /* .ckpt is whose it wants to be */
}

bool beside_has_whole(struct io *io, int dir, const char *name)
{
    _strlist_ struct strlist names = {0};
    bool is_found = false;
    size_t n = 0;

    if (found_names(io, dir, &names, NULL) < 0) {
        return false;
    }
    for (size_t i = 0; i < names.n && n < MAX_CHECKS && !is_found; i++) {
        struct found_facts facts;
        struct found f;

        if (strcmp(names.items[i], name) == 0 || !beside_is_like(names.items[i], name) ||
            !found_one(io, dir, names.items[i], &f)) {
            continue;
        }
        is_found = found_check(io, dir, &f, false, &facts, NULL) == 0;
        n++;
    }
    return is_found;
}

/* Among them, the newest first. */
static void choose(struct io *io, const struct place *p, const struct candidate *all,
                   size_t n, struct beside *ret)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < n && i < MAX_CHECKS; i++) {
        enum verdict is = join(p, all[i].name, path) ? judge(io, path) : IS_BROKEN;

        if (is == IS_BROKEN || (is == IS_UNKNOWN && ret->state == BESIDE_OTHER)) {
            continue;
        }
        ret->state = BESIDE_OTHER;
        str_copy(ret->path, sizeof(ret->path), path);
        ret->step = step_of(all[i].name);
        ret->changed_ns = all[i].changed_ns;
        ret->is_whole = is == IS_WHOLE;
        if (ret->is_whole) {
            return;
        }
    }
}

static bool is_older(const struct place *p, const struct candidate *c,
                     const struct older *than)
{
    char path[PATH_MAX];
    bool is_again = than->own && c->step == than->step && strcmp(c->name, than->own) != 0;

    return c->step >= 0 && (c->step < than->step || is_again) && join(p, c->name, path) &&
           !avoided_has_path(than->avoided, path);
}

/* `than` is NULL where any other one will do. */
static int look_beside(struct io *io, const struct place *p, const struct older *than,
                       struct beside *ret, struct error *e)
{
    _strlist_ struct strlist names = {0};
    _free_ struct candidate *all = NULL;
    _close_ int dir = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t step;
    size_t n = 0;
    int rc = dir < 0 ? error_set(e, errno, "open %s", p->dir)
                     : found_names(io, dir, &names, e);

    if (rc < 0) {
        return rc;
    }
    all = calloc(names.n + 1, sizeof(*all));
    if (!all) {
        return error_set(e, ENOMEM, "look beside a checkpoint");
    }
    for (size_t i = 0; i < names.n; i++) {
        n += beside_is_like(p->name, names.items[i]) &&
             look_at(p, names.items[i], &all[n]) &&
             (!than || is_older(p, &all[n], than));
    }
    for (size_t i = 0; i < n && than && !p->rest[0]; i++) {
        all[i].token = step_parse_name(all[i].name, &step) ? step_token(io, dir, all[i].name) : 0;
    }
    qsort(all, n, sizeof(*all), than ? by_step : by_time);
    choose(io, p, all, n, ret);
    return 0;
}

static int check_path(const char *path, const struct place *p, struct beside *ret,
                      struct error *e)
{
    *ret = (struct beside){.step = -1};
    if (path[0] != '/' || strlen(path) >= sizeof(ret->path)) {
        return error_text(e, EINVAL, "%.100s: expected an absolute path", path);
    }
    return p ? 0 : error_set(e, ENOMEM, "look for a checkpoint");
}

int beside_find(struct io *io, const char *path, struct beside *ret,
                struct error *e)
{
    _free_ struct place *p = calloc(1, sizeof(*p));
    struct stat st;
    int rc = check_path(path, p, ret, e);

    if (rc < 0) {
        return rc;
    }
    if (stat(path, &st) == 0) {
        str_copy(ret->path, sizeof(ret->path), path);
        return 0;
    }
    if (errno != ENOENT && errno != ENOTDIR) {
        return error_set(e, errno, "look for %s", path);
    }
    if (!find_place(path, false, p)) {
        ret->state = BESIDE_NO_DIR;
        return 0;
    }
    ret->state = BESIDE_NONE;
    return look_beside(io, p, NULL, ret, e);
}

int beside_older(struct io *io, const char *path, const char *avoided,
                 struct beside *ret, struct error *e)
{
    _free_ struct place *p = calloc(1, sizeof(*p));
    struct older than = {.avoided = avoided};
    uint64_t step;
    int rc = check_path(path, p, ret, e);

    if (rc < 0) {
        return rc;
    }
    ret->state = BESIDE_NONE;
    if (!find_place(path, true, p)) {
        str_copy(p->dir, sizeof(p->dir), path);
        ret->state = go_up(p) && is_directory(p->dir) ? BESIDE_NONE : BESIDE_NO_DIR;
        return 0;
    }
    than.step = step_of(p->name);
    than.own = !p->rest[0] && step_parse_name(p->name, &step) ? p->name : NULL;
    return look_beside(io, p, &than, ret, e);
}
