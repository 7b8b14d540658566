/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/snap.h"

#include "base/clock.h"
#include "base/hugepages.h"
#include "base/str.h"
#include "ckpt/crowd.h"
#include "ckpt/fill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x31506e5374734d2e) /* of this form of records */

enum {
    PIECE_BYTES = 16 << 20, /* of memory that is taken; what a cancel waits for */
};

/* As it lies in memory: only programs of this host read it. */
struct record {
    uint64_t magic;
    uint64_t serial;
    struct snap_head head;
    uint64_t digest; /* of all before it */
};

_Static_assert(sizeof(struct record) + sizeof(uint64_t) <= SNAP_RECORD_BYTES, "it fits");

/* --- the page --- */

static bool text_ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static bool read_record(const void *page, unsigned i, struct record *ret)
{
    const struct snap_head *h = &ret->head;

    memcpy(ret, (const char *)page + i * SNAP_RECORD_BYTES, sizeof(*ret));
    return ret->magic == MAGIC &&
           ret->digest == digest_short_of(ret, offsetof(struct record, digest)) &&
           h->state <= SNAP_KEPT && text_ends(h->uuid, sizeof(h->uuid)) &&
           text_ends(h->root, sizeof(h->root));
}

/* Which one counts, or -1. */
static int newest(const void *page, struct record *ret)
{
    struct record r[2];
    bool is_true[2] = {read_record(page, 0, &r[0]), read_record(page, 1, &r[1])};
    int i = is_true[1] && (!is_true[0] || r[1].serial > r[0].serial);

    if (!is_true[i]) {
        return -1;
    }
    *ret = r[i];
    return i;
}

int snap_decode(const void *page, struct snap_head *ret, struct error *e)
{
    struct record r;

    if (newest(page, &r) < 0) {
        return error_set(e, ERR_FORMAT, "not a snapshot, or a damaged one");
    }
    *ret = r.head;
    return 0;
}

void snap_encode(void *page, const struct snap_head *h)
{
    struct record r = {0}, old = {0};
    int i = newest(page, &old);

    r.magic = MAGIC;
    r.serial = old.serial + 1;
    memcpy(&r.head, h, sizeof(*h)); /* with what is between its members */
    r.digest = digest_short_of(&r, offsetof(struct record, digest));
    memcpy((char *)page + (i == 0 ? SNAP_RECORD_BYTES : 0), &r, sizeof(r));
}

/* --- the file --- */

static uint64_t even(uint64_t bytes)
{
    return (bytes + SNAP_PAGE_BYTES - 1) / SNAP_PAGE_BYTES * SNAP_PAGE_BYTES;
}

uint64_t snap_room(uint64_t image_bytes, uint64_t part_bytes)
{
    return even(image_bytes) + even(part_bytes);
}

