/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that are left alone, because generations that started from them died
 * again and again before they got anywhere: what was saved may be whole, to the last
 * byte, and still be the state of which the program dies. A restart from it would end
 * the same way, until the budget of restarts is gone.
 *
 * So after `limit` such generations in a row the next one starts from an older one.
 * That happens AVOID_MAX times at most: then, or where none is older, the newest has
 * its turn again, and the budget decides.
 *
 * Counted are failures of workers alone. A generation got somewhere when it saved, or
 * reported a step beyond the one that it started from, or two steps. A checkpoint is
 * left alone until one of its step, or a later one, has been saved. Pure.
 */
#ifndef MUSTER_RENDEZVOUS_AVOID_H
#define MUSTER_RENDEZVOUS_AVOID_H

#include "base/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define AVOID_MAX 2
#define AVOID_PATH_BYTES 1024 /* as ORDER_PATH_BYTES */
#define AVOID_LINES_BYTES (AVOID_MAX * AVOID_PATH_BYTES + 1)

struct avoid_one {
    char path[AVOID_PATH_BYTES];
    int64_t step;      /* -1: not known */
    uint32_t n_deaths; /* for which it is left alone */
};

/* Zero-initialise. What is not used in it is zero. */
struct avoid {
    uint32_t n_deaths; /* in a row, of generations that started from the same one */
    bool is_spent;     /* all was tried: nothing more is left alone before some
                          generation gets somewhere */
    uint32_t n;
    struct avoid_one list[AVOID_MAX]; /* in the order in which they came */
};

enum avoid_verdict {
    AVOID_NO = 0,   /* the next generation starts from it again */
    AVOID_IT = 1,   /* it is left alone from now on */
    AVOID_BACK = 2, /* it would be, but AVOID_MAX are: the list is empty now, and
                       the newest has its turn again */
};

/* A generation that started from `path`, of `step`, died of a failure of a worker and
 * had got nowhere. `limit` 0: nothing is ever left alone. With BACK `ret_back` is the
 * one that was left alone first. */
enum avoid_verdict avoid_died(struct avoid *a, uint32_t limit, const char *path,
                              int64_t step, struct avoid_one *ret_back);

/* One is to be left alone, and there is none that is older: the one that was left alone
 * first, which has its turn again. */
struct avoid_one avoid_go_back(struct avoid *a);

/* A generation has got somewhere, or starts from another one. True: that changes
 * something. */
bool avoid_moved(struct avoid *a);

/* One of that step was saved; -1: nobody knows its step. True: fewer are left alone. */
bool avoid_saved(struct avoid *a, int64_t step);

bool avoid_has(const struct avoid *a, const char *path);

/* Paths, one a line, with a newline behind each: for the environment of workers, and
 * ckpt/avoided.h. "" for none. */
void avoid_lines(const struct avoid *a, char to[AVOID_LINES_BYTES]);

void avoid_put(struct buf *b, const struct avoid *a);
void avoid_get(struct wire_reader *r, struct avoid *ret);

#endif
