/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/write_log.h"

#include "base/cleanup.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* All numbers are little-endian. */
enum {
    MIN_SECTOR = 512,
    MAX_SECTOR = 65536,
    MAX_ENTRIES = 10000000,
    FLAG_FLUSH = 1,
    FLAG_FUA = 2,
    FLAG_DISCARD = 4,
    FLAG_MARK = 8,
};
static const uint64_t magic = 0x6a736677736872, version = 1,
                      max_sectors = (uint64_t)1 << 40;

/* At the begin of the log. */
struct super {
    uint64_t magic, version, n_entries;
    uint32_t sector_bytes;
};

/* One sector, with the mark behind it; what was written follows. */
struct head {
    uint64_t sector, n_sectors, flags, mark_bytes;
};

static int read_at(int fd, void *to, size_t n, uint64_t at, struct error *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pread(fd, (char *)to + done, n - done, (off_t)(at + done));

        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return error_set(e, k < 0 ? errno : EIO, "read the log at %llu",
                             (unsigned long long)at);
        }
        done += (size_t)k;
    }
    return 0;
}

/* The entry at `at`; *ret_next is where the one after it is. */
static int read_entry(int fd, uint64_t at, uint32_t sector_bytes,
                      struct write_log_entry *ret, uint64_t *ret_next,
                      struct error *e)
{
    struct {
        struct head head;
        char mark[WRITE_LOG_MARK_BYTES];
    } raw;
    int rc = read_at(fd, &raw, sizeof(raw), at, e);
    uint64_t flags, mark_bytes;

    if (rc < 0) {
        return rc;
    }
    if (le64toh(raw.head.sector) > max_sectors ||
        le64toh(raw.head.n_sectors) > max_sectors) {
        return error_text(e, ERR_FORMAT, "an entry past the end of any disk");
    }
    flags = le64toh(raw.head.flags);
    mark_bytes = le64toh(raw.head.mark_bytes);
    *ret = (struct write_log_entry){
        .at = le64toh(raw.head.sector) * sector_bytes,
        .n = le64toh(raw.head.n_sectors) * sector_bytes,
        .data_at = at + sector_bytes,
        .is_flush = flags & FLAG_FLUSH,
        .is_fua = flags & FLAG_FUA,
        .is_zeroes = flags & FLAG_DISCARD,
    };
    if (flags & FLAG_MARK) {
        if (mark_bytes >= sizeof(ret->mark)) {
            return error_text(e, ERR_FORMAT, "a mark of %llu bytes",
                              (unsigned long long)mark_bytes);
        }
        memcpy(ret->mark, raw.mark, mark_bytes);
        ret->n = 0;
    }
    *ret_next = ret->data_at + (ret->is_zeroes ? 0 : ret->n);
    return 0;
}

int write_log_open(int fd, struct write_log *ret, struct error *e)
{
    struct super s;
    int rc = read_at(fd, &s, sizeof(s), 0, e);
    uint64_t n = le64toh(s.n_entries), at;
    uint32_t sector_bytes = le32toh(s.sector_bytes);
    _free_ struct write_log_entry *entries = NULL;

    if (rc < 0) {
        return rc;
    }
    if (le64toh(s.magic) != magic || le64toh(s.version) != version ||
        sector_bytes < MIN_SECTOR || sector_bytes > MAX_SECTOR ||
        n > MAX_ENTRIES) {
        return error_text(e, ERR_FORMAT, "no log of dm-log-writes, version %llu",
                          (unsigned long long)version);
    }
    entries = calloc(n + 1, sizeof(*entries));
    if (!entries) {
        return error_set(e, ENOMEM, "%llu entries", (unsigned long long)n);
    }
    at = sector_bytes;
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        rc = read_entry(fd, at, sector_bytes, &entries[i], &at, e);
    }
    if (rc < 0) {
        return rc;
    }
    *ret = (struct write_log){.fd = fd, .entries = take_ptr(&entries), .n = n};
    return 0;
}

void write_log_close(struct write_log *l)
{
    free(l->entries);
    *l = (struct write_log){.fd = -1};
}

int write_log_data(const struct write_log *l, const struct write_log_entry *en,
                   void *to, struct error *e)
{
    if (en->is_zeroes) {
        memset(to, 0, en->n);
        return 0;
    }
    return read_at(l->fd, to, en->n, en->data_at, e);
}
