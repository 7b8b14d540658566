/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/zip.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

/* Source of numbers and places: PKWARE's APPNOTE, sections 4.3 to 4.5. */
enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    END64_FIXED = 12, /* of them those that its own length does not count */
    LOCATOR_BYTES = 20,
    MAX_COMMENT_BYTES = 65535,
    EXTRA_ZIP64 = 1,
    FLAG_ENCRYPTED = 1,
    FLAG_PATCH = 1 << 5,
    FLAG_STRONGLY_ENCRYPTED = 1 << 6,
    MAX_VERSION = 63, /* of APPNOTE that an entry may need: some readers look at that alone */
    DOS_DIRECTORY = 1 << 4,
    FLAG_HIDDEN = 1 << 13, /* what headers say, by encryption of the directory */
    FLAGS_REFUSED = FLAG_ENCRYPTED | FLAG_PATCH | FLAG_STRONGLY_ENCRYPTED | FLAG_HIDDEN,
};
#define LOCAL_SIGN UINT32_C(0x04034b50)
#define CENTRAL_SIGN UINT32_C(0x02014b50)
#define END_SIGN UINT32_C(0x06054b50)
#define END64_SIGN UINT32_C(0x06064b50)
#define LOCATOR_SIGN UINT32_C(0x07064b50)

struct source {
    struct io *io;
    int fd;
    uint64_t begin; /* in the file */
    uint64_t size;
};

/* Where the directory lies. */
struct directory {
    uint64_t at, bytes, n;
};

static uint64_t number(const uint8_t *at, size_t bytes)
{
    uint64_t n = 0;

    while (bytes-- > 0) {
        n = n << 8 | at[bytes];
    }
    return n;
}

static int bad(struct error *e, const char *what)
{
    return error_text(e, ERR_FORMAT, "no sound ZIP archive: %s", what);
}

static int read_at(const struct source *s, void *to, size_t len, uint64_t at,
                   struct error *e)
{
    int rc;

    if (at > s->size || len > s->size - at) {
        return error_text(e, ERR_FORMAT, "the archive is cut: %llu bytes, and "
                          "something lies at %llu", (unsigned long long)s->size,
                          (unsigned long long)at);
    }
    rc = io_read_all(s->io, s->fd, to, len, s->begin + at);
    return rc < 0 ? error_set(e, -rc, "read the archive") : 0;
}

void zip_release(struct zip *z)
{
    for (size_t i = 0; i < z->n; i++) {
        free(z->entries[i].name);
    }
    free(z->entries);
    *z = (struct zip){0};
}

/* --- the end --- */

/* The end record, which may have a comment behind it, is found from the end of the
 * file; the comment must reach just that far. */
static int find_end(const struct source *s, uint8_t end[END_BYTES],
                    uint64_t *ret_at, struct error *e)
{
    uint64_t max = END_BYTES + MAX_COMMENT_BYTES;
    size_t n = s->size < max ? s->size : max;
    _free_ uint8_t *tail = malloc(n + 1);
    int rc = tail ? read_at(s, tail, n, s->size - n, e)
                  : error_set(e, ENOMEM, "read the archive");

    if (rc < 0) {
        return rc;
    }
    for (size_t i = n < END_BYTES ? 0 : n - END_BYTES + 1; i-- > 0;) {
        if (number(tail + i, 4) == END_SIGN &&
            number(tail + i + 20, 2) == n - i - END_BYTES) {
            memcpy(end, tail + i, END_BYTES);
            *ret_at = s->size - n + i;
            return 0;
        }
    }
    return error_text(e, ERR_FORMAT, "the archive is cut, or none: no directory "
                      "at the end of its %llu bytes",
                      (unsigned long long)s->size);
}

/* A number that is there with 64 bits too: readers may go by either. */
static bool is_same(uint64_t narrow, size_t bytes, uint64_t wide)
{
    return narrow == wide || narrow == UINT64_MAX >> (64 - 8 * bytes);
}

