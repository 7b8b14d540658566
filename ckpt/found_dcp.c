/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.distributed.checkpoint: each rank writes __<rank>_<n>.distcp, and one of
 * them at last .metadata, a pickle which says what lies where; or, where ranks do not
 * talk to each other (use_collectives=False), each at last its own, __<rank>.metadata.
 * It is looked through,
 * not run: whatever it names must be there, and each piece within its file. A piece is
 * a file of torch.save of its own, whose checksums are then held against its bytes; or
 * the file is one of safetensors, which has none; or it has another format (compressed
 * by an extension, say), of which no more can be verified. .metadata itself has no
 * checksum: what it says of shapes may be wrong, and nobody sees it.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/dcp_places.h"
#include "ckpt/part_io.h"
#include "ckpt/pickle.h"
#include "ckpt/safetensors.h"
#include "ckpt/torch_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_METADATA_BYTES = 1 << 30 };

static int check_metadata(struct io *io, int dir, const char *name, char **ret,
                          size_t *ret_len, struct error *e)
{
    _free_ char *text = NULL;
    size_t len = 0, end = 0;
    int rc = io_read_file(io, dir, name, MAX_METADATA_BYTES, &text, &len);

    if (rc == -ENOENT) {
        return error_text(e, ENOENT, "it was never finished: no %s", name);
    }
    if (rc < 0) {
        return found_fail_to_read(rc, name, e);
    }
    rc = pickle_check(text, len, &end, e);
    if (rc == 0 && end != len) {
        rc = error_text(e, ERR_FORMAT, "it ends at its byte %zu of %zu", end,
                        len);
    }
    if (rc < 0) {
        return error_wrap(e, "%s", name);
    }
    *ret = take_ptr(&text);
    *ret_len = len;
    return 0;
}

/* --- pieces --- */

/* One file, and which of its pieces are known. */
struct data_file {
    struct io *io;
    int fd;
    uint64_t bytes;
    const struct dcp_place *places;
    size_t n;
};

/* 1, 0, or errors of reading: what cannot be read is of no format. */
static int has_at(const struct data_file *f, uint64_t at, const char *text)
{
    char bytes[8];
    size_t len = strlen(text);
    int rc;

    if (at > f->bytes || len > f->bytes - at || len > sizeof(bytes)) {
        return 0;
    }
    rc = io_read_all(f->io, f->fd, bytes, len, at);
    return rc < 0 ? rc : memcmp(bytes, text, len) == 0;
}

/* By its beginning or its end, so that no change of a bit makes it another format. */
static int is_archive(const struct data_file *f, const struct dcp_place *p)
{
    enum { END_BYTES = 22 };
    int rc = has_at(f, p->offset, "PK\3\4");

    return rc == 0 && p->length >= END_BYTES
               ? has_at(f, p->offset + p->length - END_BYTES, "PK\5\6") : rc;
}

static int check_bounds(const struct data_file *f, struct error *e)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct dcp_place *p = &f->places[i];

        if (p->offset > f->bytes || p->length > f->bytes - p->offset) {
            return error_text(e, ERR_FORMAT, "it is cut: expected %llu bytes at "
                              "%llu, and it has %llu",
                              (unsigned long long)p->length,
                              (unsigned long long)p->offset,
                              (unsigned long long)f->bytes);
        }
    }
    return 0;
}

/* Places are in order; one may be named twice. */
static int check_apart(const struct data_file *f, struct error *e)
{
    for (size_t i = 1; i < f->n; i++) {
        const struct dcp_place *last = &f->places[i - 1], *p = &f->places[i];

        if (p->offset < last->offset + last->length &&
            (p->offset != last->offset || p->length != last->length)) {
            return error_text(e, ERR_FORMAT, "its pieces at %llu and %llu overlap",
                              (unsigned long long)last->offset,
                              (unsigned long long)p->offset);
        }
    }
    return 0;
}

/* Reads every byte of a piece that is a file of torch.save. */
static int check_piece(const struct data_file *f, const struct dcp_place *p,
                       struct error *e)
{
    struct torch_file torch = {0};
    struct part_io part;
    int rc = is_archive(f, p);

