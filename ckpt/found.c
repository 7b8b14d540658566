/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *found_kind_name(enum found_kind kind)
{
    static const char *const names[] = {
        [FOUND_MUSTER] = "muster", [FOUND_TRAINER] = "hf-trainer",
        [FOUND_DCP] = "dcp",       [FOUND_TORCH] = "torch",
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

/* Whether what stands before a number, [name, name + end), says that it is a step. */
static bool says_step(const char *name, size_t end)
{
    static const char *const words[] = {"step", "iter", "iteration",
                                        "checkpoint", "ckpt"};

    while (end > 0 && strchr("-_=", name[end - 1])) {
        end--;
    }
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t n = strlen(words[i]);

        if (end >= n && strncasecmp(name + end - n, words[i], n) == 0) {
            return true;
        }
    }
    return false;
}

/* The last number in a name; false if there is none, or too large a one. */
static bool last_number(const char *name, uint64_t *ret, bool *ret_is_step)
{
    size_t end = strcspn(name, ".");
    size_t begin;

    while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9')) {
        end--;
    }
    for (begin = end; begin > 0 && name[begin - 1] >= '0' &&
                      name[begin - 1] <= '9'; begin--) {
    }
    if (begin == end || end - begin > 18) {
        return false;
    }
    *ret = strtoull(name + begin, NULL, 10);
    *ret_is_step = says_step(name, begin);
    return true;
}

static bool is_trainer_name(const char *name, uint64_t *ret_step,
                            bool *ret_is_step)
{
    static const char prefix[] = "checkpoint-";
    size_t n = strlen(prefix);

    return strncmp(name, prefix, n) == 0 && name[n] &&
           strspn(name + n, "0123456789") == strlen(name + n) &&
           last_number(name, ret_step, ret_is_step);
}

/* A directory with .metadata, or with what comes before it. */
static bool is_dcp(struct io *io, int dir, const char *name)
{
    _strlist_ struct strlist names = {0};
    int fd = io->ops->open_dir(io, dir, name);
    bool is_one = false;

    if (fd < 0) {
        return false;
    }
    if (found_names(io, fd, &names, NULL) == 0) {
        for (size_t i = 0; i < names.n; i++) {
            is_one = is_one || strcmp(names.items[i], ".metadata") == 0 ||
                     str_ends(names.items[i], ".distcp");
        }
    }
    io->ops->close(io, fd);
    return is_one;
}

static bool is_aside(const char *name)
{
    const char *last = NULL, *at = name;
    size_t n = strlen(FOUND_ASIDE);

    while ((at = strstr(at, FOUND_ASIDE))) {
        last = at;
        at += n;
    }
    return last && (last[n] == '\0' ||
                    (last[n] == '-' &&
                     last[n + 1 + strspn(last + n + 1, "0123456789")] == '\0'));
}

bool found_one(struct io *io, int dir, const char *name, struct found *ret)
{
    *ret = (struct found){.kind = FOUND_MUSTER};
    if (strlen(name) >= sizeof(ret->name) || name[0] == '.' || is_aside(name)) {
        return false;
    }
    str_copy(ret->name, sizeof(ret->name), name);
    ret->has_step = step_parse_name(name, &ret->step);
    ret->is_step = ret->has_step;
    if (ret->has_step) {
        return true;
    }
    if (is_trainer_name(name, &ret->step, &ret->is_step)) {
        ret->kind = FOUND_TRAINER;
        ret->has_step = true;
        return true;
    }
    ret->has_step = last_number(name, &ret->step, &ret->is_step);
    ret->kind = found_is_torch_name(name)         ? FOUND_TORCH
                : found_is_safetensors_name(name) ? FOUND_SAFETENSORS
                                                  : FOUND_DCP;
    return ret->kind != FOUND_DCP || is_dcp(io, dir, name);
}

int found_compare(const struct found *a, const struct found *b)
{
    if (a->has_step != b->has_step) {
        return a->has_step ? -1 : 1;
    }
    if (a->step != b->step) {
        return a->step > b->step ? -1 : 1;
    }
    return strcmp(a->name, b->name);
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

/* --- checking --- */

static int check_muster(struct io *io, int dir, const struct found *f,
                        bool is_deep, struct found_facts *ret, struct error *e)
{
    _step_ struct step s = {0};
    int rc = step_open(io, dir, f->name, &s, e);

    rc = rc < 0 || !is_deep ? rc : step_verify(&s, e);
    if (rc == 0) {
        ret->bytes = s.commit.total_bytes;
        ret->n_files = s.commit.n_files;
    }
    return rc;
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
    rc = f->kind == FOUND_TRAINER
             ? found_check_trainer(io, fd, f->step, is_deep, ret, e)
             : found_check_dcp(io, fd, ret, e);
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
    case FOUND_DCP:
        return check_directory(io, dir, f, is_deep, ret, e);
    case FOUND_TORCH:
    case FOUND_SAFETENSORS:
        return found_check_file(io, dir, f->name, is_deep, ret, e);
    }
    return -EINVAL;
}
