/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "ckpt/crowd.h"
#include "muster.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int ckpt_make_uuid(char to[COMMIT_UUID_BYTES], struct error *e)
{
    unsigned char bytes[(COMMIT_UUID_BYTES - 1) / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return error_set(e, errno ? errno : EIO, "make a uuid");
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        snprintf(to + 2 * i, 3, "%02x", bytes[i]);
    }
    return 0;
}

/* --- meeting --- */

enum { CALL_TEXT_BYTES = 80 };

static void say_call(const struct opening *o, char to[CALL_TEXT_BYTES])
{
    static const char *const verbs[] = {
        [CALL_OPEN] = "opens them", [CALL_DUE] = "asks what is due", [CALL_SAVE] = "saves",
        [CALL_LATEST] = "looks for the newest", [CALL_LOAD] = "loads",
    };
    const char *verb = o->call < ARRAY_SIZE(verbs) && verbs[o->call] ? verbs[o->call] : "";
    unsigned flags = o->call == CALL_SAVE ? o->flags : 0;

    if (o->call == CALL_OPEN || o->step == MUSTER_CKPT_LATEST) {
        snprintf(to, CALL_TEXT_BYTES, "%s%s", verb,
                 o->call == CALL_LOAD ? " the newest" : "");
    } else {
        snprintf(to, CALL_TEXT_BYTES, "%s%s step %" PRId64 "%s%s%s", verb,
                 o->call == CALL_LATEST ? " below" : o->call == CALL_DUE ? " after" : "",
                 o->step, flags & MUSTER_CKPT_LAZY ? ", lazily" : "",
                 flags & MUSTER_CKPT_WAIT ? ", and waits" : "",
                 flags & MUSTER_CKPT_SKIP ? ", or skips it" : "");
    }
}

static int refuse_calls(const struct opening *all, uint32_t r, struct error *e)
{
    char a[CALL_TEXT_BYTES], b[CALL_TEXT_BYTES];

    say_call(&all[0], a);
    say_call(&all[r], b);
    return error_text(e, EINVAL, "ranks 0 and %u do not make the same call: rank 0 %s, and "
                      "rank %u %s: expected the same one, with the same step and flags, on "
                      "all ranks", r, a, r, b);
}

static int check_same(const struct muster_ckpt *ck, const struct opening *all,
                      struct error *e)
{
    for (uint32_t r = 1; r < ck->group.world; r++) {
        if (all[r].call != all[0].call || all[r].step != all[0].step ||
            all[r].flags != all[0].flags) {
            return refuse_calls(all, r, e);
        }
    }
    return 0;
}

/* The first one, or `world`. Damage is passed over by all, and so counts for less: a rank
 * that has refused goes on with nobody. */
static uint32_t who_failed(const struct opening *all, uint32_t world)
{
    uint32_t first = world;

    for (uint32_t r = 0; r < world; r++) {
        if (all[r].rc < 0 && all[r].rc != -ERR_FORMAT) {
            return r;
        }
        first = all[r].rc < 0 && first == world ? r : first;
    }
    return first;
}

int ckpt_meet(struct muster_ckpt *ck, struct opening *mine, int rc,
              struct opening **ret_all, struct error *e)
{
    const struct group *g = &ck->group;
    _free_ struct opening *all = calloc(g->world, sizeof(*all));
    uint32_t r;

    if (!all) {
        return error_set(e, ENOMEM, "meet the other ranks");
    }
    mine->rc = rc;
    if (rc < 0) {
        str_copy(mine->text, sizeof(mine->text), e->text);
    }
    rc = group_gather(g, mine, all, sizeof(*mine), e);
    if (rc < 0) {
        return rc;
    }
    r = who_failed(all, g->world);
    if (r < g->world) {
        return g->world == 1 ? all[r].rc
                             : error_text(e, -all[r].rc, "rank %u: %.*s", r,
                                          (int)sizeof(all[r].text) - 1, all[r].text);
    }
    rc = check_same(ck, all, e);
    if (rc == 0) {
        *ret_all = take_ptr(&all);
    }
    return rc;
}

/* --- opening --- */

/* Before there was keep_every. */
enum { FIRST_OPTIONS_BYTES = offsetof(struct muster_ckpt_options, keep_every) };

/* What is in those that the program was built with; the rest is 0. */
static struct muster_ckpt_options fill_options(const struct muster_ckpt_options *o)
{
    struct muster_ckpt_options all = {0};

    if (o) {
        memcpy(&all, o, o->size < sizeof(all) ? o->size : sizeof(all));
    }
    return all;
}