/* With 64-bit numbers, which a locator before the end record points to. */
static int read_end64(const struct source *s, const uint8_t narrow[END_BYTES],
                      uint64_t end_at, struct directory *ret, struct error *e)
{
    uint8_t locator[LOCATOR_BYTES], end[END64_BYTES];
    uint64_t at;
    int rc;

    if (end_at < LOCATOR_BYTES + END64_BYTES) {
        return bad(e, "no room for its 64-bit numbers");
    }
    rc = read_at(s, locator, sizeof(locator), end_at - LOCATOR_BYTES, e);
    if (rc < 0 || number(locator, 4) != LOCATOR_SIGN) {
        return rc < 0 ? rc : bad(e, "its 64-bit numbers are missing");
    }
    if (number(locator + 4, 4) != 0 || number(locator + 16, 4) != 1) {
        return bad(e, "it is one of several parts");
    }
    at = number(locator + 8, 8);
    if (at != end_at - LOCATOR_BYTES - END64_BYTES) {
        return bad(e, "its 64-bit numbers are somewhere else");
    }
    rc = read_at(s, end, sizeof(end), at, e);
    if (rc < 0 || number(end, 4) != END64_SIGN ||
        number(end + 4, 8) != END64_BYTES - END64_FIXED ||
        number(end + 16, 4) != 0 || number(end + 20, 4) != 0 ||
        number(end + 24, 8) != number(end + 32, 8)) {
        return rc < 0 ? rc : bad(e, "its 64-bit numbers are wrong");
    }
    *ret = (struct directory){.n = number(end + 32, 8),
                              .bytes = number(end + 40, 8),
                              .at = number(end + 48, 8)};
    if (!is_same(number(narrow + 10, 2), 2, ret->n) ||
        !is_same(number(narrow + 12, 4), 4, ret->bytes) ||
        !is_same(number(narrow + 16, 4), 4, ret->at)) {
        return bad(e, "its numbers contradict those of 64 bits");
    }
    return ret->at <= at && ret->bytes == at - ret->at
               ? 0 : bad(e, "its directory does not end where it should");
}

static int find_directory(const struct source *s, struct directory *ret,
                          struct error *e)
{
    uint8_t end[END_BYTES], locator[4] = {0};
    uint64_t at = 0;
    int rc = find_end(s, end, &at, e);

    if (rc < 0) {
        return rc;
    }
    if (number(end + 4, 2) != 0 || number(end + 6, 2) != 0 ||
        number(end + 8, 2) != number(end + 10, 2)) {
        return bad(e, "it is one of several parts");
    }
    if (at >= LOCATOR_BYTES) {
        rc = read_at(s, locator, sizeof(locator), at - LOCATOR_BYTES, e);
    }
    if (rc == 0 && number(locator, 4) == LOCATOR_SIGN) {
        return read_end64(s, end, at, ret, e);
    }
    *ret = (struct directory){.n = number(end + 10, 2),
                              .bytes = number(end + 12, 4),
                              .at = number(end + 16, 4)};
    if (rc == 0 && (ret->at > at || ret->bytes != at - ret->at)) {
        rc = bad(e, "its directory does not end where it should");
    }
    return rc;
}

/* --- entries --- */

/* A number of a directory entry that does not fit there is in its extra field. */
static bool take_wide(const uint8_t **wide, size_t *left, uint64_t *value)
{
    if (*value != UINT32_MAX) {
        return true;
    }
    if (*left < 8) {
        return false;
    }
    *value = number(*wide, 8);
    *wide += 8;
    *left -= 8;
    return true;
}

/* The 64-bit numbers of an extra field: NULL where it has none; false if the field
 * is malformed. */
static bool find_wide(const uint8_t *extra, size_t len, const uint8_t **ret,
                      size_t *ret_len)
{
    *ret = NULL;
    *ret_len = 0;
    while (len >= 4) {
        size_t n = number(extra + 2, 2);

        if (n > len - 4) {
            return false;
        }
        if (number(extra, 2) == EXTRA_ZIP64 && !*ret) {
            *ret = extra + 4;
            *ret_len = n;
        }
        extra += 4 + n;
        len -= 4 + n;
    }
    return true;
}

/* torch.load takes such an entry for a directory, and leaves the tensor unread: zeros. */
static bool is_wrong_directory(const uint8_t *at, size_t name, uint64_t size)
{
    bool ends = at[CENTRAL_BYTES + name - 1] == '/';

    return ends ? size > 0 : number(at + 38, 4) & DOS_DIRECTORY;
}

