/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories into which scripts put files of their own, each by a torch.save:
 *
 *   step_100/model.pt, optim.pt, rng.pt      epoch_3/model.pth, meta.json
 *   ckpt-200/rank0.pt, rank1.pt              1000/state.pt
 *
 * No program stands behind these names. So the directory's own has to say that it is of a
 * step or an epoch; or it is a number and nothing else, as that of a year's data may be, and
 * then a file in it has to say that it is a state. One that is written over each time, as
 * latest/ is, is none: after a crash in between nobody can tell its new files from the old
 * ones.
 *
 * Nothing in it says which files there have to be, and each is whole by itself: what is
 * missing others beside it tell (ckpt/found_sets.c), a file that has kept the name by which
 * it was written, or one of a rank that is missing.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/beside.h"
#include "ckpt/step_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits alone, but for those of a day, as 20260131, and as many as those of a clock are. */
static bool is_number(const char *name)
{
    size_t len = strlen(name);
    unsigned year = 0, month = 0, day = 0;

    if (len == 0 || len >= 10 || strspn(name, "0123456789") != len) {
        return false;
    }
    (void)sscanf(name, "%4u%2u%2u", &year, &month, &day);
    return len != 8 || year < 1990 || year > 2099 || month < 1 || month > 12 || day < 1 ||
           day > 31;
}

static bool has_format(const char *name)
{
    return found_is_torch_name(name) || found_is_safetensors_name(name);
}

/* --- which are --- */

/* A file, or a directory, of another step or epoch: it is a place for checkpoints. What it
 * says of epochs may be besides, where the directory is of a step. */
static bool is_of_another(const struct found *f, const char *name)
{
    uint64_t n = 0;
    bool is_step = false;
    bool is = f->is_step ? found_number(name, &n, &is_step) && is_step
                         : found_says_time(name, &n);

    return is && n != f->step && (has_format(name) || !strchr(name, '.'));
}

/* One of muster's own that somebody has called otherwise: programs do not read it. */
static bool is_of_muster(const struct strlist *names)
{
    bool has_commit = false, has_manifest = false, has_index = false;

    for (size_t i = 0; i < names->n; i++) {
        has_commit |= strcmp(names->items[i], STEP_COMMIT) == 0;
        has_manifest |= strcmp(names->items[i], STEP_MANIFEST) == 0;
        has_index |= strcmp(names->items[i], STEP_INDEX) == 0;
    }
    return has_index || (has_commit && has_manifest);
}

/* One that may be anybody's by its name is looked at. What cannot be opened may be one. */
static bool is_file_of_ours(struct io *io, int dir, const char *name)
{
    int fd;

    if (str_ends(name, ".bin")) {
        return found_begins_as_torch(io, dir, name);
    }
    fd = io->ops->open_file(io, dir, name);
    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    return fd >= 0 || (fd != -ELOOP && fd != -EINVAL && fd != -ENOENT);
}

