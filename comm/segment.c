/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/segment.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define MAGIC UINT64_C(0x6d757374657253) /* and the layout's version */
#define LAYOUT 3

enum {
    PAGE = 4096,
    CHUNK_MIN = 64 * 1024,
    CHUNK_MAX = 4 * 1024 * 1024,
    CHUNK_LOCAL = 256 * 1024,   /* default with one node: stays in cache */
    CHUNK_NODES = 1024 * 1024,  /* with several: messages of that size */
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
};

/* What the inputs of one node may take together, by default. */
#define INPUT_BYTES ((size_t)128 << 20)

struct layout {
    size_t in;
    size_t local;
    size_t global;
    size_t size;
};

static uint32_t default_chunk(const struct segment_spec *spec)
{
    size_t chunk = spec->n_nodes > 1 ? CHUNK_NODES : CHUNK_LOCAL;

    while (chunk > CHUNK_MIN &&
           chunk * SEGMENT_DEPTH * spec->max_local > INPUT_BYTES) {
        chunk /= 2;
    }
    return (uint32_t)chunk;
}

static bool spec_is_valid(const struct segment_spec *s)
{
    return s->n_local >= 1 && s->n_local <= SEGMENT_LOCAL_MAX &&
           s->max_local >= s->n_local && s->max_local <= SEGMENT_LOCAL_MAX &&
           s->n_nodes >= 1 && s->node < s->n_nodes && s->world <= INT32_MAX &&
           s->n_nodes <= s->world && s->n_local <= s->world &&
           s->first_rank <= s->world - s->n_local &&
           (s->n_nodes > 1 || s->n_local == s->world) &&
           s->chunk_bytes >= PAGE && s->chunk_bytes <= CHUNK_MAX &&
           s->chunk_bytes % PAGE == 0;
}

static size_t whole_pages(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

static struct layout layout_of(const struct segment_spec *s)
{
    size_t ring = (size_t)SEGMENT_DEPTH * s->chunk_bytes;
    struct layout l;

    l.in = whole_pages(sizeof(struct segment_head) +
                       s->n_local * sizeof(struct segment_worker));
    l.local = l.in + s->n_local * ring;
    l.global = l.local + ring;
    l.size = l.global + (s->n_nodes > 1 ? 2 * ring : 0);
    return l;
}

void segment_destroy(struct segment *s)
{
    if (!s) {
        return;
    }
    if (s->head) {
        munmap(s->head, s->size);
    }
    close_fd(&s->fd);
    close_fd(&s->event_fd);
    free(s);
}

DEFINE_CLEANUP(segment);

static struct segment *new_segment(void)
{
    struct segment *s = calloc(1, sizeof(*s));

    if (s) {
        s->fd = -1;
        s->event_fd = -1;
    }
    return s;
}

/* Maps s->fd as what s->spec says. */
static int map(struct segment *s, struct error *e)
{
    struct layout l = layout_of(&s->spec);
    void *base = mmap(NULL, l.size, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd,
                      0);

    if (base == MAP_FAILED) {
        return error_set(e, errno, "map a segment of %zu bytes", l.size);
    }
    s->head = base;
    s->size = l.size;
    s->in = (uint8_t *)base + l.in;
    s->local = (uint8_t *)base + l.local;
    s->global = s->spec.n_nodes > 1 ? (uint8_t *)base + l.global : NULL;
    return 0;
}

static int make_memory(struct segment *s, struct error *e)
{
    size_t size = layout_of(&s->spec).size;

    s->fd = memfd_create("muster-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->fd < 0) {
        return error_set(e, errno, "memfd_create");
    }
    if (fchmod(s->fd, 0600) < 0 || ftruncate(s->fd, (off_t)size) < 0 ||
        fcntl(s->fd, F_ADD_SEALS, SEALS) < 0) {
        return error_set(e, errno, "a segment of %zu bytes", size);
    }
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->event_fd < 0) {
        return error_set(e, errno, "eventfd");
    }
    return 0;
}

int segment_create(const struct segment_spec *spec, struct segment **ret,
                   struct error *e)
{
    _cleanup_(segment) struct segment *s = new_segment();
    int rc;

