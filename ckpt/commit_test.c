/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/commit.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct commit some = {
    .step = 1200,
    .uuid = "00112233445566778899aabbccddeeff",
    .generation = 3,
    .token = UINT64_C(1) << 40 | 7,
    .manifest_bytes = 5120,
    .manifest_digest = {0x0123456789abcdef, 0xfedcba9876543210},
    .n_files = 9,
    .total_bytes = INT64_MAX,
    .host = "node-3.example",
    .version = "0.1.0-dev+1",
};

#define LONG "0123456789012345678901234567890123456789"

/* How many of the first eight registers have something in their upper halves, which makes
 * older instructions slow in all that the thread does afterwards. */
#ifdef __x86_64__
#define KEEP(n) "vmovups %%ymm" #n ", 32*" #n "(%0)\n\t"
__attribute__((target("avx"))) static unsigned count_registers_in_use(void)
{
    static const char zeros[16];
    char all[8][32];
    unsigned n = 0;

    __asm__ volatile(KEEP(0) KEEP(1) KEEP(2) KEEP(3) KEEP(4) KEEP(5) KEEP(6) KEEP(7)
                     : : "r"(all) : "memory");
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        n += memcmp(all[i] + 16, zeros, sizeof(zeros)) != 0;
    }
    return n;
}

static void test_registers(void)
{
    static char bytes[5000];
    unsigned n_short, n_long;

    if (!__builtin_cpu_supports("avx")) {
        skip("this processor has no wide registers");
        return;
    }
    memset(bytes, 'x', sizeof(bytes));
    digest_short_of(bytes, sizeof(bytes));
    n_short = count_registers_in_use();
    digest_of(bytes, sizeof(bytes));
    n_long = count_registers_in_use();
    ok(n_short == 0 && n_long == 0, "a digest leaves no wide register in use: %u and %u",
       n_short, n_long);
}
#else
static void test_registers(void)
{
}
#endif

static void append(void *arg, size_t at, size_t n)
{
    size_t *end = arg;

    *end = *end == at ? at + n : SIZE_MAX;
}

static void test_digests(void)
{
    char text[DIGEST_TEXT_BYTES];
    uint64_t blocks[] = {1, 2, 3};
    struct digest d;

    /* The published values of XXH3 for no bytes. */
    digest_format(digest_of("", 0), text);
    is_str(text, "99aa06d3014798d86001c324468d497f", "128 bits of nothing");
    ok(digest_short_of("", 0) == UINT64_C(0x2d06800538d394c2), "64 bits of it");
    for (size_t part = 1; part < 400; part += 133) {
        char bytes[1000];
        size_t end = 0;

        memset(bytes, 'x', sizeof(bytes));
        ok(digest_short_while(bytes, sizeof(bytes), part, append, &end) ==
                   digest_short_of(bytes, sizeof(bytes)) && end == sizeof(bytes),
           "the same in parts of %zu", part);
    }
    ok(digest_parse("0123456789abcdeffedcba9876543210", &d) &&
           digest_equal(d, some.manifest_digest), "parsed");
    ok(!digest_parse("0123456789abcdeffedcba987654321", &d) &&
           !digest_parse("0123456789abcdeffedcba98765432100", &d) &&
           !digest_parse("0123456789ABCDEFfedcba9876543210", &d) &&
           !digest_parse("0123456789abcdeffedcba987654321g", &d) &&
           !digest_parse("0123456789abcdeffedcba987654321/", &d) &&
           !digest_parse("0123456789abcdeffedcba987654321:", &d) &&
           !digest_parse("0123456789abcdeffedcba987654321`", &d) &&
           !digest_parse("", &d), "and nothing else");
    is_int((int)digest_n_blocks(0), 0, "no block");
    is_int((int)digest_n_blocks(1), 1, "one");
    is_int((int)digest_n_blocks(DIGEST_BLOCK_BYTES), 1, "one");
    is_int((int)digest_n_blocks(DIGEST_BLOCK_BYTES + 1), 2, "two");
    ok(!digest_equal(digest_of_blocks(blocks, 2 * DIGEST_BLOCK_BYTES + 1),
                     digest_of_blocks(blocks, 2 * DIGEST_BLOCK_BYTES + 2)),
       "the length counts");
    ok(digest_equal((struct digest){1, 2}, (struct digest){1, 2}) &&
           !digest_equal((struct digest){1, 2}, (struct digest){1, 3}) &&
           !digest_equal((struct digest){1, 2}, (struct digest){3, 2}), "both halves count");
}

