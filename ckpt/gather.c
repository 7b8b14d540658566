/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/gather.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "ckpt/crowd.h"
#include "ckpt/index_cache.h"
#include "ckpt/part.h"
#include "ckpt/step_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct parts {
    size_t n;
    struct part *all;
    struct digest *tables; /* of their pieces ... */
    _Atomic bool is_new;   /* ... which are not those of the save before, and are there */
};

static void parts_release(struct parts *p)
{
    for (size_t i = 0; p->all && i < p->n; i++) {
        part_release(&p->all[i]);
    }
    free(p->all);
    free(p->tables);
    *p = (struct parts){0};
}

/* --- reading --- */

static int check_part(const struct part *p, const struct gather *g,
                      uint32_t rank, struct error *e)
{
    if (p->step != g->step || strcmp(p->uuid, g->uuid) != 0 ||
        p->rank != rank || p->n_ranks != g->n_ranks) {
        return error_text(e, ERR_FORMAT, "the part of rank %u of %u is that of "
                          "rank %u of %u of another save, of step %llu", rank,
                          g->n_ranks, p->rank, p->n_ranks,
                          (unsigned long long)p->step);
    }
    if (p->n_blocks != digest_n_blocks(p->file_bytes)) {
        return error_text(e, ERR_FORMAT, "the part of rank %u has %zu digests, "
                          "and a file of %llu bytes needs %llu", rank,
                          p->n_blocks, (unsigned long long)p->file_bytes,
                          (unsigned long long)digest_n_blocks(p->file_bytes));
    }
    return 0;
}

struct reading {
    struct step_save *save;
    const struct gather *gather;
    const struct index_cache *cache;
    struct parts *parts;
};

/* Pieces that the cache knows are not looked at. */
static int decode(const struct reading *r, uint32_t rank, const char *data, size_t len,
                  struct error *e)
{
    struct part *p = &r->parts->all[rank];
    struct digest *table = &r->parts->tables[rank];
    int rc = part_decode_brief(data, len, p, table, e);

    if (rc < 0 || index_cache_knows(r->cache, r->gather->n_ranks, rank, *table)) {
        return rc;
    }
    r->parts->is_new = true;
    part_release(p);
    return part_decode(data, len, p, e);
}

static int read_part(const struct reading *r, uint32_t rank, struct error *e)
{
    struct step_save *s = r->save;
    char name[PART_NAME_BYTES];
    _free_ char *data = NULL;
    size_t len = 0;
    int rc;

    part_file_name(rank, name);
    rc = io_read_file(step_save_io(s), step_save_dir(s), name, PART_MAX_BYTES,
                      &data, &len);
    if (rc == -ENOENT) {
        return error_text(e, ENODATA, "%s is not there: rank %u has saved nothing "
                          "here; expected a directory that all ranks see", name, rank);
    }
    if (rc < 0) {
        return error_set(e, -rc, "read %s", name);
    }
    rc = decode(r, rank, data, len, e);
    rc = rc < 0 ? rc : check_part(&r->parts->all[rank], r->gather, rank, e);
    return rc < 0 ? error_wrap(e, "%s", name) : 0;
}

/* Whoever took the place of a node that was not lost may have taken its file, too. */
static int check_file(struct step_save *s, uint32_t rank, const struct part *p,
                      struct error *e)
{
    struct io *io = step_save_io(s);
    char name[PART_NAME_BYTES];
    uint64_t bytes = 0;
    int fd, rc;

    part_data_name(rank, name);
    fd = io->ops->open_file(io, step_save_dir(s), name);
    rc = fd < 0 ? fd : io->ops->size(io, fd, &bytes);
    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    if (rc == -ENOENT || (rc == 0 && bytes != p->file_bytes)) {
        return error_text(e, ENODATA, "%s has %llu bytes: expected %llu", name,
                          (unsigned long long)bytes, (unsigned long long)p->file_bytes);
    }
    return rc < 0 ? error_set(e, -rc, "look at %s", name) : 0;
}

