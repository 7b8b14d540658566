/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/store_verbs.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/found.h"
#include "ckpt/held.h"
#include "ckpt/step.h"
#include "launcher/ckpt_progress.h"
#include "launcher/ckpt_verbs.h"
#include "launcher/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what was done --- */

static void print_facts(const struct ckpt_options *o, const char *done,
                        const struct store_facts *f)
{
    char moved[32], kept[32];

    ckpt_format_bytes(f->bytes_moved, moved, sizeof(moved));
    ckpt_format_bytes(f->bytes_kept, kept, sizeof(kept));
    fprintf(stderr, "muster: %s%s %llu file%s, %s; %llu file%s, %s w%s there\n",
            o->is_dry ? "would have " : "", done,
            (unsigned long long)f->n_moved, f->n_moved == 1 ? "" : "s", moved,
            (unsigned long long)f->n_kept, f->n_kept == 1 ? "" : "s", kept,
            f->n_kept == 1 ? "as" : "ere");
}

/* What came of it. */
struct result {
    const char *name;
    const struct found *found;
    const char *from; /* which one was pushed; NULL: none was */
    const char *uuid; /* of the save, as programs know it; NULL: it has none */
    const struct store_facts *facts;
    const struct strlist *damaged; /* here, and newer; NULL: not looked for */
};

static int print_result(const struct ckpt_options *o, const char *done,
                        const struct result *r)
{
    const struct store_facts *f = r->facts;
    _buf_ struct buf json = {0};
    struct jsonw w;

    store_progress_end();
    if (o->format != SHOW_JSON && o->format != SHOW_YAML) {
        print_facts(o, done, f);
        printf("%s\n", r->name);
        return EXIT_OK;
    }
    w = jsonw_start(&json);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "name", r->name);
    if (r->found->has_step) {
        jsonw_int(&w, "step", (int64_t)r->found->step);
    }
    jsonw_opt_str(&w, "from", r->from);
    jsonw_opt_str(&w, "uuid", r->uuid);
    for (size_t i = 0; r->damaged && i < r->damaged->n; i++) {
        if (i == 0) {
            jsonw_array(&w, "damaged");
        }
        jsonw_str(&w, NULL, r->damaged->items[i]);
        if (i + 1 == r->damaged->n) {
            jsonw_end_array(&w);
        }
    }
    jsonw_int(&w, "files_moved", (int64_t)f->n_moved);
    jsonw_int(&w, "bytes_moved", (int64_t)f->bytes_moved);
    jsonw_int(&w, "files_kept", (int64_t)f->n_kept);
    jsonw_int(&w, "bytes_kept", (int64_t)f->bytes_kept);
    jsonw_end_object(&w);
    return show_json(&json, o->format);
}

/* --- push --- */

/* What goes to a store is whole here. */
static int pack(int dir, const char *name, const char *path, struct parcel *ret,
                struct error *e)
{
    struct ckpt_progress p;
    struct found_facts facts;
    struct found f;
    struct io *io;
    int rc = ckpt_place_refuse_renamed(dir, name, e);

    if (rc == 0 && faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
        rc = error_set(e, errno, "open %s", path);
    } else if (rc == 0 && !found_one(io_system(), dir, name, &f)) {
        rc = error_text(e, ENOENT, "%s is no checkpoint: muster ckpt ls tells which a directory "
                        "has", path);
    }
    rc = rc < 0 ? rc : found_check(io_system(), dir, &f, false, &facts, e);
    if (rc < 0) {
        return error_wrap(e, "not pushed");
    }
    /* Those of others twice: to be verified, and for their digests. */
    io = ckpt_progress_start(&p, "reading", f.name, 2 * facts.bytes);
    rc = f.kind != FOUND_MUSTER ? found_check(io, dir, &f, true, &facts, e) : 0;
    rc = rc < 0 ? rc : parcel_pack(io, dir, &f, ret, e);
    ckpt_progress_end(&p);
    return rc < 0 ? error_wrap(e, "not pushed") : 0;
}

static void on_removed(void *arg, const char *name)
{
    (void)arg;
    fprintf(stderr, "muster: %s is not kept\n", name);
}

