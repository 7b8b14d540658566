/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/step_priv.h"
#include "ckpt/torch_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *found_kind_name(enum found_kind kind)
{
    static const char *const names[] = {
        [FOUND_MUSTER] = "muster",
        [FOUND_TRAINER] = "hf-trainer",
        [FOUND_ACCELERATE] = "accelerate",
        [FOUND_DEEPSPEED] = "deepspeed",
        [FOUND_MEGATRON] = "megatron",
        [FOUND_MODEL] = "hf-model",
        [FOUND_DCP] = "dcp",
        [FOUND_TORCH_DIR] = "torch-dir",
        [FOUND_TORCH] = "torch",
        [FOUND_SAFETENSORS] = "safetensors",
    };

    return names[kind];
}

const char *found_state_name(int rc)
{
    switch (rc) {
    case 0:
        return "whole";
    case -ENOENT:
        return "unfinished";
    case -ERR_FORMAT:
        return "damaged";
    default:
        return "unreadable";
    }
}

/* --- names --- */

static int add_name(void *arg, const char *name)
{
    strlist_add(arg, name);
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int found_names(struct io *io, int dir, struct strlist *ret, struct error *e)
{
    int rc = io->ops->list(io, dir, add_name, ret);

    if (rc < 0 || ret->failed) {
        return error_set(e, rc < 0 ? -rc : ENOMEM, "list the directory");
    }
    if (ret->n) {
        qsort(ret->items, ret->n, sizeof(*ret->items), by_text);
    }
    return 0;
}

int found_open_dir(struct io *io, int dir, const char *name)
{
    int fd = io->ops->open_dir(io, dir, name);

    return fd == -ELOOP || fd == -ENOENT ? -ENOTDIR : fd;
}

int found_fail_to_open(int code, const char *name, struct error *e)
{
    return code == -ELOOP    ? error_text(e, ELOOP, "%s is a link, and none is followed", name)
           : code == -EINVAL ? error_text(e, EINVAL, "%s is no file: a pipe, a socket, a "
                                          "device or a directory", name)
                             : error_set(e, -code, "open %s", name);
}

int found_fail_to_read(int code, const char *name, struct error *e)
{
    return code == -ELOOP || code == -EINVAL ? found_fail_to_open(code, name, e)
                                             : error_set(e, -code, "read %s", name);
}

/* Whose names are ours to tell a file by; it may be a directory all the same. */
static bool is_file(struct io *io, int dir, const char *name)
{
    int fd = io->ops->open_dir(io, dir, name);

    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    return fd < 0;
}

/* A link, or a file. What cannot be looked at may be one of ours. */
static bool is_no_directory(struct io *io, int dir, const char *name)
{
    int fd = io->ops->open_dir(io, dir, name);

    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    return fd == -ENOTDIR || fd == -ELOOP;
}

/* latest.pt, of what lies beside it: a name more, and no checkpoint more. */
static bool is_link(struct io *io, int dir, const char *name)
{
    int fd = io->ops->open_file(io, dir, name);

    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    return fd == -ELOOP;
}

/* Lightning's last.ckpt is the newest, whatever the others' names say: those may be the
 * best ones only. The file says of which step it is, near its beginning. */
static void look_inside(struct io *io, int dir, struct found *f)
{
    int fd = f->has_step || !found_is_last_name(f->name) || !str_ends(f->name, ".ckpt")
                 ? -1 : io->ops->open_file(io, dir, f->name);
    uint64_t step = 0;

    if (fd >= 0) {
        f->is_inside = torch_file_number(io, fd, "global_step", &step) &&
                       step <= INT64_MAX;
        f->has_step = f->is_inside;
        f->step = f->is_inside ? step : 0;
        io->ops->close(io, fd);
    }
}

bool found_one(struct io *io, int dir, const char *name, struct found *ret)
{
    *ret = (struct found){.kind = FOUND_MUSTER};
    if (strlen(name) >= sizeof(ret->name) || name[0] == '.' ||
        found_is_aside_name(name) || found_is_unfinished_name(name)) {
        return false;
    }
    str_copy(ret->name, sizeof(ret->name), name);
    ret->has_step = step_parse_name(name, &ret->step);
    ret->is_step = ret->has_step;
    if (ret->has_step) {
        ret->token = step_token(io, dir, name);
        return ret->token > 0 || !is_no_directory(io, dir, name);
    }
    ret->has_step = found_number(name, &ret->step, &ret->is_step);
    ret->is_part = found_is_part_name(name);
    ret->kind = found_is_torch_name(name) ? FOUND_TORCH : FOUND_SAFETENSORS;
    if ((found_is_torch_name(name) || found_is_safetensors_name(name)) &&
        is_file(io, dir, name)) {
        look_inside(io, dir, ret);
        return !is_link(io, dir, name);
    }
    return found_directory(io, dir, ret);
}

/* The one name that only muster gives, or a true COMMIT: then files of it are gone. */
static bool is_own_inside(struct io *io, int dir, const char *name, struct commit *ret)
{
    _free_ char *text = NULL;
    int sub = io->ops->open_dir(io, dir, name), fd, rc;
    size_t len = 0;

    if (sub < 0) {
        return false;
    }
    rc = io_read_file(io, sub, STEP_COMMIT, COMMIT_MAX_BYTES, &text, &len);
    rc = rc < 0 ? rc : commit_decode(text, len, ret, NULL);
    fd = io->ops->open_file(io, sub, STEP_INDEX);
    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    io->ops->close(io, sub);
    return rc == 0 || fd >= 0;
}

bool found_renamed(struct io *io, int dir, const char *name, struct found *ret)
{
    struct commit commit = {0};
    uint64_t step;

    if (strlen(name) >= sizeof(ret->name) || step_parse_name(name, &step) ||
        !is_own_inside(io, dir, name, &commit)) {
        return false;
    }
    *ret = (struct found){.kind = FOUND_MUSTER, .is_renamed = true,
                          .has_step = commit.uuid[0] != '\0',
                          .is_step = commit.uuid[0] != '\0',
                          .step = commit.step, .token = commit.token};
    str_copy(ret->name, sizeof(ret->name), name);
    return true;
}

bool found_is_file(const struct found *f)
{
    return f->kind == FOUND_TORCH || f->kind == FOUND_SAFETENSORS;
}

void found_recall(struct found *f)
{
    uint64_t step;

    /* A model that has a step is called by it, and one of an epoch too. */
    f->is_part = f->kind != FOUND_MUSTER &&
                 (found_is_part_name(f->name) ||
                  (f->kind == FOUND_MODEL && !f->has_step && !strcasestr(f->name, "epoch")));
    f->is_step = f->kind == FOUND_MUSTER;
    f->is_inside = f->kind != FOUND_MUSTER && f->has_step &&
                   !found_number(f->name, &step, &f->is_step);
}

/* Where no step is known, its kind may not be either. */
static bool is_own(const struct found *f)
{
    return f->has_step && f->kind == FOUND_MUSTER;
}

int found_compare(const struct found *a, const struct found *b)
{
    if (a->has_step != b->has_step) {
        return a->has_step ? -1 : 1;
    }
    if (a->has_step && a->step != b->step) {
        return a->step > b->step ? -1 : 1;
    }
    if (a->is_inside != b->is_inside) {
        return a->is_inside ? 1 : -1;
    }
    if (is_own(a) != is_own(b)) {
        return is_own(a) ? -1 : 1;
    }
    if (is_own(a)) {
        return step_compare(a->token, a->name, b->token, b->name);
    }
    return found_compare_names(a->name, b->name);
}

static int by_step(const void *a, const void *b)
{
    return found_compare(a, b);
}

int found_list(struct io *io, int dir, struct found **ret, size_t *ret_n,
               struct error *e)
{
    _strlist_ struct strlist names = {0};
    _free_ struct found *all = NULL;
    size_t n = 0;
    int rc = found_names(io, dir, &names, e);

    if (rc < 0) {
        return rc;
    }
    all = calloc(names.n + 1, sizeof(*all));
    if (!all) {
        return error_set(e, ENOMEM, "list checkpoints");
    }
    for (size_t i = 0; i < names.n; i++) {
        n += found_one(io, dir, names.items[i], &all[n]);
    }
    qsort(all, n, sizeof(*all), by_step);
    *ret = take_ptr(&all);
    *ret_n = n;
    return 0;
}

int found_count_names(struct io *io, int dir, size_t *ret_n, size_t *ret_n_likely)
{
    _strlist_ struct strlist names = {0};
    int rc = found_names(io, dir, &names, NULL);

    *ret_n = *ret_n_likely = 0;
    for (size_t i = 0; i < names.n; i++) {
        bool is = names.items[i][0] != '.' && !strstr(names.items[i], FOUND_ASIDE);
        uint64_t step;

        *ret_n += is;
        *ret_n_likely += is && found_says_time(names.items[i], &step);
    }
    return rc;
}

/* --- checking --- */

static int check_muster(struct io *io, int dir, const struct found *f,
                        bool is_deep, struct found_facts *ret, struct error *e)
{
    _step_ struct step s = {0};
    int rc = f->is_renamed ? step_open_renamed(io, dir, f->name, &s, e)
                           : step_open(io, dir, f->name, &s, e);

    if (rc == 0 && is_deep && (rc = step_verify(&s, e)) < 0) {
        rc = step_or_gone(&s, rc, e);
    }
    if (rc == 0) {
        ret->bytes = s.commit.total_bytes;
        ret->n_files = s.commit.n_files;
    }
    return rc;
}

static int check_inside(struct io *io, int fd, const struct found *f,
                        bool is_deep, struct found_facts *ret, struct error *e)
{
    switch (f->kind) {
    case FOUND_TRAINER:
        return found_check_trainer(io, fd, f, is_deep, ret, e);
    case FOUND_ACCELERATE:
        return found_check_accelerate(io, fd, f, is_deep, ret, e);
    case FOUND_DEEPSPEED:
        return found_check_deepspeed(io, fd, is_deep, ret, e);
    case FOUND_MEGATRON:
        return found_check_megatron(io, fd, is_deep, ret, e);
    case FOUND_MODEL:
        return found_check_model(io, fd, is_deep, ret, e);
    case FOUND_TORCH_DIR:
        return found_check_plain(io, fd, f->world, is_deep, ret, e);
    default:
        return found_check_dcp(io, fd, f->world, is_deep, ret, e);
    }
}

static int check_directory(struct io *io, int dir, const struct found *f,
                           bool is_deep, struct found_facts *ret,
                           struct error *e)
{
    int fd = io->ops->open_dir(io, dir, f->name);
    int rc;

    if (fd < 0) {
        return error_set(e, -fd, "open %s", f->name);
    }
    rc = check_inside(io, fd, f, is_deep, ret, e);
    io->ops->close(io, fd);
    return rc < 0 ? error_wrap(e, "%s", f->name) : 0;
}

int found_check(struct io *io, int dir, const struct found *f, bool is_deep,
                struct found_facts *ret, struct error *e)
{
    *ret = (struct found_facts){0};
    switch (f->kind) {
    case FOUND_MUSTER:
        return check_muster(io, dir, f, is_deep, ret, e);
    case FOUND_TRAINER:
    case FOUND_ACCELERATE:
    case FOUND_DEEPSPEED:
    case FOUND_MEGATRON:
    case FOUND_MODEL:
    case FOUND_DCP:
    case FOUND_TORCH_DIR:
        return check_directory(io, dir, f, is_deep, ret, e);
    case FOUND_TORCH:
    case FOUND_SAFETENSORS:
        return found_check_file(io, dir, f->name, f->kind, is_deep, ret, e);
    }
    return -EINVAL;
}
