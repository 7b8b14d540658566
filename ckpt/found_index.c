/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of weights that are in several files, as Hugging Face libraries write it:
 * {"weight_map": {tensor: file, ...}}. Each file has to be there; and where it is one of
 * safetensors, whose header names its tensors, each tensor has to be in the file that
 * the index says, and in no other one that it names.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "ckpt/safetensors.h"

#include <errno.h>
#include <string.h>

struct index {
    struct io *io;
    int dir;          /* borrowed */
    const char *name; /* its own */
    json_t *map;      /* borrowed */
};

static bool is_of_weights(const char *name)
{
    return str_ends(name, ".safetensors.index.json") || str_ends(name, ".bin.index.json");
}

/* The name of one that may be beside it. */
static const char *file_of(const json_t *value)
{
    const char *file = json_string_value(value);

    return file && !strchr(file, '/') && file[0] && file[0] != '.' ? file : NULL;
}

/* Some tensor that the index says is in that file, and is not. */
static const char *find_missing(const struct index *x, const char *file,
                                const struct st_file *st)
{
    json_t *there = json_object(), *value;
    const char *tensor, *missing = "";

    for (size_t i = 0; i < st->n_tensors && there; i++) {
        (void)json_object_set_new(there, st->tensors[i].name, json_true());
    }
    json_object_foreach(x->map, tensor, value) {
        if (strcmp(json_string_value(value), file) == 0 && !json_object_get(there, tensor)) {
            missing = tensor;
            break;
        }
    }
    json_decref(there);
    return missing;
}

/* `n`: how many tensors the index says are in it. */
static int check_tensors(const struct index *x, const char *file, size_t n,
                         const struct st_file *st, struct error *e)
{
    size_t n_there = 0;

    for (size_t i = 0; i < st->n_tensors; i++) {
        const char *other =
            json_string_value(json_object_get(x->map, st->tensors[i].name));

        if (other && strcmp(other, file) != 0) {
            return error_text(e, ERR_FORMAT, "%s says that '%.100s' is in %s, and it is in "
                              "%s, too", x->name, st->tensors[i].name, other, file);
        }
        n_there += other != NULL;
    }
    return n_there == n
               ? 0 : error_text(e, ERR_FORMAT, "%s says that '%.100s' is in %s, and it is "
                                "not", x->name, find_missing(x, file, st), file);
}

static int check_file(const struct index *x, const char *file, size_t n, struct error *e)
{
    _st_file_ struct st_file st = {0};
    int fd = x->io->ops->open_file(x->io, x->dir, file);
    int rc = 0;

    if (fd == -ENOENT || fd == -EINVAL) {
        return error_text(e, ERR_FORMAT, "%s names %s, which is missing", x->name, file);
    }
    if (fd < 0) {
        return found_fail_to_open(fd, file, e);
    }
    if (found_is_safetensors_name(file)) {
        rc = st_load(x->io, fd, &st, e);
        rc = rc < 0 ? error_wrap(e, "%s", file) : check_tensors(x, file, n, &st, e);
    }
    x->io->ops->close(x->io, fd);
    return rc;
}

/* Of each file that it names how many tensors are in it; the caller frees it. */
static int count(const struct index *x, json_t **ret, struct error *e)
{
    json_t *files = json_object(), *value;
    const char *tensor;
    int rc = files ? 0 : error_set(e, ENOMEM, "read %s", x->name);

    json_object_foreach(x->map, tensor, value) {
        const char *file = file_of(value);
        json_int_t n = file && files
                           ? json_integer_value(json_object_get(files, file)) : 0;

        if (!file) {
            rc = error_text(e, ERR_FORMAT, "%s says that '%.100s' is in what is no name "
                            "of a file beside it", x->name, tensor);
        } else if (rc == 0 && json_object_set_new(files, file, json_integer(n + 1)) < 0) {
            rc = error_set(e, ENOMEM, "read %s", x->name);
        }
        if (rc < 0) {
            break;
        }
    }
    if (rc < 0) {
        json_decref(files);
        return rc;
    }
    *ret = files;
    return 0;
}

static int check_map(const struct index *x, struct error *e)
{
    json_t *files = NULL, *n;
    const char *file;
    int rc = count(x, &files, e);

    json_object_foreach(files, file, n) {
        rc = rc < 0 ? rc : check_file(x, file, (size_t)json_integer_value(n), e);
    }
    json_decref(files);
    return rc;
}

int found_check_index(struct io *io, int dir, const char *name, struct error *e)
{
    struct index x = {.io = io, .dir = dir, .name = name};
    json_t *index = NULL;
    int rc = found_read_json(io, dir, name, &index, e);

    if (rc < 0) {
        return rc;
    }
    x.map = json_object_get(index, "weight_map");
    if (json_is_object(x.map)) {
        rc = check_map(&x, e);
    } else if (is_of_weights(name)) {
        rc = error_text(e, ERR_FORMAT, "%s is damaged: it has no weight_map", name);
    }
    json_decref(index);
    return rc;
}
