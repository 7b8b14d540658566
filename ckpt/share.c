/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/share.h"

#include "base/cleanup.h"
#include "base/pages.h"
#include "base/sort.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A piece that a rank holds. */
struct held {
    const struct part_piece *piece;
    uint64_t key; /* of two names that begin alike orders most; see key_of() */
    uint64_t bytes;
    uint32_t rank;
    bool is_whole; /* as nearly all are where ranks do not share tensors */
    bool is_first; /* of its tensor */
    bool is_written;
};

/* A box and who holds it: held[first, first + n), by rank. */
struct claim {
    size_t first, n;
    uint64_t bytes;
};

struct sharing {
    struct held *held; /* by name, then box, then rank */
    size_t n_held;
    struct claim *claims;
    size_t n_claims;
    bool is_shared; /* some box has several holders */
    uint64_t *load; /* bytes that each rank writes */
};

static void sharing_release(struct sharing *s)
{
    free(s->held);
    free(s->claims);
    free(s->load);
}

static struct box box_of(const struct part_piece *p)
{
    struct box b = {.n_dims = p->n_dims};

    if (p->n_dims > 0) {
        memcpy(b.at, p->at, p->n_dims * sizeof(*b.at));
        memcpy(b.len, p->len, p->n_dims * sizeof(*b.len));
    }
    return b;
}

static uint64_t bytes_of(const struct part_piece *p)
{
    uint64_t n = 0, bytes = 0;

    return box_volume_of(p->n_dims, p->len, &n) && dtype_bytes(p->dtype, n, &bytes)
               ? bytes : 0;
}

static bool is_without_elements(uint32_t n_dims, const uint64_t *len)
{
    uint64_t n;

    return box_volume_of(n_dims, len, &n) && n == 0;
}

static int compare_numbers(const uint64_t *a, const uint64_t *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

/* Of two pieces of one tensor. */
static int compare_boxes(const struct part_piece *a, const struct part_piece *b)
{
    int order;

    if (a->n_dims != b->n_dims) {
        return a->n_dims < b->n_dims ? -1 : 1;
    }
    order = compare_numbers(a->at, b->at, a->n_dims);
    return order ? order : compare_numbers(a->len, b->len, a->n_dims);
}

/* Eight bytes of a name behind what all begin with, the first one highest: names need not
 * be fetched to be told apart. */
static uint64_t key_of(const char *name, size_t alike)
{
    uint64_t key = 0;

    name += alike;
    for (int i = 0; i < 8; i++) {
        key = key << 8 | (unsigned char)*name;
        name += *name != '\0';
    }
    return key;
}

static int by_name(const void *a, const void *b)
{
    const struct held *x = a, *y = b;
    int order = strcmp(x->piece->name, y->piece->name);

    order = order ? order : compare_boxes(x->piece, y->piece);
    if (order) {
        return order;
    }
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return x->piece < y->piece ? -1 : x->piece > y->piece; /* of one table */
}

/* The largest first: they are hardest to balance. */
static int by_size(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;

    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

/* --- messages --- */

static int tell(const struct held *a, const struct held *b, const char *what,
                struct error *e)
{
    _buf_ struct buf name = {0};
    struct box x = box_of(a->piece), y = box_of(b->piece);
    char at[200], bt[200];

    utf8_put_printable(&name, a->piece->name, 200);
    box_format(&x, at, sizeof(at));
    box_format(&y, bt, sizeof(bt));
    return error_text(e, EINVAL, "tensor '%s': %s of rank %u and %s of rank %u "
                      "%s", buf_str(&name), at, a->rank, bt, b->rank, what);
}

static int tell_hole(const struct held *a, const struct box *hole,
                     struct error *e)
{
    _buf_ struct buf name = {0};
    char text[200];

    utf8_put_printable(&name, a->piece->name, 200);
    box_format(hole, text, sizeof(text));
    return error_text(e, EINVAL, "tensor '%s': no rank has %s of it",
                      buf_str(&name), text);
}

/* --- steps --- */

/* Makes the key of the last one. All before begin alike, with so many bytes: they keep
 * theirs, if this one does, too. */
static void make_key(struct held *held, size_t n, size_t *alike)
{
    const char *first = held[0].piece->name, *name = held[n - 1].piece->name;
    size_t k = 0;

    *alike = n == 1 ? strlen(first) : *alike;
    if (strncmp(name, first, *alike) == 0) {
        held[n - 1].key = key_of(name, *alike);
        return;
    }
    while (name[k] == first[k]) {
        k++;
    }
    *alike = k;
    for (size_t i = 0; i < n; i++) {
        held[i].key = key_of(held[i].piece->name, k);
    }
}

/* By one byte of the key. What has the same one stays in its order. */
static void sort_by_byte(const struct held *from, struct held *to, size_t n, unsigned shift)
{
    size_t ends[257] = {0};

    for (size_t i = 0; i < n; i++) {
        ends[(from[i].key >> shift & 255) + 1]++;
    }
    for (size_t b = 1; b < 256; b++) {
        ends[b] += ends[b - 1];
    }
    for (size_t i = 0; i < n; i++) {
        to[ends[from[i].key >> shift & 255]++] = from[i];
    }
}

/* By key, from the last byte on; where that is the same, by all of the name. Not by
 * sort_by_key(), which moves each item once, to wherever it belongs: of many tensors sharing
 * out took up to a third longer with that. */
static int sort_held(struct held **held, size_t n)
{
    struct held *from = *held, *to = pages_calloc(n + 1, sizeof(*to));
    uint64_t differs = 0;

    if (!to) {
        return -ENOMEM;
    }
    for (size_t i = 1; i < n; i++) {
        differs |= from[i].key ^ from[0].key;
    }
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if (differs >> shift & 255) {
            struct held *sorted = to;

            sort_by_byte(from, sorted, n, shift);
            to = from;
            from = sorted;
        }
    }
    *held = from;
    free(to);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && from[end].key == from[i].key; end++) {
        }
        sort_items(&from[i], end - i, sizeof(*from), by_name);
    }
    return 0;
}

