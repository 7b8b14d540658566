/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that is in a directory of several files, whoever wrote it: each file that has a
 * structure is looked at, and each directory in it by its own rule. What has no format
 * that is known here says nothing.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/found_json.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

enum { MAX_JSON_BYTES = 256 << 20, MAX_DEPTH = 4 };

int found_read_json(struct io *io, int dir, const char *name, json_t **ret,
                    struct error *e)
{
    _free_ char *text = NULL;
    size_t len = 0;
    int rc = io_read_file(io, dir, name, MAX_JSON_BYTES, &text, &len);

    if (rc == -ENOENT) {
        return error_text(e, ENOENT, "it was never finished: no %s", name);
    }
    if (rc < 0) {
        return found_fail_to_read(rc, name, e);
    }
    *ret = found_json_parse(text, len);
    return *ret ? 0 : error_text(e, ERR_FORMAT, "%s is cut or damaged: no JSON",
                                 name);
}

static int check_file(const struct found_tree *t, int dir, const char *name,
                      struct found_facts *facts, struct error *e)
{
    struct found_facts here = *facts;
    int rc = found_check_file(t->io, dir, name,
                              found_is_safetensors_name(name)
                                  ? FOUND_SAFETENSORS : FOUND_TORCH,
                              t->is_deep, &here, e);

    if (rc < 0 && here.is_foreign) {
        return 0;
    }
    *facts = here;
    return rc;
}

static int walk(struct found_tree *t, int dir, unsigned depth,
                struct found_facts *facts, struct error *e);

static bool is_dcp_name(const char *name)
{
    return str_starts(name, "pytorch_model_fsdp") ||
           (str_starts(name, "optimizer_") && !strchr(name, '.'));
}

static bool has_dcp(const struct strlist *names)
{
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->items[i], ".metadata") == 0 ||
            str_ends(names->items[i], ".distcp") ||
            found_matches(names->items[i], "__", ".metadata")) {
            return true;
        }
    }
    return false;
}

static int check_directory(struct found_tree *t, int fd, const char *name,
                           unsigned depth, struct found_facts *facts,
                           struct error *e)
{
    _strlist_ struct strlist names = {0};
    int rc = found_names(t->io, fd, &names, e);

    if (rc == 0 && (is_dcp_name(name) || has_dcp(&names))) {
        rc = found_check_dcp(t->io, fd, 0, t->is_deep, facts, e);
        t->has_weights |= !str_starts(name, "optimizer");
        return rc;
    }
    return rc < 0 ? rc : walk(t, fd, depth + 1, facts, e);
}

static int check_part(struct found_tree *t, int dir, const char *name,
                      unsigned depth, struct found_facts *facts, struct error *e)
{
    int fd, rc;

    if (name[0] == '.') {
        return 0;
    }
    t->has_weights |= found_is_weights_name(name);
    if (str_ends(name, ".index.json")) {
        return found_check_index(t->io, dir, name, e);
    }
    fd = depth < MAX_DEPTH ? found_open_dir(t->io, dir, name) : -ENOTDIR;
    if (fd >= 0) {
        rc = check_directory(t, fd, name, depth, facts, e);
        t->io->ops->close(t->io, fd);
        return rc < 0 ? error_wrap(e, "%s", name) : 0;
    }
    if (fd != -ENOTDIR) {
        return error_set(e, -fd, "open %s", name);
    }
    if (found_is_safetensors_name(name) || found_is_torch_name(name) ||
        found_matches(name, "random_states_", ".pkl")) {
        return check_file(t, dir, name, facts, e);
    }
    return t->has_texts ? found_check_text(t->io, dir, name, e) : 0;
}

static int walk(struct found_tree *t, int dir, unsigned depth,
                struct found_facts *facts, struct error *e)
{
    _strlist_ struct strlist names = {0};
    int rc = found_names(t->io, dir, &names, e);

    for (size_t i = 0; i < names.n && rc == 0; i++) {
        rc = check_part(t, dir, names.items[i], depth, facts, e);
    }
    rc = rc < 0 ? rc : found_check_shards(t, dir, &names, e);
    return rc < 0 ? rc : found_check_pieces(t->io, dir, &names, e);
}

int found_check_tree(struct found_tree *t, int dir, struct found_facts *facts,
                     struct error *e)
{
    return walk(t, dir, 0, facts, e);
}
