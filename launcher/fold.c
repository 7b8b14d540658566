/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/fold.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_KINDS = 4096,
    MAX_RANKS = 1 << 20,
    WORD_BITS = 64,
    MAX_RANGES = 8,
};

/* A line that waits. */
struct entry {
    struct entry *prev, *next;
    uint64_t since_ms; /* never less than that of the one before */
    uint32_t hash;
    struct fold_line line; /* owns data and ranks */
};

/*
 * A line that finds none like it goes to the end of the queue. It stands there for
 * one stream only, so that it may still go further to the front: when a later line
 * of that stream finds its like before it. Lines that came at once from each rank,
 * one of them different, fold in this way but for that one.
 */
struct fold {
    struct fold_config config;
    uint32_t n_expected;
    struct entry *first, *last;
    size_t n_lines, n_bytes;
    uint16_t n_of_kind[N_KINDS]; /* entries by hash */
    /* By rank and stream: its newest line that it shares with others. */
    struct entry **shared;
    size_t n_shared;
};

struct fold *fold_create(const struct fold_config *config)
{
    struct fold *f = calloc(1, sizeof(*f));

    if (f) {
        f->config = *config;
        f->config.max_lines = config->max_lines < UINT16_MAX
                                  ? config->max_lines : UINT16_MAX - 1;
    }
    return f;
}

static uint32_t hash_of(const struct fold_line *l)
{
    return (uint32_t)hash_bytes(HASH_NONE ^ l->is_err, l->data, l->len);
}

static size_t bytes_of(const struct entry *e)
{
    return sizeof(*e) + e->line.len + e->line.n_words * sizeof(uint64_t);
}

static void entry_free(struct entry *e)
{
    free((char *)(uintptr_t)e->line.data);
    free((uint64_t *)(uintptr_t)e->line.ranks);
    free(e);
}

static bool has(const struct fold_line *l, size_t rank)
{
    return rank / WORD_BITS < l->n_words &&
           l->ranks[rank / WORD_BITS] >> rank % WORD_BITS & 1;
}

static size_t stream_of(uint32_t rank, bool is_err)
{
    return 2 * (size_t)rank + is_err;
}

static void unlink_entry(struct fold *f, struct entry *e)
{
    *(e->prev ? &e->prev->next : &f->first) = e->next;
    *(e->next ? &e->next->prev : &f->last) = e->prev;
}

/* Before `at`; NULL: at the end. */
static void link_entry(struct fold *f, struct entry *e, struct entry *at)
{
    e->next = at;
    e->prev = at ? at->prev : f->last;
    *(e->prev ? &e->prev->next : &f->first) = e;
    *(at ? &at->prev : &f->last) = e;
}

static struct entry *take_first(struct fold *f)
{
    struct entry *e = f->first;

    for (size_t r = 0; r < e->line.n_words * WORD_BITS; r++) {
        size_t i = stream_of((uint32_t)r, e->line.is_err);

        if (i < f->n_shared && f->shared[i] == e) {
            f->shared[i] = NULL;
        }
    }
    unlink_entry(f, e);
    f->n_of_kind[e->hash % N_KINDS]--;
    f->n_lines--;
    f->n_bytes -= bytes_of(e);
    return e;
}

static void show_first(struct fold *f)
{
    struct entry *e = take_first(f);

    f->config.show(f->config.arg, &e->line);
    entry_free(e);
}

void fold_flush(struct fold *f)
{
    while (f->first) {
        show_first(f);
    }
}

void fold_destroy(struct fold *f)
{
    if (!f) {
        return;
    }
    while (f->first) {
        entry_free(take_first(f));
    }
    free(f->shared);
    free(f);
}

void fold_set_ranks(struct fold *f, uint32_t n)
{
    f->n_expected = n;
}

static bool must_wait(const struct fold *f, uint64_t now_ms)
{
    const struct entry *e = f->first;

    return now_ms < e->since_ms + f->config.window_ms &&
           !(f->n_expected && e->line.n_ranks >= f->n_expected) &&
           f->n_lines <= f->config.max_lines &&
           f->n_bytes <= f->config.max_bytes;
}

void fold_tick(struct fold *f, uint64_t now_ms)
{
    while (f->first && !must_wait(f, now_ms)) {
        show_first(f);
    }
}