/* All that is to be known of a piece is looked at together: it lies together in memory. */
static void collect(const struct part *tables, uint32_t n, struct sharing *s)
{
    size_t alike = 0;

    for (uint32_t r = 0; r < n; r++) {
        for (size_t i = 0; i < tables[r].n_pieces; i++) {
            const struct part_piece *p = &tables[r].pieces[i];

            s->held[s->n_held++] = (struct held){
                .piece = p, .rank = r, .bytes = bytes_of(p),
                .is_whole = box_is_whole(p->n_dims, p->shape, p->at, p->len)};
            make_key(s->held, s->n_held, &alike);
        }
    }
}

static int make_room(const struct part *tables, uint32_t n, struct sharing *s)
{
    size_t n_all = 0;

    for (uint32_t r = 0; r < n; r++) {
        n_all += tables[r].n_pieces;
    }
    s->held = pages_calloc(n_all + 1, sizeof(*s->held));
    s->claims = calloc(n_all + 1, sizeof(*s->claims));
    s->load = calloc(n + 1, sizeof(*s->load));
    return s->held && s->claims && s->load ? 0 : -ENOMEM;
}

static bool is_same_tensor(const struct held *a, const struct held *b)
{
    return a->key == b->key && strcmp(a->piece->name, b->piece->name) == 0;
}

static int check_alike(const struct held *a, const struct held *b,
                       struct error *e)
{
    const struct part_piece *x = a->piece, *y = b->piece;

    if (x->dtype != y->dtype) {
        return tell(a, b, "have different types", e);
    }
    if (x->n_dims != y->n_dims ||
        compare_numbers(x->shape, y->shape, x->n_dims) != 0) {
        return tell(a, b, "are of tensors of different shapes", e);
    }
    return 0;
}

/* The pieces [first, end) are one tensor's: they are alike, and each box of it
 * becomes a claim. Of a tensor that is not empty, empty ones do not count. */
static int claim_boxes(struct sharing *s, size_t first, size_t end,
                       struct error *e)
{
    bool is_empty = is_without_elements(s->held[first].piece->n_dims,
                                        s->held[first].piece->shape);

    for (size_t i = first; i < end; i++) {
        struct claim *last = s->n_claims ? &s->claims[s->n_claims - 1] : NULL;
        struct held *h = &s->held[i];
        int rc = check_alike(&s->held[first], h, e);

        if (rc < 0) {
            return rc;
        }
        if (is_empty ? i > first
                     : is_without_elements(h->piece->n_dims, h->piece->len)) {
            continue; /* one of an empty tensor is enough */
        }
        if (last && last->first >= first &&
            compare_boxes(s->held[last->first].piece, h->piece) == 0) {
            last->n = i + 1 - last->first;
            s->is_shared = true;
            continue;
        }
        s->claims[s->n_claims++] = (struct claim){i, 1, h->bytes};
    }
    return 0;
}

