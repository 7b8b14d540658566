/* SPDX-License-Identifier: Apache-2.0 */
/* How `muster ckpt` shows checkpoints, whether in a directory or in a store. */
#ifndef MUSTER_LAUNCHER_CKPT_REPORT_H
#define MUSTER_LAUNCHER_CKPT_REPORT_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "ckpt/found.h"
#include "launcher/jsonw.h"
#include "launcher/options.h"
#include "launcher/show.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- options of all verbs --- */

struct ckpt_options {
    enum show_format format;
    int64_t keep, every, jobs, timeout_s, ranks, rounds, tensors;
    uint64_t part_bytes, shard_bytes, bytes, unfinished_ms;
    const char *best;
    bool is_dry, is_newer;
};
extern const struct options ckpt_options;

/* What a verb is about. */
enum ckpt_verb_kind {
    CKPT_NO_VERB,
    CKPT_LOOKS,   /* those in a place */
    CKPT_ON_ONE,  /* one checkpoint, or what a directory is like */
    CKPT_CHANGES, /* what is in a place */
};
enum ckpt_verb_kind ckpt_verb_kind(const char *name);
/* Whether the verb, the first of `words`, has each that is set: none is taken and then
 * forgotten. 0 or -ERR_USAGE. */
int ckpt_options_check(const struct ckpt_options *o, const struct strlist *words,
                       struct error *e);

/* --- a table, or JSON --- */

/* What became of one. */
struct ckpt_look {
    const char *name, *kind; /* kind: "-" for what nobody knows */
    bool has_step;
    uint64_t step;
    uint64_t bytes, n_files;
    bool is_structure_only;
    bool is_unknown; /* ckpt_is_unknown() */
    int rc;
    struct error why;
};

/* What found_check() said of it is that it has no format that is known here, and nothing
 * shows that it had one: it may be whole, and only its program knows. */
bool ckpt_is_unknown(int dir, const char *name, int rc, const struct found_facts *facts);
/* As found_state_name(), or "unknown". */
const char *ckpt_state_name(int rc, bool is_unknown);

/* A name in that place, a directory or a store, as a line. */
void ckpt_print_name(const char *place, const char *name);

/* As "name"; of one that is not UTF-8, which is shown as what it is not, its bytes, too: as
 * "name_bytes", those that are not printable ASCII, blanks and '%' as %XX. */
void ckpt_json_name(struct jsonw *w, const char *name);

/* "muster: passed over, damaged: ..." on stderr, without what a terminal acts on: the
 * names in `why` are anybody's. */
void ckpt_tell(const char *what, const char *state, const struct error *why);

/* "1.5 GiB". */
void ckpt_format_bytes(uint64_t bytes, char *to, size_t size);

struct ckpt_report {
    struct strlist cells;
    struct buf json;
    struct jsonw w; /* into it */
    size_t n, n_bad, n_unknown;
    size_t n_busy; /* a store did not answer: they may be anything */
    /* For the caller to set: how many names there are where none is of one. 0: not known. */
    size_t n_others;
};
/* On stderr, what is there where there is no checkpoint. */
void ckpt_tell_none(const char *none, size_t n_others);
/* What `muster ckpt verify` ends with where none is bad and some are unknown. */
enum { CKPT_EXIT_UNKNOWN = 3 };
void ckpt_report_start(struct ckpt_report *r);
void ckpt_report_add(struct ckpt_report *r, const struct ckpt_look *l);
/* Prints it. Returns the exit status: 75 where trying again may tell more. */
int ckpt_report_print(struct ckpt_report *r, enum show_format format);
/* The same, and the status says what they are; that there is none is a failure. */
int ckpt_report_verdict(struct ckpt_report *r, enum show_format format);
void ckpt_report_release(struct ckpt_report *r);

#endif