static void on_dry_removed(void *arg, const char *name)
{
    (void)arg;
    fprintf(stderr, "muster: %s would not be kept\n", name);
}

/* It is there, whatever comes of the older ones; in a dry run as if it were. */
static int prune(const struct ckpt_options *o, const struct store *st,
                 const struct parcel *p, int dir, struct error *e)
{
    struct ckpt_keep keep;
    const struct store_prune how = {
        .keep = &keep, .pushed = p, .dir = dir,
        .on_removed = o->is_dry ? on_dry_removed : on_removed};
    int rc = o->keep ? ckpt_keep_take(o, &keep, e) : 0;

    rc = o->keep && rc == 0 ? store_prune(st, &how, e) : rc;
    if (rc == -ENODATA) { /* there may be one later */
        fprintf(stderr, "muster: %s\n", e->text);
        return 0;
    }
    return rc == 0 || o->is_dry ? rc
                                : error_wrap(e, "%s is there, but older ones still are, too",
                                            p->name);
}

int store_verb_push(const struct ckpt_options *o, const char *path,
                    const char *uri)
{
    _store_place_ struct store_place place = {0};
    _parcel_ struct parcel parcel = {0};
    _buf_ struct buf name = {0};
    struct store_facts facts = {0};
    struct error e = {0};
    char last[FOUND_NAME_BYTES], uuid[COMMIT_UUID_BYTES] = "";
    _step_ struct step step = {0};
    _close_ int dir = ckpt_place_above(path, last, &e);
    _close_ int held = dir < 0 ? -1 : held_take(dir, last);
    int rc = dir < 0 ? dir : store_place_open(o, uri, &place, &e);

    (void)held; /* until it is there */
    rc = rc < 0 || !o->is_newer ? rc : store_newer_beside(dir, last, &e);
    rc = rc < 0 ? rc : pack(dir, last, path, &parcel, &e);
    rc = rc < 0 ? rc : store_push(&place.store, dir, &parcel, &facts, &e);
    rc = rc < 0 ? rc : prune(o, &place.store, &parcel, dir, &e);
    if (rc < 0) {
        return store_fail(&e);
    }
    buf_printf(&name, "s3://%s/%s%s%s", place.uri.bucket, place.uri.prefix,
               place.uri.prefix[0] ? "/" : "", parcel.name);
    if (parcel.found.kind == FOUND_MUSTER &&
        step_open(io_system(), dir, last, &step, NULL) == 0) {
        str_copy(uuid, sizeof(uuid), step.commit.uuid);
    }
    return print_result(o, "sent", &(struct result){
        .name = buf_str(&name), .found = &parcel.found, .facts = &facts,
        .from = last, .uuid = uuid[0] ? uuid : NULL});
}

/* --- pull --- */

static int pull_one(const struct store *st, const char *name, int dir,
                    struct parcel *ret, struct store_facts *facts,
                    struct error *e)
{
    int rc = store_open(st, name, ret, e);

    rc = rc < 0 ? rc : store_check(st, ret, false, e);
    return rc < 0 ? rc : store_pull(st, ret, dir, facts, e);
}

/* Damaged ones are passed over, and told: whoever starts from an older one wants to
 * know why; parts are none. With `here` those that are not newer than that are none, nor are those
 * whose name has something else in the directory, which may be what is left of it. */
static int pull_newest(struct store_place *place, const char *uri, int dir,
                       const struct found *here, struct parcel *ret,
                       struct store_facts *facts, struct error *e)
{
    _free_ struct store_entry *all = NULL;
    size_t n = 0;
    int rc = store_list(&place->store, false, &all, &n, e);

    store_progress_end();
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct error why = all[i].why;
        int one;