static int check_cover(const struct sharing *s, size_t first_claim,
                       const struct held *any, struct error *e)
{
    size_t n = s->n_claims - first_claim;
    const struct claim *claims = s->claims + first_claim;
    _free_ struct box *boxes = NULL;
    struct box_cover found;
    struct box whole;
    int rc;

    if (n == 1 && s->held[claims->first].is_whole) {
        return 0;
    }
    whole = box_whole(any->piece->n_dims, any->piece->shape);
    boxes = calloc(n + 1, sizeof(*boxes));
    if (!boxes) {
        return error_set(e, ENOMEM, "share out what is saved");
    }
    for (size_t i = 0; i < n; i++) {
        boxes[i] = box_of(s->held[claims[i].first].piece);
    }
    rc = box_check_cover(&whole, boxes, n, &found);
    if (rc == BOX_HOLE) {
        return tell_hole(any, &found.hole, e);
    }
    if (rc == BOX_OUTSIDE) {
        return tell(&s->held[claims[found.a].first],
                    &s->held[claims[found.a].first], "lie outside of it", e);
    }
    if (rc == BOX_OVERLAP) {
        return tell(&s->held[claims[found.a].first],
                    &s->held[claims[found.b].first],
                    "overlap: ranks hold the same box, or boxes that are apart",
                    e);
    }
    return rc < 0 ? error_set(e, ENOMEM, "share out what is saved") : 0;
}

static int claim_all(struct sharing *s, struct error *e)
{
    for (size_t i = 0, end; i < s->n_held; i = end) {
        size_t first_claim = s->n_claims;
        struct held *first = &s->held[i];
        int rc;

        first->is_first = true;
        for (end = i + 1; end < s->n_held &&
                          is_same_tensor(first, &s->held[end]); end++) {
        }
        if (end == i + 1 && first->is_whole) { /* there is nothing to be found out */
            s->claims[s->n_claims++] = (struct claim){i, 1, first->bytes};
            continue;
        }
        rc = claim_boxes(s, i, end, e);
        rc = rc < 0 ? rc : check_cover(s, first_claim, first, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Each box goes to the one of its holders who has least so far. */
static void choose_writers(struct sharing *s)
{
    if (s->is_shared) {
        sort_items(s->claims, s->n_claims, sizeof(*s->claims), by_size);
    }
    for (size_t i = 0; i < s->n_claims; i++) {
        const struct claim *c = &s->claims[i];
        struct held *best = &s->held[c->first];

        for (size_t k = c->first + 1; k < c->first + c->n; k++) {
            if (s->load[s->held[k].rank] < s->load[best->rank]) {
                best = &s->held[k];
            }
        }
        best->is_written = true;
        s->load[best->rank] += c->bytes;
    }
}

/* Whether some rank writes more than one of held[first, end). */
static bool is_split(const struct sharing *s, size_t first, size_t end,
                     uint32_t *n_written, uint32_t n)
{
    bool is = false;

    memset(n_written, 0, n * sizeof(*n_written));
    for (size_t i = first; i < end; i++) {
        const struct held *h = &s->held[i];

        is = is || (h->is_written && ++n_written[h->rank] > 1);
    }
    return is;
}

static int answer(const struct sharing *s, uint32_t n, uint32_t rank,
                  const struct part_piece *pieces, struct share *to)
{
    _free_ uint32_t *n_written = calloc(n + 1, sizeof(*n_written));
    size_t n_mine = 0;

    if (!n_written) {
        return -ENOMEM;
    }
    for (size_t i = 0, end; i < s->n_held; i = end) {
        uint32_t chunk = 0;
        bool split;

        for (end = i + 1; end < s->n_held && !s->held[end].is_first; end++) {
        }
        split = end > i + 1 && is_split(s, i, end, n_written, n);
        for (size_t k = i; k < end; k++) {
            const struct held *h = &s->held[k];

            if (h->rank == rank) {
                size_t place = (size_t)(h->piece - pieces);

                to[n_mine++].by_name = place;
                to[place].is_mine = h->is_written;
                to[place].chunk = h->is_written && split ? ++chunk : 0;
            }
        }
    }
    return 0;
}

static struct share_sum sum_up(const struct sharing *s)
{
    struct share_sum sum = {0};

    for (size_t i = 0; i < s->n_claims; i++) {
        sum.bytes += s->claims[i].bytes;
        sum.has_pieces |= !s->held[s->claims[i].first].is_whole;
    }
    return sum;
}

int share_out(const struct part *tables, uint32_t n, uint32_t rank,
              struct share **ret, struct share_sum *ret_sum, struct error *e)
{
    __attribute__((cleanup(sharing_release))) struct sharing s = {0};
    _free_ struct share *mine = pages_calloc(tables[rank].n_pieces + 1, sizeof(*mine));
    int rc;

    if (!mine || make_room(tables, n, &s) < 0) {
        return error_set(e, ENOMEM, "share out what is saved");
    }
    collect(tables, n, &s);
    if (sort_held(&s.held, s.n_held) < 0) {
        return error_set(e, ENOMEM, "share out what is saved");
    }
    rc = claim_all(&s, e);
    if (rc < 0) {
        return rc;
    }
    choose_writers(&s);
    if (answer(&s, n, rank, tables[rank].pieces, mine) < 0) {
        return error_set(e, ENOMEM, "share out what is saved");
    }
    *ret = take_ptr(&mine);
    if (ret_sum) {
        *ret_sum = sum_up(&s);
    }
    return 0;
}