    if (!s) {
        return error_set(e, ENOMEM, "segment");
    }
    s->spec = *spec;
    if (s->spec.chunk_bytes == 0) {
        s->spec.chunk_bytes = default_chunk(spec);
    }
    if (!spec_is_valid(&s->spec)) {
        return error_text(e, EINVAL, "segment: numbers that do not fit: node "
                          "%u of %u, ranks %u + %u of %u", spec->node,
                          spec->n_nodes, spec->first_rank, spec->n_local,
                          spec->world);
    }
    rc = make_memory(s, e);
    if (rc == 0) {
        rc = map(s, e);
    }
    if (rc < 0) {
        return rc;
    }
    s->head->spec = s->spec;
    s->head->magic = MAGIC + LAYOUT;
    *ret = take_ptr(&s);
    return 0;
}

/* Reads and checks the geometry of somebody else's segment. */
static int read_spec(struct segment *s, struct error *e)
{
    struct segment_head head;
    struct stat st;
    int seals = fcntl(s->fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(s->fd, &st) < 0 ||
        pread(s->fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head)) {
        return error_text(e, EINVAL, "not a segment: no sealed memory");
    }
    if (head.magic != MAGIC + LAYOUT || !spec_is_valid(&head.spec) ||
        (size_t)st.st_size != layout_of(&head.spec).size) {
        return error_text(e, EINVAL, "not a segment of this version");
    }
    s->spec = head.spec;
    return 0;
}

int segment_map(int fd, int event_fd, struct segment **ret, struct error *e)
{
    _cleanup_(segment) struct segment *s = new_segment();
    int rc;

    if (!s) {
        return error_set(e, ENOMEM, "segment");
    }
    s->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    s->event_fd = fcntl(event_fd, F_DUPFD_CLOEXEC, 3);
    if (s->fd < 0 || s->event_fd < 0) {
        return error_set(e, errno, "segment");
    }
    rc = read_spec(s, e);
    if (rc == 0) {
        rc = map(s, e);
    }
    if (rc < 0) {
        return rc;
    }
    *ret = take_ptr(&s);
    return 0;
}

