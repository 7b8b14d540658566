/* SPDX-License-Identifier: Apache-2.0 */
/* How `muster ckpt` shows checkpoints, whether in a directory or in a store. */
#ifndef MUSTER_LAUNCHER_CKPT_REPORT_H
#define MUSTER_LAUNCHER_CKPT_REPORT_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
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
    uint64_t part_bytes, shard_bytes, bytes;
    const char *best;
    bool is_dry, is_newer;
};
extern const struct options ckpt_options;

/* --- a table, or JSON --- */

/* What became of one. */
struct ckpt_look {
    const char *name, *kind; /* kind: "-" for what nobody knows */
    bool has_step;
    uint64_t step;
    uint64_t bytes, n_files;
    bool is_structure_only;
    int rc;
    struct error why;
};

/* A name in that place, a directory or a store, as a line. */
void ckpt_print_name(const char *place, const char *name);

/* "muster: passed over, damaged: ..." on stderr, without what a terminal acts on: the
 * names in `why` are anybody's. */
void ckpt_tell(const char *what, const char *state, const struct error *why);

/* "1.5 GiB". */
void ckpt_format_bytes(uint64_t bytes, char *to, size_t size);

struct ckpt_report {
    struct strlist cells;
    struct buf json;
    struct jsonw w; /* into it */
    size_t n, n_bad;
};
void ckpt_report_start(struct ckpt_report *r);
void ckpt_report_add(struct ckpt_report *r, const struct ckpt_look *l);
/* Prints it. Returns the exit status. */
int ckpt_report_print(struct ckpt_report *r, enum show_format format);
void ckpt_report_release(struct ckpt_report *r);

#endif
