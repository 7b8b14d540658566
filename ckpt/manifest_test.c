/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/manifest.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char state[] = "{\"epoch\":3}";
static char rng[] = "rng", model[] = "model\xc3\xa4";
static struct manifest_file files[] = {
    {"r00000.safetensors", 4096, {1, 2}},
    {"r00001.safetensors", 8192, {3, 4}},
    {"tensors.index", 640, {5, 6}},
};
static struct manifest_blob blobs[] = {{rng, true, 2}, {model, false, 1}};

static struct manifest some(void)
{
    return (struct manifest){
        .step = 1200,
        .uuid = "00112233445566778899aabbccddeeff",
        .generation = 3,
        .token = UINT64_C(1) << 40 | 7,
        .wall_ns = UINT64_C(1790000000123456000),
        .version = "0.1.0",
        .n_ranks = 2,
        .n_nodes = 1,
        .n_files = ARRAY_SIZE(files),
        .files = files,
        .index = 2,
        .n_blobs = ARRAY_SIZE(blobs),
        .blobs = blobs,
        .state = state,
    };
}

static void test_round_trip(void)
{
    struct manifest m = some();
    _manifest_ struct manifest back = {0};
    _buf_ struct buf b = {0}, again = {0};
    struct error e = {0};

    is_int(manifest_encode(&m, &b, &e), 0, "written (%s)", e.text);
    is_int(manifest_decode(b.data, b.len, &back, &e), 0, "read (%s)", e.text);
    ok(back.step == 1200 && back.generation == 3 && back.token == m.token &&
           back.n_ranks == 2 && back.n_nodes == 1 && back.index == 2,
       "its numbers");
    is_int((int)back.n_files, 3, "three files");
    ok(strcmp(back.files[1].name, files[1].name) == 0 &&
           back.files[1].bytes == 8192 &&
           digest_equal(back.files[1].digest, files[1].digest), "one of them");
    ok(back.n_blobs == 2 && back.blobs[0].is_per_rank && back.blobs[0].n == 2 &&
           !back.blobs[1].is_per_rank, "two blobs");
    is_str(back.blobs[1].name, model, "the name of one");
    is_str(back.state, state, "the state");
    ok(back.wall_ns / 1000000 == m.wall_ns / 1000000, "the time");
    is_int(manifest_encode(&back, &again, &e), 0, "written again");
    is_str(buf_str(&again), buf_str(&b), "as it was");
    ok(b.data[b.len - 1] == '\n', "it ends with a line");
}

static void test_no_state(void)
{
    struct manifest m = some();
    _manifest_ struct manifest back = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    m.state = NULL;
    is_int(manifest_encode(&m, &b, &e), 0, "written without a state (%s)", e.text);
    is_int(manifest_decode(b.data, b.len, &back, &e), 0, "read (%s)", e.text);
    ok(!back.state && back.n_blobs == 2, "which has none, and all else");
}

static void test_names(void)
{
    static const struct {
        const char *name;
        bool is_name;
    } cases[] = {
        {"r00000.safetensors", true}, {"a", true}, {"A-b_c.9", true},
        {"", false}, {".", false}, {"..", false}, {".hidden", false},
        {"a/b", false}, {"/a", false}, {"a b", false}, {"a\n", false},
        {"\xc3\xa4", false}, {"COMMIT", false}, {"manifest.json", false},
        {"commit", true},
    };
    char longest[258];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(manifest_is_name(cases[i].name), cases[i].is_name, "name %zu",
               i);
    }
    memset(longest, 'a', sizeof(longest));
    longest[256] = '\0';
    ok(!manifest_is_name(longest), "256 bytes");
    longest[255] = '\0';
    ok(manifest_is_name(longest), "255 bytes");
}

static void test_encode_refuses(void)
{
    struct manifest_file twice[] = {files[0], files[1], files[0]};
    struct manifest_file path[] = {{"../etc", 1, {1, 1}}};
    char list[] = "[1]", keys[] = "{\"a\":1,\"a\":2}";
    _buf_ struct buf b = {0};
    struct manifest m = some();
    struct error e = {0};

    m.files = twice;
    m.index = 0;
    is_int(manifest_encode(&m, &b, &e), -EINVAL, "two files of one name, not beside each other");
    like(e.text, "lists 'r00000.safetensors' twice", "and why");
    m.files = path;
    m.n_files = 1;
    is_int(manifest_encode(&m, &b, &e), -EINVAL, "a path");
    m = some();
    m.index = 3;
    is_int(manifest_encode(&m, &b, &e), -EINVAL, "an index that is not there");
    m = some();
    m.state = list;
    is_int(manifest_encode(&m, &b, &e), -EINVAL, "a state that is a list");
    m.state = keys;
    is_int(manifest_encode(&m, &b, &e), -EINVAL, "a state that has a key twice");
    m = some();
    m.n_files = MANIFEST_MAX_FILES + 1; /* none of which is looked at */
    is_int(manifest_encode(&m, &b, &e), -EINVAL, "too many files");
    like(e.text, "lists 1000001 files", "and how many");
}

