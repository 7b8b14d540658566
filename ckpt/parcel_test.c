/* SPDX-License-Identifier: Apache-2.0 */
/* What a store may say of the files of a checkpoint: paths, and numbers. */
#include <config.h>

#include "ckpt/parcel.h"

#include "base/cleanup.h"
#include "ckpt/step.h"
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

/* --- what a store says that a checkpoint of ours is --- */

static struct manifest_file files[] = {{"r00000.safetensors", 4096, {1, 2}},
                                       {"tensors.index", 640, {5, 6}}};

struct said {
    struct commit commit;
    struct buf manifest, seal;
    char name[STEP_NAME_BYTES];
};

static void say(struct said *ret)
{
    const struct manifest m = {.step = 7, .uuid = "00112233445566778899aabbccddeeff",
                               .generation = 3, .token = 5, .version = "0.1", .n_ranks = 1,
                               .n_nodes = 1, .n_files = 2, .files = files, .index = 1};

    *ret = (struct said){0};
    if (manifest_encode(&m, &ret->manifest, NULL) < 0) {
        bail_out("no manifest");
    }
    ret->commit = (struct commit){
        .step = 7, .uuid = "00112233445566778899aabbccddeeff", .generation = 3, .token = 5,
        .manifest_bytes = ret->manifest.len,
        .manifest_digest = digest_of(ret->manifest.data, ret->manifest.len), .n_files = 3,
        .total_bytes = ret->manifest.len + 4096 + 640};
    step_name(7, ret->commit.uuid, ret->name);
}

static int take(struct said *s, struct parcel *ret, struct error *e)
{
    int rc;

    buf_clear(&s->seal);
    commit_encode(&s->commit, &s->seal);
    *e = (struct error){0};
    rc = parcel_from_step(s->name, s->seal.data, s->seal.len, s->manifest.data, s->manifest.len,
                          ret, e);
    if (rc < 0) {
        buf_release(&s->seal);
        buf_release(&s->manifest);
    }
    return rc;
}

static void test_step(void)
{
    struct said s;
    _parcel_ struct parcel p = {0};
    struct error e;

    say(&s);
    is_int(take(&s, &p, &e), 0, "a checkpoint in a store: %s", e.text);
    ok(p.n == 3 && p.bytes == s.commit.total_bytes, "its files, and its manifest");
    is_str(p.items[2].path, PARCEL_MANIFEST, "which is the last");
    ok(digest_equal(p.items[0].digest, files[0].digest) && p.items[0].bytes == 4096, "as it says");
    ok(p.found.step == 7 && p.found.has_step && p.found.token == 5, "its step, and its token");
    ok(p.seal.len == s.seal.len && memcmp(p.seal.data, s.seal.data, s.seal.len) == 0, "its seal");
    buf_release(&s.seal);
    buf_release(&s.manifest);
}

static void test_step_refused(void)
{
    struct parcel p = {0};
    struct error e;
    struct said s;

    say(&s);
    s.name[16] = s.name[16] == '8' ? '9' : '8';
    is_int(take(&s, &p, &e), -ERR_FORMAT, "under another name");
    like(e.text, "holds the checkpoint step-000000000007-00112233", "which is told");
    say(&s);
    s.manifest.data[s.manifest.len - 1] = ' ';
    is_int(take(&s, &p, &e), -ERR_FORMAT, "with one byte of the manifest changed");
    like(e.text, "manifest.json is damaged", "which is told");
    say(&s);
    s.commit.manifest_bytes++;
    is_int(take(&s, &p, &e), -ERR_FORMAT, "with a manifest of another length");
    like(e.text, "manifest.json is damaged", "which is told");
    say(&s);
    s.commit.token++;
    is_int(take(&s, &p, &e), -ERR_FORMAT, "with a COMMIT of another save");
    like(e.text, "the manifest is that of another", "which is told");
    ok(p.n == 0 && !p.items, "there is nothing of any of these");
}

int main(void)
{
    test_paths();
    test_step();
    test_step_refused();
    test_add();
    test_many();
    return tap_done();
}