static int check_keep(const struct muster_ckpt_options *o, struct error *e)
{
    struct ckpt_keep keep = {0};

    if (o->keep_best && keep_take_best(&keep, o->keep_best) < 0) {
        return error_text(e, EINVAL, "options: keep_best is '%.60s': expected METRIC, "
                          "METRIC:min or METRIC:max, of less than %d bytes", o->keep_best,
                          METRIC_NAME_BYTES);
    }
    if (o->keep == 0 && (o->keep_every > 0 || o->keep_best)) {
        return error_text(e, EINVAL, "options: all stay, as keep is 0: expected how many "
                          "of the newest stay besides those of %s",
                          o->keep_best ? "keep_best" : "keep_every");
    }
    return 0;
}

static int check_options(const struct muster_ckpt_options *options, struct error *e)
{
    struct muster_ckpt_options o;

    if (options && options->size != FIRST_OPTIONS_BYTES &&
        options->size != sizeof(*options)) {
        return error_text(e, EINVAL, "options: `size` is %zu: expected %zu, their size",
                          options->size, sizeof(*options));
    }
    o = fill_options(options);
    if (o.every_steps < 0 || !(o.every_seconds >= 0) || o.keep < 0 ||
        o.n_threads < 0 || o.keep_every < 0) {
        return error_text(e, EINVAL, "options: expected no negative number");
    }
    return check_keep(&o, e);
}

static void take_options(struct muster_ckpt *ck,
                         const struct muster_ckpt_options *options)
{
    struct muster_ckpt_options o = fill_options(options);

    ck->keep.rule.keep = (uint64_t)o.keep;
    ck->keep.rule.every = (uint64_t)o.keep_every;
    if (o.keep_best) {
        keep_take_best(&ck->keep, o.keep_best);
    }
    o.keep_best = NULL; /* it is the caller's */
    ck->options = o;
}

int ckpt_create(struct muster *m, const struct muster_ckpt_group *group,
                struct io *io, int root, const char *root_path,
                const struct muster_ckpt_options *options,
                struct muster_ckpt **ret)
{
    struct muster_ckpt *ck = calloc(1, sizeof(*ck));
    int rc;

    if (!ck) {
        return -ENOMEM;
    }
    *ret = ck;
    ck->m = m;
    ck->io = io;
    ck->root = root;
    ck->root_is_borrowed = root >= 0;
    ck->pid = getpid();
    ck->is_checking = ckpt_check_is_on();
    ck->avoided = getenv("MUSTER_AVOID_PATHS");
    ck->last_save_ns = (int64_t)clock_mono_ns();
    take_options(ck, options);
    if (ck->options.n_threads <= 0) {
        ck->options.n_threads = (int)crowd_n_threads();
    }
    ck->root_path = strdup(root_path);
    rc = ckpt_due_open(ck, &ck->error);
    rc = rc < 0 ? rc : group_make(m, group, &ck->group, &ck->error);
    ck->registry.rank = ck->group.rank;
    if (rc == 0 && (!ck->root_path || save_direct_create(&ck->direct) < 0)) {
        rc = error_set(&ck->error, ENOMEM, "open checkpoints");
    }
    return rc;
}

