/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines that several ranks print at about the same time, shown once with the set
 * of those ranks. Pure: time is an input.
 *
 * A line waits for others like it until it is `window_ms` old, until as many
 * ranks as there are have printed it, or until too much waits. Every line is
 * shown, none for a rank that did not print it, and those of a rank and stream in
 * their order; lines of several ranks may change places within the window.
 */
#ifndef MUSTER_LAUNCHER_FOLD_H
#define MUSTER_LAUNCHER_FOLD_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fold;

struct fold_line {
    uint32_t generation, rank, node; /* of the first that printed it */
    bool is_err;
    uint64_t wall_ns;                /* when it came first */
    const char *data;                /* without newline */
    size_t len;
    /* set by the fold */
    uint32_t n_ranks;
    bool has_many_nodes;
    const uint64_t *ranks;           /* a bit each */
    size_t n_words;                  /* of `ranks` */
};

typedef void fold_show_f(void *arg, const struct fold_line *line);

struct fold_config {
    fold_show_f *show;
    void *arg;
    unsigned window_ms;
    size_t max_lines; /* that wait */
    size_t max_bytes; /* about, of memory for them */
};

/* NULL without memory. */
struct fold *fold_create(const struct fold_config *config);
void fold_destroy(struct fold *f);

/* How many ranks there are whose lines come; 0: unknown. */
void fold_set_ranks(struct fold *f, uint32_t n);

/* Takes a line (copied), and shows what need not wait any longer. */
void fold_put(struct fold *f, const struct fold_line *line, uint64_t now_ms);
void fold_tick(struct fold *f, uint64_t now_ms);
void fold_flush(struct fold *f);

/* "0-3,7"; more than eight ranges are cut: "0,2,...(x412)". */
void fold_write_ranks(const struct fold_line *line, struct buf *to);

#endif
