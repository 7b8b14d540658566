/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of several checkpoints of one step the one with the highest token counts, wherever some
 * are put in order: their names begin with random digits, and say nothing.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/beside.h"
#include "ckpt/found.h"
#include "ckpt/keep.h"
#include "ckpt/step_bed.h"
#include "ckpt/store_bed.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP = 7, N = 4 };

/* Names have the first eight digits of these: 10000000, 30000000, 20000000, 18000000. */
static const uint64_t tokens[N] = {0x10000000, 0x30000000, 0x200000000, 0x1800000000};
/* The newest first. */
static const char in_order[] = "18000000 20000000 30000000 10000000 ";

static char root_path[PATH_MAX];
static int root = -1;

static void make_root(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root_path, sizeof(root_path), "%s/order_test.XXXXXX", tmp ? tmp : "/tmp");
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
    for (size_t i = 0; i < N; i++) {
        if (bed_save(io_system(), root, STEP, tokens[i], NULL) < 0) {
            bail_out("no checkpoint");
        }
    }
}

static void remove_root(void)
{
    close(root);
    fs_remove_tree(root_path, NULL);
}

enum { TEXT_BYTES = 512 };

/* What tells those of a step. */
static void add_digits(char to[TEXT_BYTES], const char *name)
{
    const char *dash = strrchr(name, '-');
    size_t n = strlen(to);

    snprintf(to + n, TEXT_BYTES - n, "%.32s ", dash ? dash + 1 : name);
}

static const char *listed(void)
{
    static char text[TEXT_BYTES];
    _free_ struct step_entry *entries = NULL;
    struct error e = {0};
    size_t n = 0;

    text[0] = '\0';
    if (step_list(io_system(), root, &entries, &n, &e) < 0) {
        bail_out("%s", e.text);
    }
    for (size_t i = 0; i < n; i++) {
        add_digits(text, entries[i].name);
    }
    return text;
}

static void take_commit(uint64_t token)
{
    char name[STEP_NAME_BYTES], path[2 * STEP_NAME_BYTES];

    bed_name(STEP, token, name);
    snprintf(path, sizeof(path), "%s/COMMIT", name);
    if (unlinkat(root, path, 0) < 0) {
        bail_out("no %s", path);
    }
}

static void test_list(void)
{
    _step_ struct step s = {0};

    make_root();
    is_str(listed(), in_order, "in a directory");
    is_int(step_find_newest(io_system(), root, true, NULL, NULL, &s, NULL), 0, "the newest");
    ok(s.commit.token == tokens[N - 1], "has the highest token");
    take_commit(tokens[3]);
    take_commit(tokens[1]);
    is_str(listed(), "20000000 10000000 30000000 18000000 ",
           "what was never finished comes last, the higher name first");
    remove_root();
}

static void test_keep(void)
{
    for (unsigned n = 1; n < N; n++) {
        const struct ckpt_keep want = {.rule.keep = n};
        char left[sizeof(in_order)];

        make_root();
        is_int(keep_apply(io_system(), root, &want, NULL, NULL, NULL, NULL), 0, "%u are kept", n);
        str_copy(left, 9 * n + 1, in_order);
        is_str(listed(), left, "the newest of them");
        remove_root();
    }
}

static void put(const char *name, size_t cut)
{
    static const char file[] = "\x40\0\0\0\0\0\0\0{\"t\":{\"dtype\":\"U8\",\"shape\":[1],"
                               "\"data_offsets\":[0,1]}}                x";
    int fd = openat(root, name, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, file, sizeof(file) - 1 - cut) < 0) {
        bail_out("no %s", name);
    }
    close(fd);
}