bool found_is_plain(struct io *io, int fd, const struct found *f, const struct strlist *names)
{
    enum found_word least = is_number(f->name) ? FOUND_WORD_STATE : FOUND_WORD_NONE;
    uint64_t step;
    bool is = false;

    if (!f->has_step || (least == FOUND_WORD_NONE && !found_says_time(f->name, &step)) ||
        found_is_put_away_name(f->name) || found_is_data_name(f->name) || is_of_muster(names)) {
        return false;
    }
    for (size_t i = 0; i < names->n; i++) {
        if (is_of_another(f, names->items[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < names->n && !is; i++) {
        const char *name = names->items[i];

        is = name[0] != '.' && has_format(name) && found_word_of(name) >= least &&
             is_file_of_ours(io, fd, name);
    }
    return is;
}

/* --- what is in one --- */

/* Capitals alone: DONE, SUCCESS. It may be that only what has it is finished. */
static bool is_marker(const char *name)
{
    return *name && strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == strlen(name);
}

/* But what was only measured is not written each time, nor is a copy of the best one. */
bool found_is_needed_name(const char *name)
{
    static const char *const endings[] = {".json", ".pkl", ".pickle", ".npy", ".npz", ".yaml",
                                          ".yml"};
    char final[FOUND_NAME_BYTES];
    bool is = has_format(name) || is_marker(name);

    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        is = is || str_ends(name, endings[i]);
    }
    return is && name[0] != '.' && found_word_of(name) != FOUND_WORD_DATA &&
           !strcasestr(name, "best") && !found_is_unfinished_name(name) &&
           !found_final_name(name, final);
}

static bool is_beside_weights(const char *name)
{
    return found_is_torch_name(name) && !found_is_weights_name(name);
}

unsigned found_count_parts(const struct strlist *names, bool is_beside)
{
    enum { MAX_PARTS = 256 };
    const char *parts[MAX_PARTS];
    unsigned n = 0;

    for (size_t i = 0; i < names->n && n < MAX_PARTS; i++) {
        unsigned k = n;

        while (k > 0 && !beside_is_like(parts[k - 1], names->items[i])) {
            k--;
        }
        if (k == 0 && found_is_needed_name(names->items[i]) &&
            (!is_beside || is_beside_weights(names->items[i]))) {
            parts[n++] = names->items[i];
        }
    }
    return n;
}

static bool is_of_rank(const char *name)
{
    uint64_t rank;

    return has_format(name) && name[0] != '.' && found_rank(name, &rank);
}

unsigned found_count_ranks(const struct strlist *names)
{
    unsigned n = 0;

    for (size_t i = 0; i < names->n; i++) {
        n += is_of_rank(names->items[i]);
    }
    return n;
}

/* --- whether it is whole --- */

static bool has_name(const struct strlist *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->items[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Files that have kept the name by which they are written. Where the other is there it was
 * left by one who came before. */
static int check_finished(const struct strlist *names, struct error *e)
{
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->items[i];
        char final[FOUND_NAME_BYTES];

        if (found_is_unfinished_name(name) ||
            (found_final_name(name, final) && !has_name(names, final))) {
            return error_text(e, ENOENT, "it was never finished: %s is what a file is called "
                              "while it is written", name);
        }
    }
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* One of each node may save, and no others: gaps are as wide as each other then. Some count
 * from 1. */
static bool has_gap(uint64_t *ranks, size_t n)
{
    bool has = false;

    qsort(ranks, n, sizeof(*ranks), by_number);
    for (size_t i = 2; i < n; i++) {
        has = has || ranks[i] - ranks[i - 1] != ranks[1] - ranks[0];
    }
    return n > 0 && (has || ranks[0] > 1);
}

/* Those that are named as the i-th is; `ranks` has room for all. 0: another one was before. */
static size_t take_alike(const struct strlist *names, size_t i, uint64_t *ranks)
{
    size_t n = 0;

    for (size_t k = i; k-- > 0;) {
        if (beside_is_like(names->items[k], names->items[i])) {
            return 0;
        }
    }
    for (size_t k = i; k < names->n; k++) {
        if (k == i || beside_is_like(names->items[k], names->items[i])) {
            n += found_rank(names->items[k], &ranks[n]);
        }
    }
    return n;
}

static int fail_of_ranks(const char *name, size_t n, size_t all, struct error *e)
{
    return all ? error_text(e, ENOENT, "it was never finished: of %zu files as %s, of which "
                            "each rank writes one, %zu %s there", all, name, n,
                            n == 1 ? "is" : "are")
               : error_text(e, ENOENT, "it was never finished: of files as %s some are missing, "
                            "by their numbers", name);
}

/* How many there are of the names of which there are most, and fewest. */
struct counts {
    size_t most, fewest, of_all; /* of_all: most, where they say that they are of ranks */
    const char *few;
};

/* What rank 0 writes alone may have its name, too. */
static int count_alike(const struct strlist *names, size_t i, uint64_t *ranks,
                       struct counts *c, struct error *e)
{
    size_t n = take_alike(names, i, ranks);

    if (n == 0) {
        return 0;
    }
    if (has_gap(ranks, n)) {
        return fail_of_ranks(names->items[i], n, 0, e);
    }
    c->most = n > c->most ? n : c->most;
    if (strcasestr(names->items[i], "rank")) {
        c->of_all = n > c->of_all ? n : c->of_all;
    }
    if ((n > 1 || ranks[0] != 0) && (!c->few || n < c->fewest)) {
        c->few = names->items[i];
        c->fewest = n;
    }
    return 0;
}

/* Names that are alike have as many each; of those that run now, where that is known. */
static int check_ranks(const struct strlist *names, unsigned world, struct found_facts *facts,
                       struct error *e)
{
    _free_ uint64_t *ranks = calloc(names->n + 1, sizeof(*ranks));
    struct counts c = {0};
    const char *any = NULL;
    int rc = ranks ? 0 : error_set(e, ENOMEM, "look at files of ranks");

    for (size_t i = 0; i < names->n && rc == 0; i++) {
        if (is_of_rank(names->items[i])) {
            any = names->items[i];
            rc = count_alike(names, i, ranks, &c, e);
        }
    }
    facts->n_ranks = (unsigned)c.of_all;
    if (rc == 0 && c.few && c.fewest < c.most) {
        rc = fail_of_ranks(c.few, c.fewest, c.most, e);
    } else if (rc == 0 && c.of_all > 0 && c.of_all < world) {
        rc = fail_of_ranks(any, c.of_all, world, e);
    }
    return rc;
}

static bool is_json(const char *name)
{
    return name[0] != '.' && str_ends(name, ".json") && !str_ends(name, ".index.json");
}

/* One that is called as only files of torch.save are, and has none of its bytes, is not let
 * pass: but it may be of something else. */
static int check_one(struct io *io, int dir, const char *name, struct found_facts *facts,
                     struct error *e)
{
    struct found_facts here = {0};
    int rc;

    if (is_json(name)) {
        return found_check_json(io, dir, name, e);
    }
    if (name[0] == '.' || !found_is_torch_name(name) || str_ends(name, ".bin") ||
        found_begins_as_torch(io, dir, name) || !is_file_of_ours(io, dir, name)) {
        return 0; /* the tree tells of what it knows */
    }
    rc = found_check_file(io, dir, name, FOUND_TORCH, false, &here, e);
    facts->is_foreign = here.is_foreign;
    return rc;
}

int found_check_plain(struct io *io, int dir, unsigned world, bool is_deep,
                      struct found_facts *facts, struct error *e)
{
    struct found_tree t = {.io = io, .is_deep = is_deep, .has_texts = true};
    _strlist_ struct strlist names = {0};
    int rc = found_names(io, dir, &names, e);

    rc = rc < 0 ? rc : check_finished(&names, e);
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        rc = check_one(io, dir, names.items[i], facts, e);
    }
    rc = rc < 0 ? rc : check_ranks(&names, world, facts, e);
    rc = rc < 0 ? rc : found_check_tree(&t, dir, facts, e);
    if (rc == 0 && facts->n_files == 0) {
        facts->is_foreign = true;
        rc = error_text(e, ERR_FORMAT, "no file in it is of torch.save or of safetensors");
    }
    return rc;
}
