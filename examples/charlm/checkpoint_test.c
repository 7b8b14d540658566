/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: what is saved is what is loaded, and nothing else is. */
#include <config.h>

#include "checkpoint.h"
#include "file.h"
#include "random.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct shape shape = {
    .vocab = 3,
    .context = 4,
    .width = 2,
    .heads = 1,
    .layers = 1,
};
static const struct text text = {.n_symbols = 3, .symbols = {'a', 'b', 'c'}};

static void make_state(struct state *s)
{
    struct failure f;

    if (state_create(s, shape, &text, 1, 8, &f) < 0) {
        bail_out("%s", f.text);
    }
}

/* A state unlike a new one in everything that is saved. */
static void make_trained_state(struct state *s)
{
    make_state(s);
    s->step = 1234;
    s->seed = 0xfedcba9876543210;
    s->batch = 77;
    for (size_t i = 0; i < 3 * s->n_weights; i++) {
        s->values[i] = (real)random_normal(2, RANDOM_TEST, i);
    }
    for (uint64_t step = 1; step <= s->step; step++) {
        uint32_t generation = step <= 1000 ? 1 : 4;

        if (history_add(&s->history, generation, 5 - generation, step, 8) < 0) {
            bail_out("no memory");
        }
    }
}

static bool same_history(const struct history *a, const struct history *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        const struct stretch *s = &a->stretches[i], *t = &b->stretches[i];

        if (s->generation != t->generation || s->workers != t->workers ||
            s->first != t->first || s->last != t->last ||
            s->sequences != t->sequences) {
            return false;
        }
    }
    return a->n == b->n;
}

static bool same(const struct state *a, const struct state *b)
{
    return a->step == b->step && a->seed == b->seed && a->batch == b->batch &&
           same_history(&a->history, &b->history) &&
           memcmp(a->values, b->values,
                  3 * a->n_weights * sizeof(*a->values)) == 0;
}

static void test_round_trip(const char *dir)
{
    char path[PATH_MAX], expected[PATH_MAX];
    struct state saved, loaded;
    struct failure f = {{0}};
    struct stat st;

    make_trained_state(&saved);
    make_state(&loaded);
    is_int(checkpoint_save(dir, &saved, path, &f), 0, "saved %s", f.text);
    snprintf(expected, sizeof(expected), "%s/charlm-00001234.ckpt", dir);
    is_str(path, expected, "under the name of its step");
    ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "private");
    ok(!same(&saved, &loaded), "(two states)");
    is_int(checkpoint_load(path, &loaded, &f), 0, "loaded %s", f.text);
    ok(same(&saved, &loaded), "what was saved");
    is_int(checkpoint_save(dir, &loaded, path, &f), 0, "saved over itself");
    unlink(path);
    ok(checkpoint_load(path, &loaded, &f) == -ENOENT, "no file");
    like(f.text, path, "is named");
    snprintf(expected, sizeof(expected), "%s/missing", dir);
    ok(checkpoint_save(expected, &saved, path, &f) < 0, "no place");
    like(f.text, expected, "is named");
    state_release(&saved);
    state_release(&loaded);
}

/* Tries `data` as a checkpoint: it must be refused with its name, and must not
 * change the state. */
static bool is_refused(const char *dir, const uint8_t *data, size_t len,
                       struct failure *f)
{
    char path[PATH_MAX];
    struct state s, before;
    bool refused;
    FILE *to;

    make_state(&s);
    make_state(&before);
    snprintf(path, sizeof(path), "%s/tried", dir);
    /* Not file_write(): a thousand flushes take their time. */
    to = fopen(path, "w");
    if (!to || fwrite(data, 1, len, to) != len || fclose(to) != 0) {
        bail_out("cannot write %s", path);
    }
    refused = checkpoint_load(path, &s, f) < 0 && same(&s, &before) &&
              strstr(f->text, path);
    unlink(path);
    state_release(&s);
    state_release(&before);
    return refused;
}

static void test_damage(const char *dir)
{
    char path[PATH_MAX];
    struct failure f = {{0}};
    struct state s;
    uint8_t *data;
    size_t len, n_accepted = 0;

    make_trained_state(&s);
    if (checkpoint_save(dir, &s, path, &f) < 0 ||
        file_read(path, 1 << 20, &data, &len, &f) < 0) {
        bail_out("%s", f.text);
    }
    for (size_t at = 0; at < len; at++) {
        data[at] ^= (uint8_t)(1 << at % 8);
        if (!is_refused(dir, data, len, &f)) {
            n_accepted++;
            diag("accepted with a bit changed in byte %zu", at);
        }
        data[at] ^= (uint8_t)(1 << at % 8);
    }
    is_int((intmax_t)n_accepted, 0, "a bit changed in any of %zu bytes", len);
    for (size_t cut = 0; cut < len; cut += cut < 400 ? 1 : 37) {
        n_accepted += !is_refused(dir, data, cut, &f);
    }
    is_int((intmax_t)n_accepted, 0, "cut anywhere");
    data[len / 2] ^= 4;
    is_refused(dir, data, len, &f);
    like(f.text, "is damaged: its digest does not match", "a message for it");
    is_refused(dir, data, len - 1, &f);
    like(f.text, "is damaged", "a message for a short one");
    is_refused(dir, (const uint8_t *)"hello, world", 12, &f);
    like(f.text, "is not a checkpoint of charlm", "a message for others");
    data[8] = 9;
    is_refused(dir, data, len, &f);
    like(f.text, "is of version 9: expected 2", "a message for a version");
    free(data);
    unlink(path);
    state_release(&s);
}