    if (rc <= 0) {
        return rc < 0 ? error_set(e, -rc, "read it") : 0;
    }
    part_io_open(&part, f->io, p->offset, p->length);
    rc = torch_file_check(&part.io, f->fd, true, &torch, e);
    return rc < 0 ? error_wrap(e, "its %llu bytes at %llu",
                               (unsigned long long)p->length,
                               (unsigned long long)p->offset) : 0;
}

static int is_safetensors(const struct data_file *f)
{
    uint8_t prefix[ST_PREFIX_BYTES];
    uint64_t n;
    int rc = f->bytes > sizeof(prefix)
                 ? io_read_all(f->io, f->fd, prefix, sizeof(prefix), 0) : 0;

    return rc < 0 ? rc
           : f->bytes > sizeof(prefix) && st_header_bytes(prefix, f->bytes, &n, NULL) == 0
               ? has_at(f, sizeof(prefix), "{\"") : 0;
}

static int check_pieces(const struct data_file *f, bool is_deep, struct error *e)
{
    _st_file_ struct st_file st = {0};
    int rc = check_bounds(f, e), is_st = rc < 0 ? 0 : is_safetensors(f);

    if (rc < 0 || is_st < 0) {
        return rc < 0 ? rc : error_set(e, -is_st, "read it");
    }
    if (is_st) {
        return st_load(f->io, f->fd, &st, e);
    }
    rc = check_apart(f, e);
    for (size_t i = 0; i < f->n && rc == 0 && is_deep; i++) {
        rc = check_piece(f, &f->places[i], e);
    }
    return rc;
}

/* --- files --- */

/* Without places: nothing is known of them, or, with `may_be_empty`, there are none. */
static int check_data(struct io *io, int dir, const char *name,
                      const struct dcp_place *places, size_t n, bool may_be_empty,
                      bool is_deep,
                      struct found_facts *facts, struct error *e)
{
    struct data_file f = {.io = io, .fd = io->ops->open_file(io, dir, name),
                          .places = places, .n = n};
    int rc;

    if (f.fd < 0) {
        return f.fd == -ENOENT
                   ? error_text(e, ERR_FORMAT, "%s is missing", name)
                   : found_fail_to_open(f.fd, name, e);
    }
    rc = io->ops->size(io, f.fd, &f.bytes);
    if (rc < 0) {
        error_set(e, -rc, "look at it");
    } else if (f.bytes == 0) {
        rc = may_be_empty ? 0 : error_text(e, ERR_FORMAT, "it is empty");
    } else {
        rc = check_pieces(&f, is_deep, e);
    }
    io->ops->close(io, f.fd);
    facts->bytes += f.bytes;
    facts->n_files++;
    return rc < 0 ? error_wrap(e, "%s", name) : 0;
}

/* Those that it names. */
static int check_named(struct io *io, int dir, const struct dcp_places *all,
                       bool is_deep, struct found_facts *facts, struct error *e)
{
    char name[FOUND_NAME_BYTES];
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < all->n && rc == 0; i += n) {
        const struct dcp_place *first = &all->items[i];

        if (first->file_len >= sizeof(name) || first->file_len == 0 ||
            first->file[0] == '.' ||
            memchr(first->file, '/', first->file_len) ||
            memchr(first->file, '\0', first->file_len)) {
            return error_text(e, ERR_FORMAT, "its metadata names a file that can be "
                              "none of it");
        }
        for (n = 1; i + n < all->n &&
                    dcp_place_file_compare(&all->items[i + n], first->file,
                                           first->file_len) == 0; n++) {
        }
        memcpy(name, first->file, first->file_len);
        name[first->file_len] = '\0';
        rc = check_data(io, dir, name, first, n, false, is_deep, facts, e);
    }
    return rc;
}

static int unknown_places(struct error *e)
{
    return error_text(e, ENOTSUP, "what it says of where its data lies is not known here: a "
                      "program's own, or of a later version");
}

