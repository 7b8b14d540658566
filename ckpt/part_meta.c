/* SPDX-License-Identifier: Apache-2.0 */
/* What an encoded part says besides its arrays. */
#include <config.h>

#include "ckpt/part_priv.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART_VERSION = 1 };

static char *number(uint64_t n)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
    return strdup(text);
}

/* [["name", is_per_rank], ...] */
static char *list_blobs(const struct part *p)
{
    json_t *all = json_array();
    char *text;

    for (size_t i = 0; i < p->n_blobs; i++) {
        json_array_append_new(all, json_pack("[sb]", p->blobs[i].name,
                                             (int)p->blobs[i].is_per_rank));
    }
    text = json_array_size(all) == p->n_blobs ? json_dumps(all, JSON_COMPACT)
                                              : NULL;
    json_decref(all);
    return text;
}

bool part_make_meta(const struct part *p, struct st_meta to[PART_N_META])
{
    struct st_meta all[PART_N_META] = {
        {(char *)"part", number(PART_VERSION)},   {(char *)"step", number(p->step)},
        {(char *)"uuid", strdup(p->uuid)},   {(char *)"rank", number(p->rank)},
        {(char *)"ranks", number(p->n_ranks)}, {(char *)"node", number(p->node)},
        {(char *)"bytes", number(p->file_bytes)}, {(char *)"blobs", list_blobs(p)},
        {(char *)"state", strdup(p->state ? p->state : "")},
    };
    bool is_whole = true;

    for (size_t i = 0; i < PART_N_META; i++) {
        is_whole = is_whole && all[i].value;
        to[i] = all[i];
    }
    return is_whole;
}

void part_free_meta(struct st_meta meta[PART_N_META])
{
    for (size_t i = 0; i < PART_N_META; i++) {
        free(meta[i].value);
    }
}

static int take_number(const struct st_file *f, const char *key, uint64_t max,
                       uint64_t *ret, struct error *e)
{
    const char *text = st_meta(f, key);

    if (!text || str_to_u64(text, ret) < 0 || *ret > max) {
        return error_text(e, ERR_FORMAT, "the part has no '%s'", key);
    }
    return 0;
}

static int check_version(const struct st_file *f, struct error *e)
{
    uint64_t version = 0;
    int rc = take_number(f, "part", UINT64_MAX, &version, e);

    return rc < 0 || version == PART_VERSION
               ? rc
               : error_text(e, ERR_VERSION, "a part of format %llu, written by a newer muster",
                            (unsigned long long)version);
}

int part_take_bytes(const struct st_file *f, uint64_t *ret, struct error *e)
{
    int rc = take_number(f, "bytes", INT64_MAX, ret, e);

    return rc < 0 ? rc : check_version(f, e);
}

static int take_blobs(const char *text, struct part *p, struct error *e)
{
    json_t *all = text ? json_loads(text, 0, NULL) : NULL, *entry;
    size_t i;
    int rc = json_is_array(all) ? 0 : -ERR_FORMAT;

    p->blobs = calloc(json_array_size(all) + 1, sizeof(*p->blobs));
    rc = p->blobs ? rc : -ENOMEM;
    json_array_foreach(all, i, entry) {
        const char *name;
        int is_per_rank;

        if (rc < 0 || json_unpack(entry, "[sb!]", &name, &is_per_rank) < 0) {
            rc = rc < 0 ? rc : -ERR_FORMAT;
            break;
        }
        p->blobs[i].name = strdup(name);
        p->blobs[i].is_per_rank = is_per_rank;
        p->n_blobs++;
        rc = p->blobs[i].name ? 0 : -ENOMEM;
    }
    json_decref(all);
    if (rc == -ENOMEM) {
        return error_set(e, ENOMEM, "read a part");
    }
    return rc < 0 ? error_text(e, ERR_FORMAT, "the part has no 'blobs'") : 0;
}

static int take_state(const char *text, struct part *p, struct error *e)
{
    json_t *state;
    bool is_object;

    if (!text || !*text) {
        return 0;
    }
    state = json_loads(text, 0, NULL);
    is_object = json_is_object(state);
    json_decref(state);
    if (!is_object) {
        return error_text(e, ERR_FORMAT, "the part's state is no JSON object");
    }
    p->state = strdup(text);
    return p->state ? 0 : error_set(e, ENOMEM, "read a part");
}

int part_take_meta(const struct st_file *f, struct part *p, struct error *e)
{
    const char *uuid = st_meta(f, "uuid");
    uint64_t rank = 0, n_ranks = 0, node = 0;
    int rc = check_version(f, e);

    rc = rc < 0 ? rc : take_number(f, "step", INT64_MAX, &p->step, e);
    rc = rc < 0 ? rc : take_number(f, "ranks", INT32_MAX, &n_ranks, e);
    rc = rc < 0 ? rc : take_number(f, "rank", INT32_MAX, &rank, e);
    rc = rc < 0 ? rc : take_number(f, "node", INT32_MAX, &node, e);
    rc = rc < 0 ? rc : take_number(f, "bytes", INT64_MAX, &p->file_bytes, e);
    if (rc == 0 && (rank >= n_ranks || !uuid ||
                    strlen(uuid) >= sizeof(p->uuid))) {
        rc = error_text(e, ERR_FORMAT, "the part has no uuid, or is of rank %llu "
                        "of %llu", (unsigned long long)rank,
                        (unsigned long long)n_ranks);
    }
    if (rc < 0) {
        return rc;
    }
    p->rank = (uint32_t)rank;
    p->n_ranks = (uint32_t)n_ranks;
    p->node = (uint32_t)node;
    str_copy(p->uuid, sizeof(p->uuid), uuid);
    rc = take_blobs(st_meta(f, "blobs"), p, e);
    return rc < 0 ? rc : take_state(st_meta(f, "state"), p, e);
}