static void wake_all(struct segment_event *ev)
{
    atomic_fetch_add(&ev->word, 1);
    syscall(SYS_futex, &ev->word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void segment_event_signal(struct segment_event *ev)
{
    atomic_fetch_add(&ev->word, 1);
    if (atomic_load(&ev->n_waiting) > 0) {
        syscall(SYS_futex, &ev->word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}

void segment_event_sleep(struct segment_event *ev, uint32_t seen,
                         uint32_t timeout_ms)
{
    struct timespec timeout = {
        .tv_sec = timeout_ms / 1000,
        .tv_nsec = (long)(timeout_ms % 1000) * 1000000,
    };

    atomic_fetch_add(&ev->n_waiting, 1);
    syscall(SYS_futex, &ev->word, FUTEX_WAIT, seen, &timeout, NULL, 0);
    atomic_fetch_sub(&ev->n_waiting, 1);
}

/* The bulk mover sleeps in poll. A worker may have filled the counter, and made
 * the descriptor a blocking one. */
static void wake_mover(const struct segment *s)
{
    struct pollfd p = {.fd = s->event_fd, .events = POLLOUT};
    uint64_t one = 1;

    if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT)) {
        ssize_t n = write(s->event_fd, &one, sizeof(one));

        (void)n;
    }
}

/* Each text has a place of its own and is whole before its number counts: nobody
 * waits for a writer that was stopped, or that died, half-way. */
static void claim_abort(struct segment_head *h, enum segment_abort_code code,
                        const char *why)
{
    uint32_t i = atomic_fetch_add(&h->n_whys, 1), none = 0;

    if (i < SEGMENT_N_WHYS) {
        str_copy(h->whys[i], SEGMENT_WHY_SIZE, why);
    } else {
        i = SEGMENT_N_WHYS;
    }
    atomic_compare_exchange_strong(&h->aborted, &none, code | i << 8);
}

void segment_abort(struct segment *s, enum segment_abort_code code,
                   const char *why)
{
    struct segment_head *h = s->head;

    if (atomic_load(&h->aborted) == 0) {
        claim_abort(h, code, why);
    }
    /* For the first one too, should it have died before this. */
    wake_all(&h->mover);
    wake_mover(s);
    for (uint32_t i = 0; i < s->spec.n_local; i++) {
        wake_all(&h->workers[i].event);
    }
}

void segment_leave(struct segment *s, uint32_t worker)
{
    if (worker < s->spec.n_local) {
        atomic_store(&s->head->workers[worker].left, 1);
        wake_all(&s->head->workers[worker].event);
        wake_mover(s);
    }
}

void segment_finish(struct segment *s, uint32_t worker)
{
    if (worker < s->spec.n_local) {
        atomic_store(&s->head->workers[worker].finished, 1);
    }
}

bool segment_is_finished(const struct segment *s, uint32_t worker)
{
    return worker < s->spec.n_local &&
           atomic_load(&s->head->workers[worker].finished);
}

void segment_say_left(const struct segment *s, uint32_t worker,
                      char why[SEGMENT_WHY_SIZE])
{
    snprintf(why, SEGMENT_WHY_SIZE,
             "worker %u has ended, and others wait for it in a collective",
             s->spec.first_rank + worker);
}

bool segment_lacks_one(const struct segment *s, char why[SEGMENT_WHY_SIZE])
{
    for (uint32_t i = 0; i < s->spec.n_local; i++) {
        const struct segment_worker *w = &s->head->workers[i];

        if (atomic_load(&w->left) && !atomic_load(&w->finished)) {
            segment_say_left(s, i, why);
            return true;
        }
    }
    return false;
}

bool segment_take_over(const struct segment *s, uint32_t worker)
{
    return worker < s->spec.n_local &&
           atomic_exchange(&s->head->workers[worker].finished, 0);
}

bool segment_waits(const struct segment *s)
{
    uint64_t done = atomic_load(&s->head->done);

    return atomic_load(&segment_post(s, done)->seq) == done + 1;
}

enum segment_abort_code segment_aborted(const struct segment *s,
                                        char why[SEGMENT_WHY_SIZE])
{
    uint32_t aborted = atomic_load_explicit(&s->head->aborted,
                                            memory_order_acquire);
    uint32_t i = aborted >> 8;

    if (aborted != 0 && why && i < SEGMENT_N_WHYS) {
        memcpy(why, s->head->whys[i], SEGMENT_WHY_SIZE);
        why[SEGMENT_WHY_SIZE - 1] = '\0';
    } else if (aborted != 0 && why) {
        str_copy(why, SEGMENT_WHY_SIZE, "the group was ended");
    }
    return (enum segment_abort_code)(aborted & 0xff);
}

uint8_t *segment_in(const struct segment *s, uint32_t worker, uint64_t chunk)
{
    return s->in + ((size_t)worker * SEGMENT_DEPTH + chunk % SEGMENT_DEPTH) *
                       s->spec.chunk_bytes;
}

uint8_t *segment_local(const struct segment *s, uint64_t chunk)
{
    return s->local + chunk % SEGMENT_DEPTH * s->spec.chunk_bytes;
}

uint8_t *segment_global(const struct segment *s, uint64_t chunk)
{
    return s->global +
           chunk % (2 * (uint64_t)SEGMENT_DEPTH) * s->spec.chunk_bytes;
}

struct segment_post *segment_post(const struct segment *s, uint64_t chunk)
{
    return &s->head->posts[chunk % (2 * (uint64_t)SEGMENT_DEPTH)];
}

void segment_call_text(const struct segment_call *c, char *to, size_t size)
{
    static const char *const types[] = {"float32", "float64", "int32", "int64",
                                        "uint8"};
    static const char *const ops[] = {"sum", "min", "max"};
    const char *type = c->type < ARRAY_SIZE(types) ? types[c->type] : "?";
    const char *op = c->op < ARRAY_SIZE(ops) ? ops[c->op] : "?";

    switch (c->kind) {
    case SEGMENT_ALLREDUCE:
        snprintf(to, size, "allreduce of %llu %s (%s)",
                 (unsigned long long)c->count, type, op);
        break;
    case SEGMENT_BROADCAST:
        snprintf(to, size, "broadcast of %llu bytes from %u",
                 (unsigned long long)c->count, c->root);
        break;
    case SEGMENT_BARRIER:
        str_copy(to, size, "barrier");
        break;
    default:
        str_copy(to, size, "something unknown");
    }
}

bool segment_call_equal(const struct segment_call *a,
                        const struct segment_call *b)
{
    return a->seq == b->seq && a->count == b->count && a->kind == b->kind &&
           a->type == b->type && a->op == b->op && a->root == b->root;
}