/* Nothing is known of pieces: that there are files, and that they are not empty. */
static int check_unnamed(struct io *io, int dir, bool is_empty,
                         struct found_facts *facts, struct error *e)
{
    _strlist_ struct strlist names = {0};
    size_t n_data = 0;
    int rc = found_names(io, dir, &names, e);

    for (size_t i = 0; i < names.n && rc == 0; i++) {
        if (str_ends(names.items[i], ".distcp")) {
            rc = check_data(io, dir, names.items[i], NULL, 0, is_empty, false,
                            facts, e);
            n_data++;
        }
    }
    return rc == 0 && n_data == 0 && !is_empty
               ? error_text(e, ERR_FORMAT, "it has .metadata, and no .distcp file")
               : rc;
}

/* What one of them says. Those of ranks name the files of each, and no other ones. */
static int check_one(struct io *io, int dir, const char *name, bool is_of_all,
                     bool is_deep, struct found_facts *facts, struct error *e)
{
    _dcp_places_ struct dcp_places places = {0};
    _free_ char *metadata = NULL;
    bool is_known;
    size_t len = 0;
    int rc = check_metadata(io, dir, name, &metadata, &len, e);

    if (rc < 0) {
        return rc;
    }
    facts->bytes += len;
    facts->n_files++;
    facts->is_structure_only = true; /* that file has no checksum */
    rc = dcp_places_read(metadata, len, &places, e);
    if (rc < 0 && rc != -EFBIG) {
        return error_wrap(e, "%s", name);
    }
    if (places.n > 0) {
        return check_named(io, dir, &places, is_deep, facts, e);
    }
    is_known = rc == -EFBIG || places.is_empty;
    rc = is_of_all ? check_unnamed(io, dir, places.is_empty, facts, e) : 0;
    if (rc == 0 && !is_known) {
        unknown_places(e);
        return error_wrap(e, "%s", name);
    }
    return rc;
}

/* --- of ranks --- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_name(const struct strlist *names, const char *name)
{
    return names->n && bsearch(&name, names->items, names->n, sizeof(*names->items),
                               by_text);
}

static const char rank_begin[] = "__", rank_end[] = ".metadata";

/* Of __<rank>_<n>.distcp there is __<rank>.metadata. */
static int check_finished(const struct strlist *names, const char *data,
                          struct error *e)
{
    char want[FOUND_NAME_BYTES];
    size_t n = strlen(rank_begin), n_digits;

    if (!found_matches(data, rank_begin, ".distcp")) {
        return 0;
    }
    n_digits = strspn(data + n, "0123456789");
    if (n_digits == 0) {
        return 0;
    }
    snprintf(want, sizeof(want), "%.*s%s", (int)(n + n_digits), data, rank_end);
    return has_name(names, want)
               ? 0 : error_text(e, ENOENT, "it was never finished: no %s", want);
}

static int check_ranks(struct io *io, int dir, const struct strlist *names,
                       unsigned world, bool is_deep, struct found_facts *facts,
                       struct error *e)
{
    int rc = found_check_ranks(names, rank_begin, rank_end, world, &facts->n_ranks, e);

    for (size_t i = 0; i < names->n && rc == 0; i++) {
        const char *name = names->items[i];

        rc = check_finished(names, name, e);
        if (rc == 0 && found_matches(name, rank_begin, rank_end)) {
            rc = check_one(io, dir, name, false, is_deep, facts, e);
        }
    }
    return rc;
}

int found_check_dcp(struct io *io, int dir, unsigned world, bool is_deep,
                    struct found_facts *facts, struct error *e)
{
    _strlist_ struct strlist names = {0};
    bool is_by_rank = false;
    int rc = found_names(io, dir, &names, e);

    for (size_t i = 0; i < names.n; i++) {
        is_by_rank = is_by_rank ||
                     found_matches(names.items[i], rank_begin, rank_end);
    }
    if (rc < 0) {
        return rc;
    }
    return is_by_rank && !has_name(&names, ".metadata")
               ? check_ranks(io, dir, &names, world, is_deep, facts, e)
               : check_one(io, dir, ".metadata", true, is_deep, facts, e);
}
