/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapping a box of a tensor instead of copying it: where it lies together in one file,
 * aligned as its elements are, out of the memory in which this node's agent has what
 * this rank has saved, or else out of that file. Anything else is read.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "ckpt/digest.h"
#include "ckpt/snap.h"
#include "ckpt/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Where a box lies. */
struct place {
    bool is_together; /* in that file; else it is to be read */
    uint32_t file;
    uint64_t begin, bytes;
};

/* Nothing that is asked for here is written to by the registry. */
static int parse(struct registry *r, const struct muster_ckpt_tensor *box,
                 struct error *e)
{
    struct muster_ckpt_tensor t = *box;

    t.data = r; /* some memory: it has none yet */
    t.strides = NULL;
    return registry_tensor(r, &t, e);
}

static int count_bytes(const struct registry *r, uint64_t *ret, struct error *e)
{
    *ret = 0;
    for (size_t i = 0; i < r->n_pieces; i++) {
        const struct reg_piece *p = &r->pieces[i];
        struct box b = box_whole(p->n_dims, p->len);
        uint64_t n, bytes;

        if (!box_volume(&b, &n) || !dtype_bytes(p->dtype, n, &bytes) ||
            __builtin_add_overflow(*ret, bytes, ret)) {
            return error_text(e, EINVAL, "tensor '%.100s': no memory has so many bytes",
                              p->name);
        }
    }
    return 0;
}

static void find_together(const struct load *l, size_t tensor, const struct box *want,
                          struct place *ret)
{
    struct index_tensor t = index_tensor(l->index, tensor);
    uint32_t bits = dtype_bits(t.dtype);
    uint64_t row = t.n_dims ? want->at[0] : 0, end_row, end;
    size_t first = 0, behind = t.n_chunks;

    if (t.n_dims > 0 && !__builtin_add_overflow(row, want->len[0], &end_row)) {
        index_chunks_of_rows(l->index, &t, tensor, row, end_row, &first, &behind);
    }
    for (size_t i = first; i < behind; i++) {
        struct index_chunk c = index_chunk(l->index, &t, tensor, i);
        struct box chunk = index_chunk_box(&t, &c);

        if (!box_contains(&chunk, want) || !box_is_together(want, &chunk)) {
            continue;
        }
        ret->file = c.file;
        ret->begin = c.begin + box_first(&chunk, want) * bits / 8;
        ret->is_together =
            !__builtin_add_overflow(ret->begin, ret->bytes, &end) &&
            end <= l->step.manifest.files[c.file].bytes &&
            (bits < 8 || ret->begin % (bits / 8) == 0);
        return;
    }
}

static int find_place(const struct load *l, const struct registry *r, struct place *ret,
                      struct error *e)
{
    const struct reg_piece *p = &r->pieces[0];
    struct load_want want = {.name = p->name, .dtype = p->dtype, .n_dims = p->n_dims,
                             .shape = p->shape};
    struct box box = {.n_dims = p->n_dims};
    size_t tensor = 0;
    int rc = load_find(l, &want, 0, &tensor, e);

    if (rc == 0 && r->n_pieces == 1 && ret->bytes > 0) {
        memcpy(box.at, p->at, p->n_dims * sizeof(*box.at));
        memcpy(box.len, p->len, p->n_dims * sizeof(*box.len));
        find_together(l, tensor, &box, ret);
    }
    return rc;
}

/* --- the ways --- */

static bool is_right(const struct load *l, const struct view_map *m,
                     const struct place *p)
{
    uint64_t bytes = l->step.manifest.files[p->file].bytes;
    uint64_t last = (p->begin + p->bytes - 1) / DIGEST_BLOCK_BYTES;
    size_t n;
    const uint64_t *blocks = index_blocks(l->index, p->file, &n);

    for (uint64_t i = p->begin / DIGEST_BLOCK_BYTES; i <= last; i++) {
        uint64_t at = i * DIGEST_BLOCK_BYTES, left = bytes - at;

        if (i >= n ||
            digest_short_of(view_map_at(m, at), left < DIGEST_BLOCK_BYTES
                                                    ? left : DIGEST_BLOCK_BYTES) !=
                blocks[i]) {
            return false;
        }
    }
    return true;
}