/* Each value, replaced by one of a wrong kind or taken away. */
static void test_decode_refuses(void)
{
    static const struct {
        const char *find, *put, *why;
    } cases[] = {
        {"\"v\":1", "\"v\":2", "version 2"},
        {"\"v\":1,", "", "no version"},
        {"\"step\":1200", "\"step\":-1", "wrong one"},
        {"\"step\":1200", "\"step\":\"1200\"", "wrong one"},
        {"\"generation\":3", "\"generation\":4294967296", "wrong one"},
        {"\"ranks\":2", "\"ranks\":[]", "wrong one"},
        {"\"time\":", "\"time\":-", "wrong one"},
        {"\"index\":2", "\"index\":3", "its index is number 3"},
        {"\"index\":2,", "", "wrong one"},
        {"r00000", "../r", "a name that"},
        {"r00001", "r00000", "twice"},
        {"\"bytes\":8192", "\"bytes\":-8192", "file 1"},
        {"\"digest\":\"", "\"digest\":\"x", "file 0"},
        {"\"files\":[", "\"files\":[1,", "file 0"},
        {"\"kind\":\"per-rank\"", "\"kind\":\"both\"", "blob 0"},
        {"\"name\":\"rng\",", "", "blob 0"},
        {"\"kind\":\"per-rank\",\"n\":2", "\"kind\":\"per-rank\",\"n\":0",
         "blob 0 is of 0 ranks"},
        {"\"kind\":\"replicated\",\"n\":1", "\"kind\":\"replicated\",\"n\":2",
         "blob 1 is of 2 ranks"},
        {"\"state\":{\"epoch\":3}", "\"state\":[]", "no object"},
        {"\"step\":1200", "\"step\":1200,\"step\":1201", "no JSON object"},
        {"\"uuid\":\"", "\"uuid\":\"0", "wrong one"},
        {"\"time\":", "\"time\":9", "wrong one"},
        {"\"time\":", "\"time\":1e10,\"was\":", "wrong one"},
        {"\"blobs\":[", "\"blobs\":[1,", "blob 0"},
    };
    struct manifest m = some();
    _buf_ struct buf b = {0};

    manifest_encode(&m, &b, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf changed = {0};
        struct manifest read;
        struct error e = {0};
        const char *at = strstr(b.data, cases[i].find);

        buf_append(&changed, b.data, (size_t)(at - b.data));
        buf_puts(&changed, cases[i].put);
        buf_puts(&changed, at + strlen(cases[i].find));
        is_int(manifest_decode(changed.data, changed.len, &read, &e),
               i == 0 ? -ERR_VERSION : -ERR_FORMAT, "'%s' for '%s'", cases[i].put,
               cases[i].find);
        like(e.text, cases[i].why, "and why");
    }
    for (size_t len = 0; len < b.len - 1; len++) {
        struct manifest read;

        if (manifest_decode(b.data, len, &read, NULL) == 0) {
            ok(false, "cut to %zu bytes", len);
            manifest_release(&read);
        }
    }
}

/* Values at the ends of what may be. */
static void test_ends(void)
{
    static const struct {
        const char *find, *put;
    } cases[] = {
        {"\"time\":", "\"time\":0,\"was\":"},
        {"\"time\":", "\"time\":9999999999,\"was\":"},
        {"\"step\":1200", "\"step\":0"},
        {"\"step\":1200", "\"step\":9223372036854775807"},
        {"\"generation\":3", "\"generation\":4294967295"},
        {"\"bytes\":8192", "\"bytes\":0"},
    };
    struct manifest m = some();
    _buf_ struct buf b = {0};

    manifest_encode(&m, &b, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _manifest_ struct manifest read = {0};
        _buf_ struct buf changed = {0};
        struct error e = {0};
        const char *at = strstr(b.data, cases[i].find);

        buf_append(&changed, b.data, (size_t)(at - b.data));
        buf_puts(&changed, cases[i].put);
        buf_puts(&changed, at + strlen(cases[i].find));
        is_int(manifest_decode(changed.data, changed.len, &read, &e), 0, "'%s' is taken (%s)",
               cases[i].put, e.text);
    }
}