static int read_rank(void *arg, size_t rank, struct error *e)
{
    const struct reading *r = arg;
    int rc = read_part(r, (uint32_t)rank, e);

    return rc < 0 ? rc : check_file(r->save, (uint32_t)rank, &r->parts->all[rank], e);
}

/* Of many ranks it is the answers of a filesystem over a network that take long, one after
 * the other. */
static int read_parts(struct step_save *s, const struct gather *g,
                      const struct index_cache *cache, struct parts *p, struct error *e)
{
    enum { READERS = 16 };
    struct reading r = {s, g, cache, p};
    const struct crowd crowd = {.n_threads = step_save_io(s)->is_shared ? READERS : 1,
                                .work = read_rank, .arg = &r};

    p->all = calloc((size_t)g->n_ranks + 1, sizeof(*p->all));
    p->tables = calloc((size_t)g->n_ranks + 1, sizeof(*p->tables));
    if (!p->all || !p->tables || g->n_ranks == 0) {
        return error_set(e, g->n_ranks ? ENOMEM : EINVAL, "commit");
    }
    p->n = g->n_ranks;
    return crowd_run(&crowd, p->n, e);
}

/* With the pieces of all, where those of any are new. */
static int read_all(struct step_save *s, const struct gather *g,
                    const struct index_cache *cache, struct parts *p, struct error *e)
{
    const struct index_cache none = {0};
    int rc = read_parts(s, g, cache, p, e);

    if (rc == 0 && p->is_new && cache->index) {
        parts_release(p);
        rc = read_parts(s, g, &none, p, e);
    }
    return rc;
}

/* --- the index --- */

static int make_index(struct index_cache *cache, struct parts *p, struct error *e)
{
    struct index *x = p->is_new ? NULL : index_cache_renew(cache, p->all, p->n);
    int rc;

    if (x) {
        return 0;
    }
    rc = index_create(p->all, p->n, &x, e);
    if (rc == 0) {
        index_cache_put(cache, x, take_ptr(&p->tables), p->n);
    }
    return rc;
}

static int put_index(struct step_save *s, const struct index *x, struct manifest_file *file,
                     struct error *e)
{
    size_t len;
    const char *data = index_bytes(x, &len);

    str_copy(file->name, sizeof(file->name), STEP_INDEX);
    file->bytes = len;
    if (digest_of_file(data, len, &file->digest) < 0) {
        return error_set(e, ENOMEM, "write the index");
    }
    return step_save_later(s, STEP_INDEX, &(struct io_blocks){
        .data = data, .len = len,
        .block_bytes = len < DIGEST_BLOCK_BYTES ? len : DIGEST_BLOCK_BYTES}, e);
}

/* --- the manifest --- */

static uint32_t count_nodes(const struct parts *p)
{
    uint32_t most = 0;

    for (size_t i = 0; i < p->n; i++) {
        most = p->all[i].node > most ? p->all[i].node : most;
    }
    return most + 1;
}

/* The first rank's list is everybody's: shares are checked before. */
static int take_blobs(struct part *first, uint32_t n_ranks, struct manifest *m)
{
    m->blobs = calloc(first->n_blobs + 1, sizeof(*m->blobs));
    for (size_t i = 0; m->blobs && i < first->n_blobs; i++) {
        m->blobs[i] = (struct manifest_blob){
            .name = take_ptr(&first->blobs[i].name),
            .is_per_rank = first->blobs[i].is_per_rank,
            .n = first->blobs[i].is_per_rank ? n_ranks : 1,
        };
        m->n_blobs++;
    }
    return m->blobs ? 0 : -ENOMEM;
}

/* Of checkpoints of one step the one with the highest token counts: this one. A token
 * begins with the generation that saved. Above one of a run before it is counted from
 * that: of two generations the later one has the higher token, also where neither
 * knows of the other's. */
static uint64_t token_above(uint64_t own, uint64_t other)
{
    const uint64_t generation = own >> 32, past = other >> 32;

    if (other < own) {
        return own;
    }
    return !generation || past == generation || past + generation > INT32_MAX
               ? other + 1 : (past + generation) << 32;
}

