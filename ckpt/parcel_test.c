/* SPDX-License-Identifier: Apache-2.0 */
/* What a store may say of the files of a checkpoint: paths, and numbers. */
#include <config.h>

#include "ckpt/parcel.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void test_paths(void)
{
    static const struct {
        const char *path;
        bool is;
    } cases[] = {
        {"a", true}, {"a/b/c", true}, {"..a", true}, {"a..", true}, {".a/b", true},
        {"...", true}, {".x/y", true}, {"a\0/..", true},
        {"", false}, {"/", false}, {"/a", false}, {"a/", false}, {"a//b", false},
        {".", false}, {"./a", false}, {"a/.", false}, {"a/./b", false},
        {"..", false}, {"../a", false}, {"a/..", false}, {"a/../b", false},
    };
    char longest[PARCEL_PATH_BYTES + 1];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ok(parcel_is_path(cases[i].path) == cases[i].is, "%s '%s'",
           cases[i].is ? "a path" : "none", cases[i].path);
    }
    for (size_t i = 0; i < sizeof(longest); i++) {
        longest[i] = i % 2 ? '/' : 'a';
    }
    longest[PARCEL_PATH_BYTES - 1] = '\0';
    longest[PARCEL_PATH_BYTES - 2] = 'a';
    longest[PARCEL_PATH_BYTES - 3] = 'a';
    ok(strlen(longest) == PARCEL_PATH_BYTES - 1 && parcel_is_path(longest), "the longest");
    longest[PARCEL_PATH_BYTES - 1] = 'a';
    longest[PARCEL_PATH_BYTES] = '\0';
    ok(!parcel_is_path(longest), "a longer one");
    memset(longest, 'n', 256);
    longest[255] = '\0';
    ok(parcel_is_path(longest), "the longest name");
    longest[255] = 'n';
    longest[256] = '\0';
    ok(!parcel_is_path(longest), "a longer one");
}

static int add(struct parcel *p, const char *path, uint64_t bytes)
{
    return parcel_add(p, path, bytes, (struct digest){0}, NULL);
}

static void test_add(void)
{
    _parcel_ struct parcel p = {0};
    char name[16];

    is_int(add(&p, "a/b", 5), 0, "a file");
    is_int(add(&p, "../b", 5), -EINVAL, "one that lies elsewhere");
    is_int(add(&p, PARCEL_COPY, 5), -EINVAL, "what stands for all others");
    is_int(add(&p, "c", (uint64_t)INT64_MAX + 1), -EINVAL, "too large a one");
    is_int(add(&p, "c", (uint64_t)INT64_MAX - 4), -EINVAL, "or too much of all");
    is_int(add(&p, "c", UINT64_MAX - 2), -EINVAL, "also where that begins anew");
    is_int(add(&p, "c", (uint64_t)INT64_MAX - 5), 0, "just so much");
    ok(p.n == 2 && p.bytes == INT64_MAX, "they are added up");
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        (void)add(&p, name, 0);
    }
    ok(p.n == 22 && strcmp(p.items[0].path, "a/b") == 0 && strcmp(p.items[21].path, "f19") == 0,
       "all of many");
}

static void test_many(void)
{
    struct parcel p = {.n = PARCEL_MAX_FILES};

    is_int(add(&p, "a", 5), -EINVAL, "one more than there may be");
}

int main(void)
{
    test_paths();
    test_add();
    test_many();
    return tap_done();
}
