/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster ckpt show and convert of a checkpoint in a store: only what is needed is
 * fetched, by ranges, and nothing lies on this disk meanwhile. What muster has saved is
 * held against its digests as it is read; of others the seal has digests of whole
 * files, so convert reads those twice: all of them first.
 */
#include <config.h>

#include "launcher/store_verbs.h"

#include "base/cleanup.h"
#include "launcher/ckpt_verbs.h"
#include "launcher/commands.h"

#include <errno.h>

struct looked {
    struct store_place place;
    struct parcel parcel;
    struct io *io;
    struct contents contents;
};

static void looked_release(struct looked *l)
{
    if (l->contents.io) {
        contents_release(&l->contents);
    }
    store_io_close(l->io);
    parcel_release(&l->parcel);
    store_place_close(&l->place);
}

static int open_one(const struct ckpt_options *o, const char *uri, bool is_deep,
                    struct looked *l, struct error *e)
{
    char name[PARCEL_NAME_BYTES];
    const struct store *st = &l->place.store;
    struct found f;
    int rc = store_place_open(o, uri, &l->place, e);

    if (rc < 0) {
        return rc;
    }
    if (!store_place_split(&l->place, name)) {
        return error_text(e, ERR_USAGE, "%s: expected s3://BUCKET/PREFIX/NAME, one "
                          "checkpoint", uri);
    }
    rc = store_open(st, name, &l->parcel, e);
    if (rc == -ENOENT) {
        return error_text(e, ENOENT, "%s is no checkpoint: those in a store are told by "
                          "muster ckpt ls", uri);
    }
    rc = rc < 0 ? rc
                : store_check(st, &l->parcel,
                              is_deep && l->parcel.found.kind != FOUND_MUSTER, e);
    store_progress_end();
    rc = rc < 0 ? rc : store_io_open(st, &l->parcel, &l->io, e);
    if (rc == 0 && !found_one(l->io, 0, l->parcel.found.name, &f)) {
        return error_text(e, ENOENT, "%s is no checkpoint that is known", uri);
    }
    rc = rc < 0 ? rc : contents_open(l->io, 0, &f, &l->contents, e);
    l->contents.is_verified = l->contents.is_verified || (rc == 0 && is_deep);
    if (rc < 0 && l->io && store_io_failure(l->io)) {
        *e = *store_io_failure(l->io);
    }
    return rc;
}

int store_verb_look(const struct ckpt_options *o, const char *uri, const char *to)
{
    __attribute__((cleanup(looked_release))) struct looked l = {0};
    struct error e = {0};

    if ((to && ckpt_convert_check(o, to, &e) < 0) ||
        open_one(o, uri, to != NULL, &l, &e) < 0) {
        return store_fail(&e);
    }
    return to ? ckpt_convert_contents(o, &l.contents, to)
              : ckpt_show_contents(o, &l.contents);
}