static void test_found(void)
{
    _free_ struct found *all = NULL;
    char text[TEXT_BYTES] = "";
    struct error e = {0};
    size_t n = 0;

    make_root();
    put("step-7.safetensors", 0);
    put("last-step-7.safetensors", 0);
    put("zz-step-7.safetensors", 0);
    put("step-8.safetensors", 0);
    if (found_list(io_system(), root, &all, &n, &e) < 0) {
        bail_out("%s", e.text);
    }
    for (size_t i = 0; i < n; i++) {
        add_digits(text, all[i].name);
    }
    is_str(text, "8.safetensors 18000000 20000000 30000000 10000000 7.safetensors "
                 "7.safetensors 7.safetensors ", "whoever wrote them, muster's first");
    for (size_t i = 1; i < n; i++) {
        ok(found_compare(&all[i - 1], &all[i]) < 0 && found_compare(&all[i], &all[i - 1]) > 0,
           "%s is before %s", all[i - 1].name, all[i].name);
    }
    remove_root();
}

static void test_store(void)
{
    _store_bed_ struct store st = {0};
    _free_ struct store_entry *all = NULL;
    _free_ struct found *here = NULL;
    char text[TEXT_BYTES] = "", path[PATH_MAX + 8];
    struct error e = {0};
    size_t n = 0, n_here = 0;

    make_root();
    put("step-7.safetensors", 0);
    snprintf(path, sizeof(path), "%s/store", root_path);
    if (!store_bed_open(path, &st) ||
        found_list(io_system(), root, &here, &n_here, &e) < 0) {
        bail_out("no store: %s", e.text);
    }
    for (size_t i = 0; i < n_here; i++) {
        if (store_bed_put(&st, root, &here[i]) < 0) {
            bail_out("not sent: %s", here[i].name);
        }
    }
    if (store_list(&st, false, &all, &n, &e) < 0) {
        bail_out("%s", e.text);
    }
    for (size_t i = 0; i < n && i < N; i++) {
        add_digits(text, all[i].name);
    }
    is_str(text, in_order, "in a store");
    ok(n == N + 1 && strncmp(all[N].name, "step-7", 6) == 0, "others' come after muster's");
    for (size_t i = 1; i < n; i++) {
        ok(store_newest_first(&all[i - 1], &all[i]) < 0 &&
           store_newest_first(&all[i], &all[i - 1]) > 0, "%s is before %s", all[i - 1].name,
           all[i].name);
    }
    remove_root();
}

/* Whatever their times say. */
static void test_beside(void)
{
    char name[STEP_NAME_BYTES], path[PATH_MAX + STEP_NAME_BYTES + 1];
    char avoided[sizeof(path) + 1];
    struct error e = {0};
    struct beside b;

    make_root();
    for (size_t i = 0; i < N; i++) {
        const struct timespec at = {.tv_sec = 1000 - (time_t)i}, both[2] = {at, at};

        bed_name(STEP, tokens[i], name);
        utimensat(root, name, both, 0);
    }
    if (bed_save(io_system(), root, STEP + 1, 1, NULL) < 0) {
        bail_out("no checkpoint");
    }
    bed_name(STEP + 1, 1, name);
    snprintf(path, sizeof(path), "%s/%s", root_path, name);
    is_int(beside_older(io_system(), path, "", &b, &e), 0, "an older one is looked for");
    bed_name(STEP, tokens[N - 1], name);
    ok(b.state == BESIDE_OTHER && strcmp(strrchr(b.path, '/') + 1, name) == 0,
       "of one step that which counts: %s", b.path);
    snprintf(path, sizeof(path), "%s", b.path);
    snprintf(avoided, sizeof(avoided), "%s\n", path);
    is_int(beside_older(io_system(), path, avoided, &b, &e), 0, "one older than that");
    bed_name(STEP, tokens[N - 2], name);
    ok(b.state == BESIDE_OTHER && strcmp(strrchr(b.path, '/') + 1, name) == 0,
       "is the next of its step, which programs would load: %s", b.path);
    remove_root();
}

int main(void)
{
    test_list();
    test_keep();
    test_found();
    test_store();
    test_beside();
    return tap_done();
}