/* The blocks of a file that is all there, the last of which is shorter. */
static void test_file_digest(void)
{
    static const size_t lens[] = {0, 1, DIGEST_BLOCK_BYTES / 4 * 3, DIGEST_BLOCK_BYTES,
                                  DIGEST_BLOCK_BYTES / 4 * 7};
    _free_ char *data = calloc(1, 2 * DIGEST_BLOCK_BYTES);

    for (size_t i = 0; i < ARRAY_SIZE(lens) && data; i++) {
        size_t n = lens[i], first = n < DIGEST_BLOCK_BYTES ? n : DIGEST_BLOCK_BYTES;
        const uint64_t blocks[] = {digest_short_of(data, first),
                                   digest_short_of(data + first, n - first)};
        struct digest d;

        ok(digest_of_file(data, n, &d) == 0 && digest_equal(d, digest_of_blocks(blocks, n)),
           "the digest of a file of %zu bytes is that of its blocks", n);
    }
}

static void test_round_trip(void)
{
    _buf_ struct buf b = {0};
    struct commit c = {0};
    struct error e = {0};

    commit_encode(&some, &b);
    is_int(commit_decode(b.data, b.len, &c, &e), 0, "read back (%s)", e.text);
    ok(c.step == some.step && strcmp(c.uuid, some.uuid) == 0 &&
           c.generation == some.generation && c.token == some.token &&
           c.manifest_bytes == some.manifest_bytes &&
           digest_equal(c.manifest_digest, some.manifest_digest) &&
           c.n_files == some.n_files && c.total_bytes == some.total_bytes &&
           strcmp(c.host, some.host) == 0 && strcmp(c.version, some.version) == 0,
       "as it was");
}

/* Those that do not say who wrote them are read, as they were before they did. */
static void test_writer(void)
{
    static const char old[] =
        "{\"v\":1,\"step\":7,\"uuid\":\"00112233445566778899aabbccddeeff\","
        "\"generation\":3,\"token\":5,\"manifest_bytes\":5120,\"manifest_digest\":"
        "\"0123456789abcdeffedcba9876543210\",\"n_files\":9,\"total_bytes\":77}\n";
    _buf_ struct buf b = {0}, odd = {0};
    struct commit c = {0}, o = some;
    char cut[2 * COMMIT_WRITER_BYTES];
    struct error e = {0};

    buf_printf(&b, "%sxxh3 %016llx\n", old,
               (unsigned long long)digest_short_of(old, strlen(old)));
    is_int(commit_decode(b.data, b.len, &c, &e), 0, "an old one is read (%s)", e.text);
    ok(c.step == 7 && c.token == 5 && !c.host[0] && !c.version[0], "and says nothing");
    memset(o.host, 'h', sizeof(o.host) - 1);
    commit_put_writer(o.version, "a \"b\"\\\n\xff-1");
    commit_encode(&o, &odd);
    is_int(commit_decode(odd.data, odd.len, &c, &e), 0, "odd ones are read (%s)", e.text);
    is_str(c.version, "a__b____-1", "what is not plain is none");
    is_int((int)strlen(c.host), 64, "a long name");
    memset(cut, '!', sizeof(cut));
    commit_put_writer(cut, LONG LONG);
    ok(strlen(cut) == 64 && cut[65] == '!', "a longer one is cut");
    commit_put_writer(cut, "!~");
    is_str(cut, "!~", "the first and the last that are plain");
}

/* Behind something else. */
static void test_append(void)
{
    _buf_ struct buf b = {0};
    struct commit c = {0};
    struct error e = {0};

    buf_puts(&b, "before\n");
    commit_encode(&some, &b);
    is_int(commit_decode(b.data + 7, b.len - 7, &c, &e), 0, "one behind others is read (%s)",
           e.text);
}

/* Every change of a bit, every length. */
static void test_damage(void)
{
    _buf_ struct buf b = {0};
    struct commit c = {.step = 1};
    struct error e = {0};
    unsigned n_taken = 0;

    commit_encode(&some, &b);
    for (size_t i = 0; i < b.len * 8; i++) {
        b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
        n_taken += commit_decode(b.data, b.len, &c, NULL) == 0;
        b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
    }
    is_int((int)n_taken, 0, "each of %zu changed bits is seen", b.len * 8);
    for (size_t len = 0; len < b.len; len++) {
        _free_ char *cut = malloc(len + 1);

        memcpy(cut, b.data, len);
        n_taken += commit_decode(cut, len, &c, NULL) == 0;
    }
    is_int((int)n_taken, 0, "each length that is cut");
    commit_decode(b.data, 9, &c, &e);
    like(e.text, "COMMIT is cut or damaged: its 9 bytes", "which is told");
    buf_putc(&b, '\n');
    is_int(commit_decode(b.data, b.len, &c, NULL), -ERR_FORMAT, "one byte more");
    is_int((int)c.step, 1, "nothing is written");
}

