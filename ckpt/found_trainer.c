/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint-<step>/ of the Hugging Face Trainer: weights, optimizer, scheduler,
 * generators of random numbers, and trainer_state.json, which it writes last.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JSON_BYTES = 256 << 20 };

static int read_json(struct io *io, int dir, const char *name, json_t **ret,
                     struct error *e)
{
    _free_ char *text = NULL;
    size_t len = 0;
    int rc = io_read_file(io, dir, name, MAX_JSON_BYTES, &text, &len);

    if (rc == -ENOENT) {
        return error_text(e, ENOENT, "it was never finished: no %s", name);
    }
    if (rc < 0) {
        return error_set(e, -rc, "read %s", name);
    }
    *ret = json_loadb(text, len, 0, NULL);
    return *ret ? 0 : error_text(e, ERR_FORMAT, "%s is cut or damaged: no JSON",
                                 name);
}

static int check_state(struct io *io, int dir, uint64_t step, struct error *e)
{
    json_t *state = NULL;
    const json_t *at;
    int rc = read_json(io, dir, "trainer_state.json", &state, e);

    if (rc < 0) {
        return rc;
    }
    at = json_object_get(state, "global_step");
    if (!json_is_integer(at) || (uint64_t)json_integer_value(at) != step) {
        rc = error_text(e, ERR_FORMAT, "trainer_state.json is of another step, "
                        "%lld", (long long)json_integer_value(at));
    }
    json_decref(state);
    return rc;
}

/* Weights in several files: those that the index names. */
static int check_index(struct io *io, int dir, const char *name,
                       struct error *e)
{
    json_t *index = NULL, *file;
    const char *tensor;
    int rc = read_json(io, dir, name, &index, e);

    if (rc < 0) {
        return rc;
    }
    json_object_foreach(json_object_get(index, "weight_map"), tensor, file) {
        const char *text = json_string_value(file);
        int fd = !text || strchr(text, '/') || text[0] == '.'
                     ? -EINVAL : io->ops->open_file(io, dir, text);

        if (fd < 0) {
            rc = error_text(e, ERR_FORMAT, "%s names a file that is missing",
                            name);
            break;
        }
        io->ops->close(io, fd);
    }
    json_decref(index);
    return rc;
}

static bool is_weights(const char *name)
{
    return (strncmp(name, "model", 5) == 0 && found_is_safetensors_name(name)) ||
           (strncmp(name, "pytorch_model", 13) == 0) ||
           (strncmp(name, "adapter_model", 13) == 0);
}

/* rng_state_<rank>.pth: how many ranks there are is known from nothing else, but
 * none may be missing between others. */
static int check_ranks(const struct strlist *names, struct error *e)
{
    unsigned n = 0, highest = 0, rank;
    int end;

    for (size_t i = 0; i < names->n; i++) {
        end = 0;
        if (sscanf(names->items[i], "rng_state_%u.pth%n", &rank, &end) == 1 &&
            end > 0 && names->items[i][end] == '\0') {
            n++;
            highest = rank > highest ? rank : highest;
        }
    }
    if (n > 0 && highest != n - 1) {
        return error_text(e, ERR_FORMAT, "of %u files rng_state_<rank>.pth %u are "
                          "there", highest + 1, n);
    }
    return 0;
}

static int check_directory(struct io *io, int dir, const char *name,
                           struct found_facts *facts, struct error *e)
{
    int fd = io->ops->open_dir(io, dir, name);
    int rc;

    if (fd < 0) {
        return error_set(e, -fd, "open %s", name);
    }
    rc = found_check_dcp(io, fd, facts, e);
    io->ops->close(io, fd);
    return rc < 0 ? error_wrap(e, "%s", name) : 0;
}

static int check_part(struct io *io, int dir, const char *name, bool is_deep,
                      struct found_facts *facts, struct error *e)
{
    if (found_is_safetensors_name(name) || found_is_torch_name(name)) {
        return found_check_file(io, dir, name, is_deep, facts, e);
    }
    if (str_ends(name, ".index.json")) {
        return check_index(io, dir, name, e);
    }
    if (strncmp(name, "pytorch_model_fsdp", 18) == 0 ||
        (strncmp(name, "optimizer_", 10) == 0 && !strchr(name, '.'))) {
        return check_directory(io, dir, name, facts, e);
    }
    return 0;
}

int found_check_trainer(struct io *io, int dir, uint64_t step, bool is_deep,
                        struct found_facts *facts, struct error *e)
{
    _strlist_ struct strlist names = {0};
    bool has_weights = false;
    int rc = check_state(io, dir, step, e);

    rc = rc < 0 ? rc : found_names(io, dir, &names, e);
    rc = rc < 0 ? rc : check_ranks(&names, e);
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        has_weights = has_weights || is_weights(names.items[i]);
        rc = check_part(io, dir, names.items[i], is_deep, facts, e);
    }
    if (rc == 0 && !has_weights) {
        rc = error_text(e, ENOENT, "it has no weights: no model.safetensors, "
                        "pytorch_model.bin or the like");
    }
    return rc;
}