/* To be verified all blocks have to be there that it lies in. */
static int map_part(struct views *list, const struct view_source *s,
                    const struct place *p, unsigned flags, struct view_map **ret)
{
    uint64_t begin = p->begin, end = p->begin + p->bytes;

    if (flags & MUSTER_CKPT_VERIFY) {
        begin = begin / DIGEST_BLOCK_BYTES * DIGEST_BLOCK_BYTES;
        end = (end - 1) / DIGEST_BLOCK_BYTES * DIGEST_BLOCK_BYTES + DIGEST_BLOCK_BYTES;
        end = end < s->bytes ? end : s->bytes;
    }
    return views_map(list, s, flags & MUSTER_CKPT_WRITABLE, begin, end, ret, NULL);
}

static int open_source(struct muster_ckpt *ck, struct view_source *s)
{
    const struct step *step = &ck->load.step;

    if (s->where == MUSTER_CKPT_IN_MEMORY) {
        s->skip = SNAP_PAGE_BYTES;
        return ck->agent.ops ? save_agent_open(ck->agent.self, ck->group.rank, step,
                                               s->file)
                             : -ENOENT;
    }
    return step->io == io_system()
               ? step->io->ops->open_file(step->io, step->dir,
                                          step->manifest.files[s->file].name)
               : -ENOTSUP;
}

static int map_from(struct muster_ckpt *ck, struct views *list, const struct place *p,
                    enum muster_ckpt_where where, unsigned flags,
                    struct muster_ckpt_view **ret)
{
    struct view_source s = {.uuid = ck->load.step.commit.uuid, .file = p->file,
                            .where = where,
                            .bytes = ck->load.step.manifest.files[p->file].bytes};
    _close_ int fd = -1;
    struct view_map *m = flags & MUSTER_CKPT_WRITABLE ? NULL : views_find(list, &s);

    if (!m) {
        fd = s.fd = open_source(ck, &s);
        if (fd < 0 || map_part(list, &s, p, flags, &m) < 0) {
            return -ENOENT;
        }
    }
    if ((flags & MUSTER_CKPT_VERIFY) && !is_right(&ck->load, m, p)) {
        view_map_drop(m);
        return -ENOENT;
    }
    return view_create(m, p->begin, p->bytes, ret, &ck->error);
}

static int read_it(struct muster_ckpt *ck, struct views *list, int64_t step,
                   const struct muster_ckpt_tensor *box, uint64_t bytes,
                   struct muster_ckpt_view **ret)
{
    struct muster_ckpt_tensor t = *box;
    struct view_map *m = NULL;
    int rc = views_make(list, bytes, &m, &ck->error);

    if (rc < 0) {
        return rc;
    }
    t.data = view_map_at(m, 0);
    t.strides = NULL;
    rc = bytes ? ckpt_read_one(ck, step, &t) : 0;
    if (rc < 0) {
        view_map_drop(m);
        return rc;
    }
    return view_create(m, 0, bytes, ret, &ck->error);
}

/* --- all --- */

static int find_list(struct muster_ckpt *ck, struct views **ret)
{
    struct client_place *place = ck->agent.ops ? save_agent_place(ck->agent.self)
                                               : &ck->views;
    struct views *made = NULL;

    if (!place->data && views_create(&made) < 0) {
        return error_set(&ck->error, ENOMEM, "map a checkpoint");
    }
    if (made) {
        *place = (struct client_place){made, views_forget};
    }
    *ret = place->data;
    return 0;
}

int ckpt_map_one(struct muster_ckpt *ck, int64_t step,
                 const struct muster_ckpt_tensor *box, unsigned flags,
                 struct muster_ckpt_view **ret)
{
    struct registry r = {0};
    struct place p = {0};
    struct views *list = NULL;
    struct error *e = &ck->error;
    int rc;

    registry_exchange_finder(&r, &ck->registry);
    rc = parse(&r, box, e);
    rc = rc < 0 ? rc : count_bytes(&r, &p.bytes, e);
    rc = rc < 0 ? rc : ckpt_open_step(ck, step, e);
    if (rc == 0 && r.n_pieces > 0) {
        rc = find_place(&ck->load, &r, &p, e);
    }
    registry_exchange_finder(&r, &ck->registry);
    registry_release(&r);
    rc = rc < 0 ? rc : find_list(ck, &list);
    if (rc < 0) {
        return rc;
    }
    if (p.is_together) {
        rc = map_from(ck, list, &p, MUSTER_CKPT_IN_MEMORY, flags, ret);
        rc = rc == -ENOENT ? map_from(ck, list, &p, MUSTER_CKPT_IN_FILE, flags, ret)
                           : rc;
    }
    return !p.is_together || rc == -ENOENT ? read_it(ck, list, step, box, p.bytes, ret)
                                           : rc;
}