/* A state that makes it as long as one may be, and so many bytes more. */
static int encode_long(int more, struct buf *b, struct error *e)
{
    static char short_state[] = "{\"a\":\"\"}";
    _buf_ struct buf with_none = {0}, state_of_it = {0};
    struct manifest m = some();
    size_t n;

    m.state = short_state;
    manifest_encode(&m, &with_none, NULL);
    n = (size_t)((int64_t)(MANIFEST_MAX_BYTES - with_none.len) + more);
    buf_puts(&state_of_it, "{\"a\":\"");
    memset(buf_reserve(&state_of_it, n), 'x', n);
    state_of_it.len += n;
    buf_puts(&state_of_it, "\"}");
    m.state = state_of_it.data;
    return manifest_encode(&m, b, e);
}

static void test_longest(void)
{
    _manifest_ struct manifest back = {0};
    _buf_ struct buf b = {0}, longer = {0};
    struct error e = {0};

    if (tap_valgrind()) {
        skip("64 MiB of a state, of which each byte is looked at many times");
        return;
    }
    is_int(encode_long(0, &b, &e), 0, "as long as one may be (%s)", e.text);
    is_int((long long)b.len, (long long)MANIFEST_MAX_BYTES, "to the byte");
    is_int(manifest_decode(b.data, b.len, &back, &e), 0, "is read (%s)", e.text);
    is_int(encode_long(1, &longer, &e), -EINVAL, "a byte more is not written");
    like(e.text, "a manifest of 67108865 bytes, and at most 67108864", "and why");
}

/* As long as any may be; nothing is read of one that is longer. */
static void test_sizes(void)
{
    struct manifest_file one[] = {{"a", INT64_MAX, {1, 1}}};
    struct manifest m = some();
    _manifest_ struct manifest back = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    m.files = one;
    m.n_files = 1;
    m.index = 0;
    is_int(manifest_encode(&m, &b, &e), 0, "of a long file");
    is_int(manifest_decode(b.data, b.len, &back, &e), 0, "read (%s)", e.text);
    ok(back.n_files == 1 && back.files[0].bytes == INT64_MAX, "as long as it was");
    is_int(manifest_decode("x", MANIFEST_MAX_BYTES + 1, &back, &e), -ERR_FORMAT, "too long a one");
    like(e.text, "at most 67108864 are allowed", "and how long it may be");
}

/* More than 64 bits is no number of bytes, and no other one, either. */
static void test_sum(void)
{
    struct manifest_file all[] = {
        {"a", INT64_MAX, {1, 1}}, {"b", INT64_MAX, {1, 1}}, {"c", 52, {1, 1}},
    };
    struct manifest m = some();
    struct commit c = {.step = 1200, .generation = 3, .token = m.token, .manifest_bytes = 100,
                       .n_files = 4, .total_bytes = 150};
    struct error e = {0};

    memcpy(c.uuid, m.uuid, sizeof(c.uuid));
    m.files = all;
    is_int(manifest_check_commit(&m, &c, &e), -ERR_FORMAT, "a sum that went round");
}

static void test_commit(void)
{
    struct manifest m = some();
    struct commit c = {.step = 1200, .generation = 3, .token = m.token,
                       .manifest_bytes = 100, .n_files = 4,
                       .total_bytes = 100 + 4096 + 8192 + 640};
    struct error e = {0};

    memcpy(c.uuid, m.uuid, sizeof(c.uuid));
    is_int(manifest_check_commit(&m, &c, &e), 0, "they belong together");
    c.step++;
    is_int(manifest_check_commit(&m, &c, &e), -ERR_FORMAT, "another step");
    like(e.text, "step 1200 (00112233445566778899aabbccddeeff), and COMMIT says "
         "step 1201", "and why");
    c.step--;
    c.total_bytes++;
    is_int(manifest_check_commit(&m, &c, &e), -ERR_FORMAT, "another length");
    c.total_bytes--;
    c.n_files--;
    is_int(manifest_check_commit(&m, &c, &e), -ERR_FORMAT, "a file less");
    c.n_files++;
    c.generation++;
    is_int(manifest_check_commit(&m, &c, &e), -ERR_FORMAT, "another generation");
    c.generation--;
    c.token++;
    is_int(manifest_check_commit(&m, &c, &e), -ERR_FORMAT, "another token");
    c.token--;
    is_int(manifest_check_commit(&m, &c, &e), 0, "they belong together again");
    c.uuid[0] = 'f';
    is_int(manifest_check_commit(&m, &c, &e), -ERR_FORMAT, "another save");
}

int main(void)
{
    test_round_trip();
    test_no_state();
    test_names();
    test_encode_refuses();
    test_decode_refuses();
    test_ends();
    test_longest();
    test_sizes();
    test_sum();
    test_commit();
    return tap_done();
}