static bool is_same(const struct fold_line *a, const struct fold_line *b)
{
    return a->generation == b->generation && a->is_err == b->is_err &&
           a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* False without memory. */
static bool make_room(struct fold *f, const struct fold_line *l)
{
    size_t n = 2 * stream_of(l->rank, l->is_err) + 2;
    struct entry **more;

    if (n <= 2 * f->n_shared) {
        return true;
    }
    more = reallocarray(f->shared, n, sizeof(*more));
    if (!more) {
        return false;
    }
    memset(more + f->n_shared, 0, (n - f->n_shared) * sizeof(*more));
    f->shared = more;
    f->n_shared = n;
    return true;
}

/* False without memory. */
static bool add_rank(struct fold *f, struct entry *e, uint32_t rank)
{
    struct fold_line *l = &e->line;
    uint64_t *words = (uint64_t *)(uintptr_t)l->ranks;
    size_t word = rank / WORD_BITS;

    if (word >= l->n_words) {
        words = reallocarray(words, word + 1, sizeof(*words));
        if (!words) {
            return false;
        }
        memset(words + l->n_words, 0,
               (word + 1 - l->n_words) * sizeof(*words));
        f->n_bytes += (word + 1 - l->n_words) * sizeof(*words);
        l->n_words = word + 1;
        l->ranks = words;
    }
    words[word] |= UINT64_C(1) << rank % WORD_BITS;
    l->n_ranks++;
    return true;
}

/* The first line like it behind those that its stream shares with others. */
static struct entry *find_like(const struct fold *f, const struct fold_line *l,
                               uint32_t hash)
{
    const struct entry *shared = f->shared[stream_of(l->rank, l->is_err)];
    struct entry *e = shared ? shared->next : f->first;

    if (!f->n_of_kind[hash % N_KINDS]) {
        return NULL;
    }
    while (e && (e->hash != hash || !is_same(&e->line, l) ||
                 has(&e->line, l->rank))) {
        e = e->next;
    }
    return e;
}

/* Lines of its stream alone that stand behind `at` go before it. */
static void advance_own(struct fold *f, const struct fold_line *l,
                        struct entry *at)
{
    struct entry *e = at->next;

    while (e) {
        struct entry *next = e->next;

        if (e->line.is_err == l->is_err && has(&e->line, l->rank)) {
            unlink_entry(f, e);
            link_entry(f, e, at);
            e->since_ms = at->since_ms;
        }
        e = next;
    }
}

/* Of a stream: that it shares `e`. Nothing, where it shares a later one. */
static void note_shared(struct fold *f, size_t stream, struct entry *e)
{
    const struct entry *later = e;

    while (later && later != f->shared[stream]) {
        later = later->next;
    }
    if (!later) {
        f->shared[stream] = e;
    }
}

static bool join(struct fold *f, const struct fold_line *l, uint32_t hash)
{
    struct entry *e = find_like(f, l, hash);

    if (!e || !add_rank(f, e, l->rank)) {
        return false;
    }
    advance_own(f, l, e);
    e->line.has_many_nodes |= e->line.node != l->node;
    f->shared[stream_of(l->rank, l->is_err)] = e;
    if (e->line.n_ranks == 2) {
        note_shared(f, stream_of(e->line.rank, l->is_err), e);
    }
    return true;
}

/* False without memory. */
static bool begin(struct fold *f, const struct fold_line *l, uint32_t hash,
                  uint64_t now_ms)
{
    struct entry *e = calloc(1, sizeof(*e));
    char *data = e ? malloc(l->len + 1) : NULL;

    if (!data) {
        free(e);
        return false;
    }
    memcpy(data, l->data, l->len);
    e->line = *l;
    e->line.data = data;
    e->line.ranks = NULL;
    e->line.n_ranks = 0;
    e->line.n_words = 0;
    e->line.has_many_nodes = false;
    e->since_ms = now_ms;
    e->hash = hash;
    if (!add_rank(f, e, l->rank)) {
        entry_free(e);
        return false;
    }
    f->n_bytes += sizeof(*e) + l->len;
    f->n_of_kind[hash % N_KINDS]++;
    f->n_lines++;
    link_entry(f, e, NULL);
    return true;
}

/* What cannot wait goes by itself, behind all that waits. */
static void show_alone(struct fold *f, const struct fold_line *l)
{
    struct fold_line one = *l;

    one.n_ranks = 1;
    one.ranks = NULL;
    one.n_words = 0;
    one.has_many_nodes = false;
    fold_flush(f);
    f->config.show(f->config.arg, &one);
}

void fold_put(struct fold *f, const struct fold_line *l, uint64_t now_ms)
{
    uint32_t hash = hash_of(l);

    if (l->rank >= MAX_RANKS || !make_room(f, l) ||
        (!join(f, l, hash) && !begin(f, l, hash, now_ms))) {
        show_alone(f, l);
    }
    fold_tick(f, now_ms);
}

void fold_write_ranks(const struct fold_line *l, struct buf *to)
{
    size_t end = l->n_words * WORD_BITS, n_ranges = 0;

    if (!end) {
        buf_printf(to, "%u", l->rank);
    }
    for (size_t i = 0; i < end; i++) {
        size_t from = i;

        if (!has(l, i)) {
            continue;
        }
        if (n_ranges++ == MAX_RANGES) {
            buf_printf(to, ",...(x%u)", l->n_ranks);
            return;
        }
        while (has(l, i + 1)) {
            i++;
        }
        buf_printf(to, n_ranges > 1 ? ",%zu" : "%zu", from);
        if (i > from) {
            buf_printf(to, "-%zu", i);
        }
    }
}