/* The directory that holds it keeps its name, before anything goes into it. */
static int sync_parent(const char *path)
{
    _close_ int fd = -1;
    char parent[4096];
    char *slash;

    str_copy(parent, sizeof(parent), path);
    slash = strrchr(parent, '/');
    if (slash) {
        slash[slash == parent ? 1 : 0] = '\0';
    }
    fd = open(slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && (fsync(fd) == 0 || errno == EINVAL) ? 0 : -errno;
}

static int make_root(const char *path, struct error *e)
{
    if (mkdir(path, 0700) == 0) {
        int rc = sync_parent(path);

        return rc < 0 ? error_set(e, -rc, "sync the directory of %s", path) : 0;
    }
    if (errno == ENOENT) {
        return error_text(e, ENOENT, "make %s: expected the directory that it lies in to be "
                          "there", path);
    }
    return errno == EEXIST ? 0 : error_set(e, errno, "make %s", path);
}

static int open_root(struct muster_ckpt *ck, struct error *e)
{
    char *full = realpath(ck->root_path, NULL);

    if (!full) {
        return error_set(e, errno, "open %s, the directory for checkpoints, which "
                         "all ranks must see", ck->root_path);
    }
    free(ck->root_path);
    ck->root_path = full;
    ck->root = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return ck->root < 0 ? error_set(e, errno, "open %s", full) : 0;
}

/* The code is not that of a checkpoint that there is not. */
static int say_it_is_gone(const struct muster_ckpt *ck, struct error *e)
{
    return error_text(e, ESTALE, "%s is no directory any more, as it was when checkpoints "
                      "were opened there", ck->root_path);
}

/* The descriptor keeps its number. */
static int replace_root(struct muster_ckpt *ck, struct error *e)
{
    _close_ int fd = open(ck->root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return say_it_is_gone(ck, e);
    }
    if (fd < 0 || dup3(fd, ck->root, O_CLOEXEC) < 0) {
        return error_set(e, errno, "open %s again, which is another directory than it was",
                         ck->root_path);
    }
    load_close(&ck->load);
    ck->has_read = false;
    return 0;
}

/* Agents go by the path. What cannot be looked at is taken for what it was. */
int ckpt_find_root(struct muster_ckpt *ck, struct error *e)
{
    struct stat was, is;

    if (ck->root_is_borrowed) {
        return 0;
    }
    if (stat(ck->root_path, &is) < 0) {
        return errno == ENOENT || errno == ENOTDIR ? say_it_is_gone(ck, e) : 0;
    }
    return fstat(ck->root, &was) < 0 || (was.st_dev == is.st_dev && was.st_ino == is.st_ino)
               ? 0 : replace_root(ck, e);
}

/* Of "dir:/path" and "/path"; NULL: nothing says it. */
static int path_of(const char *uri, const char **ret, struct error *e)
{
    const char *colon = uri ? strchr(uri, ':') : NULL;
    const char *slash = uri ? strchr(uri, '/') : NULL;

    if (!uri) {
        return error_text(e, EINVAL, "no directory for checkpoints: none is given, and "
                          "MUSTER_CHECKPOINT_DIR, which names it then, is not set");
    }
    if (str_starts(uri, "dir:")) {
        uri += strlen("dir:");
    } else if (colon && (!slash || colon < slash)) {
        return error_text(e, ENOTSUP, "'%.200s': expected dir:/path or a path",
                          uri);
    }
    if (*uri == '\0' || strlen(uri) >= 4096 - STEP_NAME_BYTES) {
        return error_text(e, EINVAL, "expected the path of a directory for "
                          "checkpoints, as dir:/path");
    }
    *ret = uri;
    return 0;
}

PUBLIC int muster_ckpt_open(struct muster *m, const struct muster_ckpt_group *group,
                     const char *uri, const struct muster_ckpt_options *options,
                     struct muster_ckpt **ret)
{
    struct opening mine = {.call = CALL_OPEN};
    _free_ struct opening *all = NULL;
    struct muster_ckpt *ck = NULL;
    struct error problem = {0};
    const char *path = "";
    int rc;

    if (!ret) {
        return -EINVAL;
    }
    uri = uri ? uri : getenv("MUSTER_CHECKPOINT_DIR");
    rc = check_options(options, &problem);
    rc = rc < 0 ? rc : path_of(uri, &path, &problem);
    if (ckpt_create(m, group, io_system(), -1, path, rc < 0 ? NULL : options,
                    &ck) < 0) {
        *ret = ck;
        return ck ? -ck->error.code : -ENOMEM;
    }
    *ret = ck;
    ck->error = problem;
    if (rc == 0 && !group) {
        rc = save_agent_create(m, &ck->agent, &ck->source);
    }
    if (rc == 0 && ck->group.rank == 0) {
        rc = make_root(path, &ck->error);
    }
    rc = ckpt_meet(ck, &mine, rc, &all, &ck->error);
    rc = rc < 0 ? rc : group_agree(&ck->group, open_root(ck, &ck->error),
                                   &ck->error);
    if (rc < 0 && ck->root >= 0) {
        close_fd(&ck->root);
    }
    return rc;
}

PUBLIC void muster_ckpt_close(struct muster_ckpt *ck)
{
    const struct save_way *ways[2];

    if (!ck) {
        return;
    }
    ckpt_lazy_close(ck);
    ways[0] = &ck->agent;
    ways[1] = &ck->direct;
    for (size_t i = 0; i < 2; i++) {
        if (ways[i]->ops) {
            ways[i]->ops->destroy(ways[i]->self);
        }
    }
    if (ck->views.gone) {
        ck->views.gone(ck->views.data);
    }
    saving_forget_plan(ck);
    load_close(&ck->load);
    registry_release(&ck->registry);
    group_release(&ck->group);
    if (!ck->root_is_borrowed) {
        close_fd(&ck->root);
    }
    free(ck->root_path);
    free(ck->shares);
    free(ck);
}