        if (here && !store_is_newer(&all[i], here)) {
            break;
        }
        if (all[i].found.is_part) {
            continue;
        }
        one = all[i].rc < 0 ? all[i].rc
                            : pull_one(&place->store, all[i].name, dir, ret, facts,
                                       &why);
        if (one == 0) {
            return 0;
        }
        if (!store_is_known(one) && !(here && one == -EEXIST)) {
            *e = why;
            return one;
        }
        parcel_release(ret);
        store_progress_end();
        ckpt_tell("passed over", one == -EEXIST ? "in the way" : found_state_name(one),
                  &why);
    }
    return rc < 0 ? rc : error_text(e, ENOENT, "no valid checkpoint in %s", uri);
}

/* -1 in a dry run where it would be made. With --newer a run fetches into what it watches,
 * whatever that looks like. */
static int open_target(const struct ckpt_options *o, const char *path, size_t *ret_there,
                       int *ret, struct error *e)
{
    int rc = o->is_newer ? 0 : ckpt_place_refuse_itself(path, e);

    rc = rc < 0 || o->is_dry ? rc : ckpt_place_make(path, ret_there, e);
    if (rc < 0) {
        return rc;
    }
    *ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 && !(o->is_dry && errno == ENOENT) ? error_set(e, errno, "open %s", path)
                                                       : 0;
}

/* s3://BUCKET/PREFIX/NAME, or else the newest of s3://BUCKET/PREFIX. */
static int pull(const struct ckpt_options *o, const char *uri, int dir,
                struct parcel *ret, struct store_facts *facts, struct error *e)
{
    _store_place_ struct store_place place = {0}, above = {0};
    char name[PARCEL_NAME_BYTES];
    int rc = store_place_open(o, uri, &place, e);

    if (rc < 0) {
        return rc;
    }
    rc = store_place_open(o, uri, &above, e);
    if (rc == 0 && store_place_split(&above, name)) {
        rc = pull_one(&above.store, name, dir, ret, facts, e);
        if (rc != -ENOENT) {
            return rc;
        }
    }
    return pull_newest(&place, uri, dir, NULL, ret, facts, e);
}

/* 1: nothing in the store is newer. */
static int pull_newer(const struct ckpt_options *o, const char *uri, int dir,
                      struct parcel *ret, struct store_facts *facts,
                      struct strlist *damaged, struct error *e)
{
    _store_place_ struct store_place place = {0};
    struct found here = {0};
    int rc = store_place_open(o, uri, &place, e);

    rc = rc < 0 || dir < 0 ? rc : store_newest_here(dir, &here, damaged, e);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    rc = pull_newest(&place, uri, dir, &here, ret, facts, e);
    return rc == -ENOENT ? 1 : rc;
}

static int print_none(const struct ckpt_options *o, const char *uri,
                      const char *path, const struct strlist *damaged)
{
    const struct found none = {0};
    const struct store_facts facts = {0};

    if (o->format == SHOW_JSON || o->format == SHOW_YAML) {
        return print_result(o, "", &(struct result){
            .name = "", .found = &none, .facts = &facts, .damaged = damaged});
    }
    store_progress_end();
    fprintf(stderr, "muster: nothing in %s is newer than what is in %s\n", uri, path);
    return EXIT_OK;
}

int store_verb_pull(const struct ckpt_options *o, const char *uri,
                    const char *path)
{
    _parcel_ struct parcel parcel = {0};
    _buf_ struct buf name = {0};
    _strlist_ struct strlist damaged = {0};
    struct store_facts facts = {0};
    struct error e = {0};
    _close_ int dir = -1;
    size_t len = strlen(path), there = len;
    int rc = open_target(o, path, &there, &dir, &e);

    rc = rc < 0        ? rc
         : o->is_newer ? pull_newer(o, uri, dir, &parcel, &facts, &damaged, &e)
                       : pull(o, uri, dir, &parcel, &facts, &e);
    if (rc < 0) {
        ckpt_place_unmake(path, there);
    }
    if (rc != 0) {
        return rc < 0 ? store_fail(&e) : print_none(o, uri, path, &damaged);
    }
    buf_printf(&name, "%s%s%s", path, path[len - 1] == '/' ? "" : "/",
               parcel.found.name);
    return print_result(o, "fetched", &(struct result){
        .name = buf_str(&name), .found = &parcel.found, .facts = &facts,
        .damaged = &damaged});
}
