/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/resolve.h"

#include <string.h>

static bool add(struct spec_result *to, char *path, char *origin)
{
    struct spec_origin *grown;

    grown = reallocarray(to->origins, to->n_origins + 1, sizeof(*grown));
    if (grown) {
        to->origins = grown;
    }
    if (!grown || !path || !origin) {
        free(path);
        free(origin);
        return false;
    }
    grown[to->n_origins++] =
        (struct spec_origin){.path = path, .origin = origin};
    return true;
}

static char *join(const char *prefix, const char *name)
{
    struct buf b = {0};

    buf_printf(&b, "%s%s%s", prefix, prefix[0] ? "." : "", name);
    return buf_take(&b);
}

static bool add_names(struct spec_result *to, const struct node *map,
                      const char *prefix)
{
    for (size_t i = 0; i < map->n; i++) {
        if (!add(to, join(prefix, map->pairs[i].key),
                 place_text(&map->pairs[i].value->place))) {
            return false;
        }
    }
    return true;
}

static bool walk(struct spec_result *to, const struct field *fields,
                 const struct node *map, const char *prefix)
{
    for (; fields->name; fields++) {
        const struct node *n = node_get(map, fields->name);
        _free_ char *path = join(prefix, fields->name);
        bool good = true;

        if (!path) {
            return false;
        }
        if (!n) {
            continue;
        }
        if (fields->type == FIELD_MAP) {
            good = walk(to, fields->fields, n, path);
        } else if (fields->type == FIELD_PAIRS ||
                   fields->type == FIELD_NAMED) {
            good = add_names(to, n, path);
        } else {
            good = add(to, take_ptr(&path), place_text(&n->place));
        }
        if (!good) {
            return false;
        }
    }
    return true;
}

bool resolve_origins(const struct node *tree, struct spec_result *to)
{
    return walk(to, job_fields, tree, "");
}