/* One entry of the directory; how many bytes it takes there. */
static int take_entry(const uint8_t *at, uint64_t left, struct zip_entry *ret,
                      uint64_t *ret_bytes, uint64_t *ret_size, struct error *e)
{
    uint64_t packed, size, header;
    const uint8_t *wide;
    size_t name, extra, n_wide;

    if (left < CENTRAL_BYTES || number(at, 4) != CENTRAL_SIGN) {
        return bad(e, "an entry of its directory is none");
    }
    name = number(at + 28, 2);
    extra = number(at + 30, 2);
    *ret_bytes = CENTRAL_BYTES + name + extra + number(at + 32, 2);
    if (*ret_bytes > left || name == 0 || name > ZIP_MAX_NAME_BYTES ||
        memchr(at + CENTRAL_BYTES, '\0', name)) {
        return bad(e, "an entry of its directory has no name that is one");
    }
    if (number(at + 8, 2) & FLAGS_REFUSED || number(at + 10, 2) != 0) {
        return bad(e, "an entry is compressed or encrypted, and torch.save does "
                   "neither");
    }
    if (number(at + 6, 2) > MAX_VERSION) {
        return bad(e, "an entry needs a later version of the format than there is");
    }
    if (number(at + 34, 2) != 0) {
        return bad(e, "an entry is in another one of several parts");
    }
    packed = number(at + 20, 4);
    size = number(at + 24, 4);
    header = number(at + 42, 4);
    if (!find_wide(at + CENTRAL_BYTES + name, extra, &wide, &n_wide) ||
        !take_wide(&wide, &n_wide, &size) ||
        !take_wide(&wide, &n_wide, &packed) ||
        !take_wide(&wide, &n_wide, &header) || packed != size) {
        return bad(e, "the size of an entry is wrong");
    }
    if (is_wrong_directory(at, name, size)) {
        return bad(e, "an entry is called a directory, and is none");
    }
    ret->name = strndup((const char *)at + CENTRAL_BYTES, name);
    ret->header_at = header;
    ret->flags = (uint16_t)number(at + 8, 2);
    ret->crc = (uint32_t)number(at + 16, 4);
    *ret_size = size;
    return ret->name ? 0 : error_set(e, ENOMEM, "read the archive");
}

/* The header before an entry's bytes says where they begin. It must not contradict the one
 * in the directory: readers go by either, and torch.load by few of the flags. */
static int find_bytes(const struct source *s, struct zip_entry *entry,
                      uint64_t size, uint64_t limit, struct error *e)
{
    uint8_t header[LOCAL_BYTES], name[ZIP_MAX_NAME_BYTES];
    size_t len = strlen(entry->name);
    int rc = read_at(s, header, sizeof(header), entry->header_at, e);

    if (rc < 0) {
        return rc;
    }
    if (number(header, 4) != LOCAL_SIGN) {
        return bad(e, "an entry is not where the directory says");
    }
    if (number(header + 6, 2) != entry->flags || number(header + 8, 2) != 0) {
        return bad(e, "the two headers of an entry contradict each other: flags or method");
    }
    if (number(header + 26, 2) != len) {
        return bad(e, "an entry is not what the directory says");
    }
    rc = read_at(s, name, len, entry->header_at + LOCAL_BYTES, e);
    if (rc < 0) {
        return rc;
    }
    entry->begin = entry->header_at + LOCAL_BYTES + len + number(header + 28, 2);
    if (memcmp(name, entry->name, len) != 0 || entry->begin > limit ||
        size > limit - entry->begin) {
        return bad(e, "an entry is not what the directory says");
    }
    entry->end = entry->begin + size;
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;

    return x->header_at < y->header_at ? -1 : x->header_at > y->header_at;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* No two entries share bytes or a name. */
static int check_apart(struct zip *z, struct error *e)
{
    _free_ char **names = calloc(z->n + 1, sizeof(*names));

    if (!names) {
        return error_set(e, ENOMEM, "read the archive");
    }
    qsort(z->entries, z->n, sizeof(*z->entries), by_place);
    for (size_t i = 0; i < z->n; i++) {
        names[i] = z->entries[i].name;
        if (i > 0 && z->entries[i].header_at < z->entries[i - 1].end) {
            return bad(e, "entries overlap");
        }
    }
    qsort(names, z->n, sizeof(*names), by_name);
    for (size_t i = 1; i < z->n; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            return bad(e, "two entries have one name");
        }
    }
    return 0;
}