/* Lines whose digest is right. */
static void test_lines(void)
{
    static const struct {
        const char *find, *put;
        int rc;
    } cases[] = {
        {"\"v\":1", "\"v\":2", -ERR_VERSION},
        {"\"v\":1", "\"w\":1", -ERR_FORMAT},
        {"\"step\":1200", "\"step\":-200", -ERR_FORMAT},
        {"\"step\":1200", "\"step\":12.0", -ERR_FORMAT},
        {"\"generation\":3", "\"generation\":\"3\"", -ERR_FORMAT},
        {"\"generation\":3", "\"generation\":4294967296", -ERR_FORMAT},
        {"\"generation\":3", "\"generation\":4294967295", 0},
        {"\"uuid\":", "\"id\":", -ERR_FORMAT},
        {"\"manifest_digest\":", "\"digest\":", -ERR_FORMAT},
        {"aabb", "AABB", -ERR_FORMAT},
        {"ddeeff", "ddeef", -ERR_FORMAT},
        {"fedc", "xedc", -ERR_FORMAT},
        {"\"n_files\":9,", "", -ERR_FORMAT},
        {"\"n_files\":9", "\"n_files\":9,\"later\":[]", 0},
        {"\"host\":\"node-3.example\"", "\"host\":7", -ERR_FORMAT},
        {"\"host\":\"node-3.example\"", "\"host\":\"a b\"", -ERR_FORMAT},
        {"\"host\":\"node-3.example\"", "\"host\":\"a\\u001b[0m\"", -ERR_FORMAT},
        {"\"host\":\"node-3.example\"", "\"host\":\"" LONG LONG "\"", -ERR_FORMAT},
        {"\"host\":\"node-3.example\"", "\"host\":\"" LONG "\"", 0},
        {"\"host\":\"node-3.example\"", "\"host\":\"" LONG "012345678901234567890123\"", 0},
        {"\"host\":\"node-3.example\"", "\"host\":\"" LONG "0123456789012345678901234\"",
         -ERR_FORMAT},
        {"\"host\":\"node-3.example\"", "\"host\":\"\"", 0},
        {"\"n_files\":9", "\"n_files\":9,\"n_files\":8", -ERR_FORMAT},
        {"{", "[", -ERR_FORMAT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0}, changed = {0};
        struct commit c = {.step = 1};
        const char *at;

        commit_encode(&some, &b);
        at = strstr(b.data, cases[i].find);
        buf_append(&changed, b.data, (size_t)(at - b.data));
        buf_puts(&changed, cases[i].put);
        buf_append(&changed, at + strlen(cases[i].find),
                   strcspn(at, "\n") + 1 - strlen(cases[i].find));
        buf_printf(&changed, "xxh3 %016llx\n",
                   (unsigned long long)digest_short_of(changed.data,
                                                       changed.len));
        is_int(commit_decode(changed.data, changed.len, &c, NULL), cases[i].rc,
               "'%s' for '%s'", cases[i].put, cases[i].find);
        ok((c.step == 1) == (cases[i].rc < 0), "and what is refused is not given");
    }
}

/* Blanks do not change what it says, but nobody writes that many. */
static void test_length(void)
{
    static const int lengths[] = {0, COMMIT_MAX_BYTES, COMMIT_MAX_BYTES + 1};

    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        _buf_ struct buf b = {0}, line = {0};
        struct commit c;
        int n;

        commit_encode(&some, &b);
        n = lengths[i] > (int)b.len ? lengths[i] - (int)b.len : 0;
        buf_printf(&line, "{%*s%.*s", n, "", (int)strcspn(b.data, "\n"), b.data + 1);
        buf_printf(&line, "xxh3 %016llx\n",
                   (unsigned long long)digest_short_of(line.data, line.len));
        is_int(commit_decode(line.data, line.len, &c, NULL), i < 2 ? 0 : -ERR_FORMAT,
               "one of %zu bytes", line.len);
    }
}

int main(void)
{
    test_digests();
    test_file_digest();
    test_registers();
    test_round_trip();
    test_writer();
    test_append();
    test_damage();
    test_lines();
    test_length();
    return tap_done();
}