void snap_destroy(struct snap *s)
{
    if (!s) {
        return;
    }
    mapguard_remove(s->guard);
    if (s->map) {
        munmap(s->map, SNAP_PAGE_BYTES + s->room);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    free(s);
}

void snap_cut(struct snap *s)
{
    int rc;

    do {
        rc = ftruncate(s->fd, 0);
    } while (rc < 0 && errno == EINTR);
}

static int open_file(int dir, const char *name, int flags, struct snap **ret,
                     struct error *e)
{
    _cleanup_(snap) struct snap *s = calloc(1, sizeof(*s));

    if (!s) {
        return error_set(e, ENOMEM, "snapshot %s", name);
    }
    s->fd = openat(dir, name, flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->fd < 0) {
        return error_set(e, errno, "open snapshot %s", name);
    }
    *ret = take_ptr(&s);
    return 0;
}

static int map_file(struct snap *s, const char *name, struct error *e)
{
    void *map = hugepages_map(SNAP_PAGE_BYTES + s->room, PROT_READ | PROT_WRITE, s->fd);

    if (map == MAP_FAILED) {
        return error_set(e, errno, "map %llu bytes of snapshot %s",
                         (unsigned long long)s->room, name);
    }
    s->map = map;
    s->guard = mapguard_add(map, SNAP_PAGE_BYTES + s->room);
    return s->guard ? 0 : error_set(e, ENOMEM, "map snapshot %s", name);
}

uint64_t snap_bytes_there(const struct snap *s)
{
    struct stat st;

    return fstat(s->fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

int snap_check(const struct snap *s, struct error *e)
{
    struct stat st;

    if (mapguard_is_torn(s->guard) || fstat(s->fd, &st) < 0 ||
        (uint64_t)st.st_size < SNAP_PAGE_BYTES + s->room) {
        return error_text(e, EIO, "another program has cut the shared memory that "
                          "step %llu of rank %u was saved in",
                          (unsigned long long)s->head.step, s->head.rank);
    }
    return 0;
}

/* --- memory --- */

struct taking {
    const struct snap *snap;
    uint64_t bytes;
    const struct snap_want *want;
    struct hugepages huge;
};

static void make_huge(struct taking *t, uint64_t at, uint64_t n)
{
    struct hugepages *h = &t->huge;

    for (uint64_t end = at + n; !h->is_over && at + h->bytes <= end; at += h->bytes) {
        hugepages_make(h, t->snap->map + at);
    }
}

/* Memory that is only promised would be missed by whoever touches it, with a SIGBUS.
 * fallocate() leaves it to whoever touches it first to zero it, page by page, and the
 * kernel runs one of a file at a time; pages of a mapping are zeroed here, and by
 * several threads at once. */
static int take_piece(void *arg, size_t i, struct error *e)
{
    struct taking *t = arg;
    uint64_t at = i * (uint64_t)PIECE_BYTES, left = t->bytes - at;
    uint64_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
    int rc;

    if (t->want->cancel && *t->want->cancel) {
        return error_text(e, ECANCELED, "nobody wants the snapshot any more");
    }
    make_huge(t, at, n);
    rc = fill_take(t->snap->fd, t->snap->map + at, at, n);
    return rc < 0 ? error_set(e, -rc, "take %llu bytes of shared memory for a "
                              "snapshot", (unsigned long long)t->bytes)
                  : 0;
}

/* A file that has its length before its memory says that it is no snapshot, until it
 * has both, or is to be bare: who makes it may be killed. */
static int set_length(int fd, uint64_t bytes)
{
    static const char none[SNAP_PAGE_BYTES];
    struct stat st;

    if (fstat(fd, &st) < 0 ||
        (st.st_size > 0 && pwrite(fd, none, sizeof(none), 0) < 0) ||
        ((uint64_t)st.st_size < bytes && ftruncate(fd, (off_t)bytes) < 0)) {
        return -errno;
    }
    return 0;
}

static int take_memory(struct snap *s, const char *name,
                       const struct snap_want *want, struct error *e)
{
    struct taking t = {.snap = s, .bytes = SNAP_PAGE_BYTES + want->room, .want = want};
    struct crowd crowd = {.n_threads = want->n_threads, .work = take_piece,
                          .arg = &t};
    int rc = set_length(s->fd, t.bytes);

    s->room = want->room;
    s->is_bare = want->is_bare;
    t.bytes = want->is_bare ? SNAP_PAGE_BYTES : t.bytes;
    hugepages_look(&t.huge, t.bytes);
    if (rc < 0) {
        return error_set(e, -rc, "give snapshot %s %llu bytes", name,
                         (unsigned long long)want->room);
    }
    rc = map_file(s, name, e);
    return rc < 0 ? rc : crowd_run(&crowd, (t.bytes - 1) / PIECE_BYTES + 1, e);
}

/* --- made and found --- */

int snap_create(int dir, const char *name, const struct snap_want *want,
                struct snap **ret, struct error *e)
{
    _cleanup_(snap) struct snap *s = NULL;
    int rc;

    if (want->room > (uint64_t)INT64_MAX - SNAP_PAGE_BYTES ||
        want->room != even(want->room)) {
        return error_set(e, EINVAL, "a snapshot of %llu bytes",
                         (unsigned long long)want->room);
    }
    rc = open_file(dir, name, O_CREAT, &s, e);
    if (rc < 0) {
        return rc;
    }
    rc = take_memory(s, name, want, e);
    if (rc < 0) {
        unlinkat(dir, name, 0);
        return rc;
    }
    snap_note(s);
    *ret = take_ptr(&s);
    return 0;
}

int snap_open(int dir, const char *name, struct snap **ret, struct error *e)
{
    _cleanup_(snap) struct snap *s = NULL;
    struct stat st;
    int rc = open_file(dir, name, O_NONBLOCK, &s, e);

    if (rc < 0) {
        return rc;
    }
    if (fstat(s->fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        st.st_uid != geteuid() || st.st_size < SNAP_PAGE_BYTES) {
        return error_set(e, ERR_FORMAT, "%s is no snapshot", name);
    }
    s->room = (uint64_t)st.st_size - SNAP_PAGE_BYTES;
    rc = map_file(s, name, e);
    rc = rc < 0 ? rc : snap_decode(s->map, &s->head, e);
    if (rc < 0) {
        return rc;
    }
    if (s->head.image_bytes > s->room || s->head.part_bytes > s->room ||
        snap_room(s->head.image_bytes, s->head.part_bytes) > s->room) {
        return error_set(e, ERR_FORMAT, "snapshot %s: %llu bytes, of which it "
                         "has %llu", name,
                         (unsigned long long)s->head.image_bytes,
                         (unsigned long long)s->room);
    }
    s->is_bare = snap_bytes_there(s) < SNAP_PAGE_BYTES + s->room;
    *ret = take_ptr(&s);
    return 0;
}

void snap_note(struct snap *s)
{
    snap_encode(s->map, &s->head);
}

uint64_t snap_n_filled(const struct snap *s)
{
    return atomic_load_explicit(snap_filled(s->map), memory_order_acquire);
}

bool snap_await(const void *page, uint64_t n)
{
    enum { FIRST_NS = 100 * 1000, MOST_NS = 1000 * 1000 };
    struct timespec pause = {.tv_nsec = FIRST_NS};
    const _Atomic uint64_t *filled = snap_filled((void *)(uintptr_t)page);
    uint64_t now = atomic_load_explicit(filled, memory_order_acquire), before;
    uint64_t moved_ms = clock_mono_ms();

    while (now < n && clock_mono_ms() - moved_ms < SNAP_STALL_MS) {
        nanosleep(&pause, NULL);
        before = now;
        now = atomic_load_explicit(filled, memory_order_acquire);
        if (now != before) {
            moved_ms = clock_mono_ms();
        }
        pause.tv_nsec = pause.tv_nsec < MOST_NS ? 2 * pause.tv_nsec : MOST_NS;
    }
    return now >= n && now != SNAP_NO_MORE;
}

int snap_for_reading(const struct snap *s)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

const void *snap_image(const struct snap *s)
{
    return s->map + SNAP_PAGE_BYTES;
}

const void *snap_part(const struct snap *s)
{
    return s->map + SNAP_PAGE_BYTES + even(s->head.image_bytes);
}

int snap_verify(const struct snap *s, struct error *e)
{
    struct digest digest;

    if (s->head.state < SNAP_WRITTEN) {
        return error_set(e, ERR_FORMAT, "a snapshot without a digest");
    }
    if (digest_of_file(snap_image(s), s->head.image_bytes, &digest) < 0) {
        return error_set(e, ENOMEM, "verify a snapshot");
    }
    if (!digest_equal(digest, s->head.digest)) {
        return error_set(e, ERR_FORMAT, "the snapshot of rank %u at step %llu "
                         "has changed since it was made", s->head.rank,
                         (unsigned long long)s->head.step);
    }
    return 0;
}