static int choose_token(const struct step_save *save, const struct gather *g,
                        uint64_t *ret, struct error *e)
{
    struct io *io = step_save_io(save);
    int root = step_save_root(save);
    _free_ struct step_entry *entries = NULL;
    uint64_t highest = 0;
    bool is_first = true;
    size_t n = 0;
    int rc = step_list(io, root, &entries, &n, e);

    for (size_t i = 0; i < n && rc == 0; i++) {
        _step_ struct step s = {0};

        if (entries[i].step == g->step &&
            step_open(io, root, entries[i].name, &s, NULL) == 0 &&
            s.commit.token >= highest) {
            highest = s.commit.token;
            is_first = false;
        }
    }
    *ret = is_first ? g->token : token_above(g->token, highest);
    return rc;
}

static int fill_manifest(const struct gather *g, struct parts *p,
                         struct manifest *m, struct error *e)
{
    m->step = g->step;
    m->generation = g->generation;
    m->wall_ns = clock_wall_ns();
    m->n_ranks = g->n_ranks;
    m->n_nodes = count_nodes(p);
    m->n_files = p->n + 1;
    m->index = p->n;
    str_copy(m->uuid, sizeof(m->uuid), g->uuid);
    str_copy(m->version, sizeof(m->version), PACKAGE_VERSION);
    m->files = calloc(m->n_files, sizeof(*m->files));
    if (!m->files || take_blobs(&p->all[0], g->n_ranks, m) < 0) {
        return error_set(e, ENOMEM, "write the manifest");
    }
    m->state = take_ptr(&p->all[0].state);
    for (uint32_t r = 0; r < p->n; r++) {
        struct manifest_file *f = &m->files[r];

        part_data_name(r, f->name);
        f->bytes = p->all[r].file_bytes;
        f->digest = digest_of_blocks(p->all[r].blocks, f->bytes);
    }
    return 0;
}

static int look_for_commit(const struct step_save *s)
{
    return step_look_for(step_save_io(s), step_save_dir(s), STEP_COMMIT);
}

/* Whoever was killed while it committed has left what it had made so far. Its COMMIT under
 * another name first: without it a call of one that was only stopped, and comes late, makes
 * no checkpoint of what is taken away here. */
static int clear_way(struct step_save *s, struct error *e)
{
    int rc = step_save_drop(s, STEP_COMMIT_NEW, e), has;

    if (rc < 0) {
        return rc;
    }
    has = look_for_commit(s);
    if (has != 0) {
        return has > 0 ? error_text(e, EEXIST, "%s has a COMMIT already", step_save_name(s))
                       : error_set(e, -has, "look for %s/COMMIT", step_save_name(s));
    }
    rc = step_save_drop(s, STEP_MANIFEST, e);
    return rc < 0 ? rc : step_save_drop(s, STEP_INDEX, e);
}

int gather_commit(struct step_save *s, const struct gather *g, struct error *e)
{
    __attribute__((cleanup(parts_release))) struct parts p = {0};
    _manifest_ struct manifest m = {0};
    _index_cache_ struct index_cache own = {0};
    struct index_cache *cache = g->cache ? g->cache : &own;
    int rc = read_all(s, g, cache, &p, e);

    rc = rc < 0 ? rc : choose_token(s, g, &m.token, e);
    rc = rc < 0 ? rc : fill_manifest(g, &p, &m, e);
    rc = rc < 0 ? rc : clear_way(s, e);
    rc = rc < 0 ? rc : make_index(cache, &p, e);
    rc = rc < 0 ? rc : put_index(s, cache->index, &m.files[m.index], e);
    rc = rc < 0 ? rc : step_save_commit(s, &m, e);
    index_cache_trim(cache, INDEX_CACHE_MAX_BYTES);
    return rc;
}

void gather_tidy(struct step_save *s, uint32_t n_ranks)
{
    char name[PART_NAME_BYTES];

    if (look_for_commit(s) <= 0) {
        return;
    }
    for (uint32_t r = 0; r < n_ranks; r++) {
        part_file_name(r, name);
        step_save_drop(s, name, NULL);
    }
}
