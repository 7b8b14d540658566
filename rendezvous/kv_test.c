/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/kv.h"

#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint8_t seed[16] = {1, 2, 3};

static int put(struct kv *kv, const char *path, const char *value)
{
    return kv_put(kv, path, value, strlen(value));
}

static void has(struct kv *kv, const char *path, const char *want)
{
    struct kv_value *v = kv_get(kv, path);
    char text[64] = "";

    if (v) {
        memcpy(text, v->data, v->len < 63 ? v->len : 63);
    }
    is_str(v ? text : NULL, want, "%s", path);
    kv_value_unref(v);
}

static void test_paths(void)
{
    static const struct {
        const char *path;
        bool is_path;
    } cases[] = {
        {"a/b", true},   {"local_0/12", true}, {"", false},   {"a", false},
        {"a/", false},   {"/b", false},        {"a/b/c", false}, {"/", false},
        {"a//b", false}, {"0123456789/abcdef", false},
    };
    struct kv_limits limits = {.path_bytes = 12};
    _cleanup_(kv) struct kv *kv = kv_create(&limits, seed);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(kv_is_path(kv, cases[i].path), cases[i].is_path, "'%s'",
               cases[i].path);
        is_int(put(kv, cases[i].path, "x"), cases[i].is_path ? 0 : -EINVAL,
               "put");
    }
}

static void test_values(void)
{
    _cleanup_(kv) struct kv *kv = kv_create(NULL, seed);
    struct kv_value *held;

    has(kv, "a/b", NULL);
    is_int(put(kv, "a/b", "1"), 0, "set");
    held = kv_get(kv, "a/b");
    is_int(put(kv, "a/b", "22"), 0, "set again");
    is_int(put(kv, "b/a", ""), 0, "an empty one");
    has(kv, "a/b", "22");
    has(kv, "b/a", "");
    is_int((int)held->len, 1, "who has the old value keeps it");
    is_int(held->data[0], '1', "as it was");
    kv_value_unref(held);
    is_int((int)kv_n_keys(kv), 2, "two keys");
}

/* A scope goes with the last one who is done with it. */
static void test_finish(void)
{
    _cleanup_(kv) struct kv *kv = kv_create(NULL, seed);

    put(kv, "s/0", "a");
    put(kv, "s/1", "b");
    put(kv, "t/0", "c");
    kv_finish(kv, "s/0");
    kv_finish(kv, "s/0");
    has(kv, "s/0", "a");
    kv_finish(kv, "s/7");
    kv_finish(kv, "u/0");
    put(kv, "s/0", "again");
    kv_finish(kv, "s/1");
    has(kv, "s/0", "again");
    kv_finish(kv, "s/0");
    has(kv, "s/0", NULL);
    has(kv, "s/1", NULL);
    has(kv, "t/0", "c");
    put(kv, "s/1", "new");
    has(kv, "s/1", "new");
    kv_finish(kv, "s/1");
    kv_finish(kv, "t/0");
    is_int((int)kv_n_keys(kv), 0, "nothing is left");
    is_int((int)kv_used_bytes(kv), 0, "of memory either");
}

static void test_limits(void)
{
    struct kv_limits limits = {.value_bytes = 10, .memory_bytes = 2000};
    _cleanup_(kv) struct kv *kv = kv_create(&limits, seed);
    char path[16];
    int n = 0, rc = 0;

    is_int(put(kv, "a/b", "0123456789"), 0, "the largest value");
    is_int(put(kv, "a/b", "0123456789x"), -EFBIG, "one more");
    has(kv, "a/b", "0123456789");
    while (rc == 0 && n < 100) {
        snprintf(path, sizeof(path), "k/%d", n++);
        rc = put(kv, path, "0123456789");
    }
    is_int(rc, -ENOMEM, "memory is bounded");
    ok(n > 2 && n < 9, "after %d keys", n);
    is_int(put(kv, "a/b", "9876543210"), 0, "in place it goes on");
    kv_finish(kv, "a/b");
    is_int(put(kv, path, "0123456789"), 0, "and where a scope went");
}

/* Many scopes and keys, in a fixed mixture; counted beside it. */
static void test_many(void)
{
    _cleanup_(kv) struct kv *kv = kv_create(NULL, seed);
    char path[32];

    for (int i = 0; i < 5000; i++) {
        snprintf(path, sizeof(path), "s%d/%d", i % 50, i / 50);
        put(kv, path, path);
    }
    is_int((int)kv_n_keys(kv), 5000, "all are there");
    has(kv, "s49/99", "s49/99");
    for (int i = 0; i < 5000; i++) {
        snprintf(path, sizeof(path), "s%d/%d", i % 50, i / 50);
        if (i % 50 < 25) {
            kv_finish(kv, path);
        }
    }
    is_int((int)kv_n_keys(kv), 2500, "half of the scopes went");
    has(kv, "s24/0", NULL);
    has(kv, "s25/0", "s25/0");
}

int main(void)
{
    test_paths();
    test_values();
    test_finish();
    test_limits();
    test_many();
    return tap_done();
}
