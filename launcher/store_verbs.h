/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What muster-store is made of.
 *
 *   store_main.c     words and verbs; what people see meanwhile
 *   store_place.c    a place in a store, open
 *   store_copy.c     push, pull
 *   store_newer.c    which is the newest, here and there
 *   store_prune.c    prune, also after a push
 *   store_show.c     ls, verify, last-valid
 *   store_look.c     show, convert: of one
 */
#ifndef MUSTER_LAUNCHER_STORE_VERBS_H
#define MUSTER_LAUNCHER_STORE_VERBS_H

#include "base/s3_uri.h"
#include "ckpt/store.h"
#include "launcher/ckpt_keep.h"
#include "launcher/ckpt_report.h"

/* --- a place --- */

struct store_place {
    struct s3_uri uri;
    struct s3 *s3;
    struct store store; /* of it */
};
/* With credentials of the environment, and what the options say. */
int store_place_open(const struct ckpt_options *o, const char *text,
                     struct store_place *ret, struct error *e);
void store_place_close(struct store_place *p);
#define _store_place_ __attribute__((cleanup(store_place_close)))

/* Takes the last part of the prefix off: "a/b" becomes "a", and b is copied. False
 * where there is none. */
bool store_place_split(struct store_place *p, char name[PARCEL_NAME_BYTES]);

/* Progress (launcher/ckpt_progress.h); any thread. */
void store_progress_show(void *arg, uint64_t done, uint64_t of);
void store_count_show(void *arg, const char *doing, uint64_t done, uint64_t of);
/* Ends that line, if there is one. */
void store_progress_end(void);
/* A line of its own: why something is tried again. */
void store_tell(void *arg, const char *text);

/* As command_fail(), and 75 where trying again may help. */
int store_fail(const struct error *e);

struct store_prune {
    const struct ckpt_keep *keep;
    /* Just now, or in a dry run as if: it stays. NULL: none was. */
    const struct parcel *pushed;
    int dir; /* that it comes from */
    void (*on_removed)(void *arg, const char *name);
    void *arg;
};
/* Removes all but those that are to stay; on_removed() is told of each, also in a dry
 * run. */
int store_prune(const struct store *st, const struct store_prune *how, struct error *e);

/* The newest that is whole in a directory, to the last byte, and the names of newer ones
 * that are not; -ENOENT: there is none. */
int store_newest_here(int dir, struct found *ret, struct strlist *damaged,
                      struct error *e);
/* The name of the newest of a directory that is whole by its structure, in the place of one
 * of the same kind with a lower step (of muster's also with a lower token), or of one that
 * is gone. 0, or why that directory cannot be read. */
int store_newer_beside(int dir, char name[FOUND_NAME_BYTES], struct error *e);
/* Whether the checkpoint is newer than that one. */
bool store_is_newer(const struct store_entry *entry, const struct found *here);

/* --- verbs: the exit status --- */

int store_verb_push(const struct ckpt_options *o, const char *path,
                    const char *uri);
int store_verb_pull(const struct ckpt_options *o, const char *uri,
                    const char *path);
int store_verb_show(const struct ckpt_options *o, const struct strlist *words,
                    bool is_deep);
int store_verb_last(const struct ckpt_options *o, const char *uri);
int store_verb_prune(const struct ckpt_options *o, const char *uri);
/* `to` is NULL for show. */
int store_verb_look(const struct ckpt_options *o, const char *uri, const char *to);

#endif
