/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main() of a fuzz target where there is no libFuzzer: runs each file of
 * its corpus, tests/corpus/<name of the program>/, then the same number of
 * mutations of each for everybody (the same ones every time), as a TAP test.
 * With arguments it runs just those files. A finding is a crash.
 *
 *   store_fuzz [--mutations N] [FILE...]
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUT_BYTES = 1 << 20, MUTATIONS = 2000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Changes a few bytes, cuts some out or repeats some; at most doubles it. */
static size_t mutate(uint8_t *data, size_t len, uint64_t *state)
{
    int n_edits = 1 + (int)(next_random(state) % 6);

    while (n_edits-- > 0 && len > 1) {
        size_t at = next_random(state) % len;
        size_t n = 1 + next_random(state) % 16;

        n = n < len - at ? n : len - at;
        switch (next_random(state) % 4) {
        case 0:
            data[at] = (uint8_t)next_random(state);
            break;
        case 1:
            data[at] ^= (uint8_t)(1u << (next_random(state) % 8));
            break;
        case 2:
            memmove(data + at, data + at + n, len - at - n);
            len -= n;
            break;
        default:
            memmove(data + at + n, data + at, len - at);
            len += n;
            break;
        }
    }
    return len;
}

static void run_file(const char *path, int n_mutations)
{
    _free_ char *data = NULL;
    _free_ uint8_t *work = NULL;
    struct error e = {0};
    size_t len;
    uint64_t state = 1;

    if (fs_read(path, MAX_INPUT_BYTES, &data, &len, &e) < 0) {
        bail_out("%s", e.text);
    }
    LLVMFuzzerTestOneInput((const uint8_t *)data, len);
    work = malloc(len + 6 * 16 + 1);
    for (int i = 0; i < n_mutations && work; i++) {
        size_t n;

        memcpy(work, data, len);
        n = mutate(work, len, &state);
        LLVMFuzzerTestOneInput(work, n);
    }
    ok(true, "%s and %d mutations", strrchr(path, '/') ? strrchr(path, '/') + 1
                                                       : path, n_mutations);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_file(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void run_corpus(const char *program, int n_mutations)
{
    const char *srcdir = getenv("MUSTER_SRCDIR");
    const char *name = strrchr(program, '/');
    struct dirent **all = NULL;
    char path[4096];
    int n;

    name = name ? name + 1 : program;
    name += str_starts(name, "lt-") ? 3 : 0;
    fs_path(path, sizeof(path), NULL, "%s/tests/corpus/%s",
            srcdir ? srcdir : "..", name);
    n = scandir(path, &all, is_file, by_name);
    if (n <= 0) {
        bail_out("no corpus in %s", path);
    }
    for (int i = 0; i < n; i++) {
        char file[4096];

        if (fs_path(file, sizeof(file), NULL, "%s/%s", path,
                    all[i]->d_name) == 0) {
            run_file(file, n_mutations);
        }
        free(all[i]);
    }
    free(all);
}

int main(int argc, char **argv)
{
    int n_mutations = MUTATIONS;
    int first = 1;

    if (argc > 2 && strcmp(argv[1], "--mutations") == 0) {
        n_mutations = atoi(argv[2]);
        first = 3;
    }
    for (int i = first; i < argc; i++) {
        run_file(argv[i], n_mutations);
    }
    if (first >= argc) {
        run_corpus(argv[0], n_mutations);
    }
    return tap_done();
}