static void test_other_model(const char *dir)
{
    static const struct text other = {.n_symbols = 3,
                                      .symbols = {'a', 'b', 'd'}};
    struct shape wider = shape;
    struct state s, t;
    struct failure f = {{0}};
    char path[PATH_MAX];

    wider.width = 6;
    make_trained_state(&s);
    if (checkpoint_save(dir, &s, path, &f) < 0 ||
        state_create(&t, wider, &text, 1, 8, &f) < 0) {
        bail_out("%s", f.text);
    }
    ok(checkpoint_load(path, &t, &f) < 0, "another shape is refused");
    like(f.text, "width 2", "with what it is");
    state_release(&t);
    if (state_create(&t, shape, &other, 1, 8, &f) < 0) {
        bail_out("%s", f.text);
    }
    ok(checkpoint_load(path, &t, &f) < 0, "other characters are refused");
    like(f.text, "other characters", "and said");
    unlink(path);
    state_release(&t);
    state_release(&s);
}

static bool exists(const char *dir, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* What went into a model, apart from the model. */
static void test_history(const char *dir)
{
    struct state s;
    struct history h = {0};
    struct failure f = {{0}};
    char path[PATH_MAX];

    make_trained_state(&s);
    is_int((intmax_t)s.history.n, 2, "steps of one generation are one stretch");
    history_add(&s.history, 4, 1, 1234, 8);
    is_int((intmax_t)s.history.n, 3, "a step that is taken twice shows");
    if (checkpoint_save(dir, &s, path, &f) < 0) {
        bail_out("%s", f.text);
    }
    is_int(checkpoint_history(path, &h, &f), 0, "read alone %s", f.text);
    ok(same_history(&h, &s.history), "it is what was saved");
    ok(h.n == 3 && h.stretches[0].last == 1000 &&
           h.stretches[1].first == 1001 && h.stretches[1].last == 1234 &&
           h.stretches[1].sequences == 234 * 8,
       "where each stretch begins and ends, and what went into it");
    history_release(&h);
    unlink(path);
    ok(checkpoint_history(path, &h, &f) < 0, "no file has none");
    state_release(&s);
}

static void test_tidy(const char *dir)
{
    static const uint64_t steps[] = {100, 200, 900, 300};
    char path[PATH_MAX], other[PATH_MAX];
    struct failure f = {{0}};
    struct state s;

    make_state(&s);
    snprintf(other, sizeof(other), "%s/a-file-of-somebody", dir);
    file_write(other, "x", 1, &f);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        s.step = steps[i];
        checkpoint_save(dir, &s, path, &f);
    }
    is_int(checkpoint_tidy(path, 0, &f), 0, "keep all");
    ok(exists(dir, "charlm-00000100.ckpt"), "does");
    is_int(checkpoint_tidy(path, 2, &f), 0, "keep two, after step 300");
    ok(!exists(dir, "charlm-00000100.ckpt"), "the oldest goes");
    ok(exists(dir, "charlm-00000200.ckpt") &&
           exists(dir, "charlm-00000300.ckpt"), "two stay");
    ok(exists(dir, "charlm-00000900.ckpt"), "so does what is not older");
    ok(exists(dir, "a-file-of-somebody"), "and what is not ours");
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        snprintf(path, sizeof(path), "%s/charlm-%08u.ckpt", dir,
                 (unsigned)steps[i]);
        unlink(path);
    }
    unlink(other);
    state_release(&s);
}

static void test_sweep(const char *dir)
{
    char stale[PATH_MAX], held[PATH_MAX], deep[PATH_MAX];
    struct failure f = {{0}};
    FILE *holder;

    snprintf(stale, sizeof(stale), "%s/.charlm-abcdef.tmp", dir);
    snprintf(held, sizeof(held), "%s/.charlm-ghijkl.tmp", dir);
    file_write(stale, "x", 1, &f);
    file_write(held, "x", 1, &f);
    holder = fopen(held, "r");
    if (!holder || flock(fileno(holder), LOCK_EX) < 0) {
        bail_out("cannot lock %s", held);
    }
    is_int(checkpoint_directory(dir, &f), 0, "sweep");
    ok(!exists(dir, ".charlm-abcdef.tmp"), "what a dead writer left is gone");
    ok(exists(dir, ".charlm-ghijkl.tmp"), "what is being written stays");
    fclose(holder);
    is_int(checkpoint_directory(dir, &f), 0, "sweep again");
    ok(!exists(dir, ".charlm-ghijkl.tmp"), "unlocked it goes");
    snprintf(deep, sizeof(deep), "%s/x/y", dir);
    is_int(checkpoint_directory(deep, &f), 0, "missing directories are made");
    rmdir(deep);
    snprintf(deep, sizeof(deep), "%s/x", dir);
    rmdir(deep);
    file_write(stale, "x", 1, &f);
    ok(checkpoint_directory(stale, &f) < 0, "a file is no directory");
    like(f.text, stale, "and named");
    unlink(stale);
}

int main(void)
{
    char dir[] = "checkpoint_test.XXXXXX";

    if (!mkdtemp(dir)) {
        bail_out("no directory");
    }
    test_round_trip(dir);
    test_damage(dir);
    test_other_model(dir);
    test_history(dir);
    test_tidy(dir);
    test_sweep(dir);
    ok(rmdir(dir) == 0, "no file is left");
    return tap_done();
}
