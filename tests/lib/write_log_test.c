/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"
#include "tests/lib/write_log.h"

#include <endian.h>
#include <string.h>
#include <sys/mman.h>

enum { SECTOR = 512, FLUSH = 1, FUA = 2, DISCARD = 4, MARK = 8, N_ENTRIES = 5 };

/* A log in memory. */
struct bed {
    uint64_t words[8][SECTOR / 8];
};

static void put_entry(struct bed *b, size_t at, uint64_t sector, uint64_t n,
                      uint64_t flags, const char *mark)
{
    uint64_t *w = b->words[at];

    w[0] = htole64(sector);
    w[1] = htole64(n);
    w[2] = htole64(flags);
    w[3] = htole64(strlen(mark));
    memcpy(&w[4], mark, strlen(mark));
}

/* A write, a flush, a mark, one with FUA, something discarded. */
static struct bed whole(void)
{
    struct bed b = {0};

    b.words[0][0] = htole64(0x6a736677736872);
    b.words[0][1] = htole64(1);
    b.words[0][2] = htole64(N_ENTRIES);
    b.words[0][3] = htole64(SECTOR); /* 32 bits, and nothing */
    put_entry(&b, 1, 8, 1, 0, "");
    memset(b.words[2], 'a', SECTOR);
    put_entry(&b, 3, 0, 0, FLUSH, "");
    put_entry(&b, 4, 0, 0, MARK, "told-10");
    put_entry(&b, 5, 9, 1, FUA, "");
    memset(b.words[6], 'b', SECTOR);
    put_entry(&b, 7, 100, 2, DISCARD, "");
    return b;
}

static int open_log(const void *bytes, size_t n, struct write_log *ret,
                    struct error *e)
{
    int fd = memfd_create("log", MFD_CLOEXEC);

    if (fd < 0 || fs_write_all(fd, bytes, n) < 0) {
        bail_out("no file in memory");
    }
    *ret = (struct write_log){.fd = fd};
    return write_log_open(fd, ret, e);
}

static void test_whole(void)
{
    struct bed b = whole();
    struct error e = {0};
    struct write_log l;
    char data[2 * SECTOR];
    int fd;

    is_int(open_log(&b, sizeof(b), &l, &e), 0, "a log is read: %s", e.text);
    fd = l.fd;
    is_int(l.n, N_ENTRIES, "all of it");
    is_int(l.entries[0].at, 8 * SECTOR, "a write: where");
    is_int(l.entries[0].n, SECTOR, "and how much");
    ok(!l.entries[0].is_flush && !l.entries[0].is_fua, "nothing has flushed it");
    is_int(write_log_data(&l, &l.entries[0], data, &e), 0, "what was written");
    ok(data[0] == 'a' && data[SECTOR - 1] == 'a', "is what it is");
    ok(l.entries[1].is_flush && l.entries[1].n == 0, "a flush");
    is_str(l.entries[2].mark, "told-10", "a mark");
    ok(l.entries[3].is_fua && l.entries[3].n == SECTOR, "a write with FUA");
    ok(l.entries[4].is_zeroes, "what is discarded");
    is_int(write_log_data(&l, &l.entries[4], data, &e), 0, "can be read, too");
    ok(data[0] == 0 && data[2 * SECTOR - 1] == 0, "as zeroes");
    write_log_close(&l);
    close(fd);
}

static void test_broken(void)
{
    static const struct {
        const char *name;
        size_t row, word;
        uint64_t value;
        size_t bytes;
    } cases[] = {
        {"no log", 0, 0, 1, sizeof(struct bed)},
        {"another version", 0, 1, 2, sizeof(struct bed)},
        {"more entries than there are", 0, 2, 6, sizeof(struct bed)},
        {"very many entries", 0, 2, UINT64_MAX, sizeof(struct bed)},
        {"no sectors", 0, 3, 0, sizeof(struct bed)},
        {"small sectors", 0, 3, 8, sizeof(struct bed)},
        {"large sectors", 0, 3, 1 << 20, sizeof(struct bed)},
        {"a long mark", 4, 3, UINT64_MAX, sizeof(struct bed)},
        {"a long write", 1, 1, UINT64_MAX / SECTOR, sizeof(struct bed)},
        {"one that goes round", 1, 1, UINT64_MAX / SECTOR + 2, sizeof(struct bed)},
        {"an empty file", 0, 2, 5, 0},
        {"a cut one", 0, 2, 5, sizeof(struct bed) / 2},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bed b = whole();
        struct error e = {0};
        struct write_log l;
        int fd;

        b.words[cases[i].row][cases[i].word] = htole64(cases[i].value);
        ok(open_log(&b, cases[i].bytes, &l, &e) < 0, "%s: refused: %s",
           cases[i].name, e.text);
        fd = l.fd;
        write_log_close(&l);
        close(fd);
    }
}

int main(void)
{
    test_whole();
    test_broken();
    return tap_done();
}
