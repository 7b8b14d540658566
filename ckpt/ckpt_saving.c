/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/pages.h"
#include "base/str.h"
#include "muster.h"

#include <errno.h>
#include <stdlib.h>

void saving_destroy(struct saving *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; s->keys && i < s->n; i++) {
        free(s->keys[i]);
    }
    free(s->keys);
    free(s->pieces);
    free(s->sums);
    free(s->part_pieces);
    image_release(&s->image);
    part_release(&s->table);
    free(s);
}

int saving_list(struct muster_ckpt *ck, struct saving *s, struct error *e)
{
    struct saving *old = ck->planned;

    s->n_calls = ck->registry.n_calls;
    if (!old || !old->table.pieces || old->n_calls != s->n_calls) {
        return registry_table(&ck->registry, ck->group.world,
                              ck->m ? (uint32_t)muster_node(ck->m) : 0, &s->table, e);
    }
    s->is_as_before = true;
    s->table = old->table;
    old->table = (struct part){0};
    free(take_ptr(&s->table.state));
    return registry_state(&ck->registry, &s->table.state, e);
}

static char *chunk_name(uint32_t chunk, const char *name)
{
    _buf_ struct buf b = {0};

    buf_printf(&b, ".chunk/%u/%s", chunk, name);
    return buf_take(&b);
}

static int take_piece(struct muster_ckpt *ck, struct saving *s, size_t place)
{
    const struct part_piece *p = &s->table.pieces[place];
    const struct reg_piece *memory = &ck->registry.pieces[place];
    struct image_piece *to = &s->pieces[s->n++];
    char *name = (char *)p->name;

    if (ck->shares[place].chunk > 0) {
        name = chunk_name(ck->shares[place].chunk, p->name);
        s->keys[s->n - 1] = name;
    }
    to->tensor = (struct st_tensor){name, p->dtype, p->n_dims, p->len, 0, 0, place};
    to->name = p->name;
    to->shape = p->shape;
    to->at = p->at;
    to->data = memory->data;
    to->strides = memory->strides;
    to->device = memory->device;
    return name ? 0 : -ENOMEM;
}

/* The part is what will be written, too. */
static void describe(struct muster_ckpt *ck, const struct opening *first,
                     struct saving *s)
{
    uint32_t generation = ck->m ? (uint32_t)muster_generation(ck->m) : 1;

    s->part = s->table;
    s->part.step = (uint64_t)first->step;
    s->part.file_bytes = s->image.bytes;
    s->part.pieces = s->part_pieces;
    s->part.n_pieces = s->n;
    str_copy(s->part.uuid, sizeof(s->part.uuid), first->uuid);
    for (size_t i = 0; i < s->n && !s->is_as_before; i++) {
        const struct image_piece *p = &s->pieces[i];
        const struct st_tensor *t = &p->tensor;

        s->part_pieces[i] = (struct part_piece){p->name, t->dtype, t->n_dims, p->shape,
                                                p->at, t->shape, t->begin};
    }
    s->job = (struct save_job){
        .io = ck->io, .root = ck->root, .root_path = ck->root_path,
        .rank = ck->group.rank, .image = &s->image, .part = &s->part, .plan = s->plan,
        .n_threads = (unsigned)ck->options.n_threads, .flags = first->flags,
        .gather = {.step = (uint64_t)first->step, .uuid = s->part.uuid,
                   .generation = generation,
                   .token = ck->m ? (uint64_t)generation << 32 : 0,
                   .n_ranks = ck->group.world},
    };
}

/* What is registered has the same table, and may be somewhere else. */
static void rebind(struct muster_ckpt *ck, struct saving *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct image_piece *to = &s->pieces[i];
        const struct part_piece *p = &s->table.pieces[to->tensor.place];
        const struct reg_piece *memory = &ck->registry.pieces[to->tensor.place];

        if (ck->shares[to->tensor.place].chunk == 0) {
            to->tensor.name = (char *)p->name;
        }
        to->tensor.shape = p->len;
        to->name = p->name;
        to->shape = p->shape;
        to->at = p->at;
        to->data = memory->data;
        to->strides = memory->strides;
        to->device = memory->device;
    }
}

bool saving_plan_again(struct muster_ckpt *ck, const struct opening *first,
                       struct saving *s)
{
    struct saving *old = ck->planned;

    if (!old || !image_set_step(&old->image, (uint64_t)first->step, first->uuid)) {
        return false;
    }
    s->pieces = take_ptr(&old->pieces);
    s->part_pieces = take_ptr(&old->part_pieces);
    s->keys = take_ptr(&old->keys);
    s->n = old->n;
    s->plan = old->plan;
    s->image = old->image;
    old->image = (struct image){0};
    saving_forget_plan(ck);
    if (!s->is_as_before) {
        rebind(ck, s);
    }
    describe(ck, first, s);
    return true;
}

void saving_keep_plan(struct muster_ckpt *ck, struct saving *s)
{
    saving_forget_plan(ck);
    if (s->image.pieces) {
        ck->planned = s;
    } else {
        saving_destroy(s);
    }
}

void saving_forget_plan(struct muster_ckpt *ck)
{
    saving_destroy(ck->planned);
    ck->planned = NULL;
}

static size_t count_mine(const struct muster_ckpt *ck, const struct saving *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->table.n_pieces; i++) {
        n += ck->shares[i].is_mine;
    }
    return n;
}

int saving_plan(struct muster_ckpt *ck, const struct opening *first,
                     struct saving *s, struct error *e)
{
    const struct image_of of = {(uint64_t)first->step, first->uuid, ck->sum.has_pieces};
    size_t room = count_mine(ck, s) + 1;
    int rc = 0;

    s->plan = ++ck->n_plans;
    s->is_as_before = false; /* others' tables are not */

    s->pieces = pages_calloc(room, sizeof(*s->pieces));
    s->part_pieces = pages_calloc(room, sizeof(*s->part_pieces));
    s->keys = calloc(room, sizeof(*s->keys));
    if (!s->pieces || !s->part_pieces || !s->keys) {
        return error_set(e, ENOMEM, "save");
    }
    for (size_t i = 0; i < s->table.n_pieces && rc == 0; i++) {
        size_t place = ck->shares[i].by_name;

        rc = ck->shares[place].is_mine ? take_piece(ck, s, place) : 0;
    }
    if (rc < 0) {
        return error_set(e, ENOMEM, "save");
    }
    rc = image_plan(s->pieces, s->n, &of, &s->image, e);
    if (rc == 0) {
        describe(ck, first, s);
    }
    return rc;
}