static int take_all(const struct source *s, const struct directory *d,
                    const uint8_t *bytes, struct zip *z, struct error *e)
{
    uint64_t at = 0, size = 0, n = 0;
    int rc = 0;

    z->entries = calloc(d->n + 1, sizeof(*z->entries));
    if (!z->entries) {
        return error_set(e, ENOMEM, "read the archive");
    }
    while (z->n < d->n && rc == 0) {
        struct zip_entry *entry = &z->entries[z->n];

        rc = take_entry(bytes + at, d->bytes - at, entry, &n, &size, e);
        if (rc == 0) {
            z->n++;
            at += n;
            rc = find_bytes(s, entry, size, d->at, e);
        }
    }
    if (rc == 0 && at != d->bytes) {
        rc = bad(e, "something else is in its directory");
    }
    return rc < 0 ? rc : check_apart(z, e);
}

/* No number is believed alone: an entry takes more than its fixed part. */
static int read_directory(struct source *s, struct directory *d, uint8_t **ret,
                          struct error *e)
{
    _free_ uint8_t *bytes = NULL;
    int rc = find_directory(s, d, e);

    if (rc < 0) {
        return rc;
    }
    if (d->n > ZIP_MAX_ENTRIES || d->bytes > ZIP_MAX_DIRECTORY_BYTES ||
        d->n > d->bytes / CENTRAL_BYTES) {
        return bad(e, "it has more entries than its directory can hold");
    }
    bytes = malloc(d->bytes + 1);
    rc = bytes ? read_at(s, bytes, d->bytes, d->at, e)
               : error_set(e, ENOMEM, "read the archive");
    *ret = rc < 0 ? NULL : take_ptr(&bytes);
    return rc;
}

bool zip_mentions(struct io *io, int fd, const char *text)
{
    struct source s = {.io = io, .fd = fd};
    _free_ uint8_t *bytes = NULL;
    struct directory d = {0};

    return io->ops->size(io, fd, &s.size) == 0 &&
           read_directory(&s, &d, &bytes, NULL) == 0 &&
           memmem(bytes, d.bytes, text, strlen(text)) != NULL;
}

static int read_source(struct source *s, struct zip *ret, struct error *e)
{
    _free_ uint8_t *bytes = NULL;
    _zip_ struct zip z = {0};
    struct directory d = {0};
    int rc = read_directory(s, &d, &bytes, e);

    rc = rc < 0 ? rc : take_all(s, &d, bytes, &z, e);
    for (size_t i = 0; i < z.n; i++) {
        z.entries[i].header_at += s->begin;
        z.entries[i].begin += s->begin;
        z.entries[i].end += s->begin;
    }
    if (rc == 0) {
        *ret = z;
        z = (struct zip){0};
    }
    return rc;
}

int zip_read(struct io *io, int fd, struct zip *ret, struct error *e)
{
    struct source s = {.io = io, .fd = fd};
    int rc = io->ops->size(io, fd, &s.size);

    return rc < 0 ? error_set(e, -rc, "read the archive") : read_source(&s, ret, e);
}

int zip_read_at(struct io *io, int fd, uint64_t begin, uint64_t end, struct zip *ret,
                struct error *e)
{
    struct source s = {.io = io, .fd = fd, .begin = begin, .size = end - begin};

    return read_source(&s, ret, e);
}

const struct zip_entry *zip_find(const struct zip *z, const char *name)
{
    for (size_t i = 0; i < z->n; i++) {
        if (strcmp(z->entries[i].name, name) == 0) {
            return &z->entries[i];
        }
    }
    return NULL;
}

int zip_verify(struct io *io, int fd, const struct zip_entry *entry,
               void *buffer, size_t size, struct error *e)
{
    uint32_t crc = 0;

    for (uint64_t at = entry->begin; at < entry->end;) {
        size_t n = entry->end - at < size ? entry->end - at : size;
        int rc = io_read_all(io, fd, buffer, n, at);

        if (rc < 0) {
            return error_set(e, -rc, "read the archive");
        }
        crc = crc32_gzip_refl(crc, buffer, n);
        at += n;
    }
    if (crc != entry->crc) {
        _buf_ struct buf name = {0};

        utf8_put_printable(&name, entry->name, 200);
        return error_text(e, ERR_FORMAT, "'%s', bytes %llu to %llu of the file, is "
                          "damaged: its checksum is %08x, expected %08x",
                          buf_str(&name), (unsigned long long)entry->begin,
                          (unsigned long long)entry->end, crc, entry->crc);
    }
    return 0;
}
