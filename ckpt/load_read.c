/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads take the spans of the plan, which are blocks, one by one. What is wanted of a
 * block is copied to its place, which is nobody else's, while the block is verified: its
 * bytes come from memory once. So it is there before it is known to be good; of a block
 * that is not, the load fails.
 */
#include <config.h>

#include "ckpt/load_priv.h"

#include "base/cleanup.h"
#include "base/hugepages.h"
#include "base/pages.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum {
    MAX_THREADS = 64,
    MANY_READERS = 8,       /* of a disk: they wait for it more than they compute */
    NEAR_BYTES = 128 << 10, /* what stays in a processor's cache from one use to the next */
};

void load_job_release(struct load_job *job)
{
    free(job->wants);
    free(job->to);
    plan_release(&job->plan);
}

int load_job_make_room(struct load_job *job, size_t n)
{
    job->wants = pages_alloc(n + 1, sizeof(*job->wants));
    job->to = pages_alloc(n + 1, sizeof(*job->to));
    return job->wants && job->to ? 0 : -ENOMEM;
}

/* --- one span --- */

struct run {
    const struct load_job *job;
    struct load_pages *pages;
    _Atomic size_t next;
    /* Spans for which a thread had no memory, which ended: later there is more. */
    size_t put_back[MAX_THREADS];
    _Atomic size_t n_put_back;
    _Atomic int rc;
    pthread_mutex_t lock; /* for the error */
    struct error error;
};

/* A block that is verified and copied. */
struct block {
    const struct run *run;
    const struct plan_span *span;
    const char *data;
    size_t len;
    size_t first; /* all pieces before it lie before what comes next */
};

static void copy_part(void *arg, size_t at, size_t n)
{
    struct block *b = arg;
    const struct load_job *job = b->run->job;
    uint64_t begin = b->span->begin + at, end = begin + n;
    const struct plan_piece *p = &job->plan.pieces[b->first];
    const struct plan_piece *last = &job->plan.pieces[b->span->first + b->span->n];

    for (; p < last && p->end <= begin; p++) {
        b->first++;
    }
    for (; p < last && p->begin < end; p++) {
        plan_copy(job->load->index, job->wants, p, begin, end, b->data + at,
                  job->to[p->want]);
    }
}

/* Whether it is what it should be. */
static bool copy_block(const struct run *run, const struct plan_span *s,
                       const char *data, size_t len)
{
    struct block b = {run, s, data, len, s->first};
    size_t n;

    return digest_short_while(data, len, NEAR_BYTES, copy_part, &b) ==
           index_blocks(run->job->load->index, s->file, &n)[s->begin /
                                                            DIGEST_BLOCK_BYTES];
}

static int tell_damage(const struct run *run, const struct plan_span *s, size_t len,
                       struct error *e)
{
    const struct load *l = run->job->load;

    return step_blame_bytes(&l->step, l->index, s->file, s->begin, s->begin + len, e);
}

enum { DIRECT_ALIGN = 4096 };

/* What a thread reads with. */
struct reader {
    struct io *io;
    char *data; /* room for a block, once it is needed */
    int fd;     /* of that file; -1: none */
    uint32_t file;
    bool is_direct, has_no_direct;
};

static void close_file(struct reader *r)
{
    if (r->fd >= 0) {
        r->io->ops->close(r->io, r->fd);
        r->fd = -1;
    }
}

static void reader_release(struct reader *r)
{
    close_file(r);
    if (r->data) {
        munmap(r->data, DIGEST_BLOCK_BYTES);
    }
}

static int open_file(struct reader *r, const struct step *s, uint32_t file)
{
    if (r->fd >= 0 && r->file == file) {
        return 0;
    }
    close_file(r);
    r->fd = s->io->ops->open_file(s->io, s->dir, s->manifest.files[file].name);
    if (r->fd < 0) {
        return r->fd;
    }
    r->file = file;
    r->is_direct = false;
    r->has_no_direct = s->io != io_system();
    if (!r->has_no_direct) { /* to look for a byte in the cache fills it, else */
        posix_fadvise(r->fd, 0, 0, POSIX_FADV_RANDOM);
    }
    return 0;
}

static bool set_direct(struct reader *r, bool on)
{
    int flags;

    if (r->is_direct != on) {
        flags = fcntl(r->fd, F_GETFL);
        flags = flags < 0 ? flags : on ? flags | O_DIRECT : flags & ~O_DIRECT;
        if (flags < 0 || fcntl(r->fd, F_SETFL, flags) < 0) {
            return false;
        }
        r->is_direct = on;
    }
    return true;
}

static bool is_cached(const struct reader *r, uint64_t at)
{
    struct iovec one = {&(char){0}, 1};

    return preadv2(r->fd, &one, 1, (off_t)at, RWF_NOWAIT) == 1;
}

/* Past the page cache, where the block is not in it: bytes that are read `once` need no
 * memory there, which costs more to get than the disk takes. Only of files of the
 * system. */
static int read_bytes(struct reader *r, size_t len, uint64_t at, bool once)
{
    size_t even = len / DIRECT_ALIGN * DIRECT_ALIGN;
    int rc = 0;

    if (even == 0 || !once || r->has_no_direct || !set_direct(r, false) ||
        is_cached(r, at) || !set_direct(r, true)) {
        even = 0;
    }
    rc = even > 0 ? io_read_all(r->io, r->fd, r->data, even, at) : 0;
    if (rc == -EINVAL && even > 0) { /* not there */
        r->has_no_direct = true;
        even = 0;
        rc = 0;
    }
    if (rc == 0 && even < len) {
        rc = set_direct(r, false) ? io_read_all(r->io, r->fd, r->data + even, len - even,
                                                at + even)
                                  : -errno;
    }
    return rc;
}

/* Data-parallel ranks want the same: what one wants whole others do. */
static bool is_wanted_by_others(const struct load_job *job, const struct plan_span *s)
{
    bool is_whole = false;

    for (size_t i = s->first; i < s->first + s->n && job->load->is_shared && !is_whole;
         i++) {
        const struct plan_want *w = &job->wants[job->plan.pieces[i].want];
        struct index_tensor t = index_tensor(job->load->index, w->tensor);

        is_whole = t.n_dims == 0 ||
                   memcmp(w->len, t.shape, t.n_dims * sizeof(*t.shape)) == 0;
    }
    return is_whole;
}

static int read_block(struct reader *r, const struct load_job *job,
                      const struct plan_span *span, size_t len, struct error *e)
{
    const struct step *s = &job->load->step;
    const char *name = s->manifest.files[span->file].name;
    int rc;

    if (!r->data) {
        r->data = hugepages_buffer(DIGEST_BLOCK_BYTES);
    }
    if (!r->data) {
        return error_set(e, ENOMEM, "get %llu bytes to read %s/%s with",
                         (unsigned long long)DIGEST_BLOCK_BYTES, s->name, name);
    }
    rc = open_file(r, s, span->file);
    rc = rc < 0 ? rc
                : read_bytes(r, len, span->begin, !is_wanted_by_others(job, span));
    if (rc == -ENODATA || rc == -EINVAL || rc == -ELOOP) {
        return error_text(e, ERR_FORMAT, "%s/%s was cut or replaced while it was "
                          "read", s->name, name);
    }
    return rc < 0 ? error_set(e, -rc, "read %s/%s", s->name, name) : 0;
}

static const char *held(const struct load_job *job, uint32_t file)
{
    const struct load_source *s = job->source;

    return s ? s->file(s->arg, &job->load->step, file) : NULL;
}

/* What is on its way to this memory is waited for. */
static bool is_there(const struct load_job *job, uint32_t file, uint64_t end)
{
    const struct load_source *s = job->source;

    return !s->await || s->await(s->arg, &job->load->step, file, end);
}

/* Out of memory where it is there and good, else out of the directory. */
static int load_span(struct run *run, const struct plan_span *s,
                     struct reader *reader, struct error *e)
{
    const struct load_job *job = run->job;
    const struct step *step = &job->load->step;
    uint64_t file_bytes = step->manifest.files[s->file].bytes;
    uint64_t end = s->end < file_bytes ? s->end : file_bytes;
    const char *there = held(job, s->file);
    bool is_behind = false;
    int rc;

    for (size_t i = s->first; i < s->first + s->n; i++) {
        is_behind |= job->plan.pieces[i].end > end;
    }
    if (is_behind) {
        return error_text(e, ERR_FORMAT, "%s: a tensor lies behind the end of %s",
                          step->name, step->manifest.files[s->file].name);
    }
    load_pages_make(run->pages, job, s);
    if (there && !is_there(job, s->file, end)) {
        there = NULL;
    }
    if (there) {
        pages_map((char *)there + s->begin, end - s->begin);
    }
    if (there && copy_block(run, s, there + s->begin, end - s->begin)) {
        return 0;
    }
    rc = read_block(reader, job, s, end - s->begin, e);
    if (rc == 0 && !copy_block(run, s, reader->data, end - s->begin)) {
        rc = tell_damage(run, s, end - s->begin, e);
    }
    return rc;
}

/* --- all --- */

static void fail(struct run *run, int rc, const struct error *e)
{
    pthread_mutex_lock(&run->lock);
    if (atomic_load(&run->rc) == 0) {
        run->error = *e;
        atomic_store(&run->rc, rc);
    }
    pthread_mutex_unlock(&run->lock);
}

/* Of what one thread lacks there is enough for fewer. */
static bool is_scarce(int rc)
{
    return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

static void *work(void *arg)
{
    struct run *run = arg;
    const struct plan *p = &run->job->plan;
    struct reader reader = {.io = run->job->load->step.io, .fd = -1};
    struct error e = {0};
    int rc = 0;
    size_t i;

    while (rc == 0 && atomic_load(&run->rc) == 0 &&
           (i = atomic_fetch_add(&run->next, 1)) < p->n_spans) {
        rc = load_span(run, &p->spans[i], &reader, &e);
    }
    reader_release(&reader);
    if (is_scarce(rc)) {
        run->put_back[atomic_fetch_add(&run->n_put_back, 1)] = i;
    } else if (rc < 0) {
        fail(run, rc, &e);
    }
    return NULL;
}

/* By one thread, once the others have given back what they had: what they have not done. */
static void work_alone(struct run *run)
{
    const struct plan *p = &run->job->plan;
    struct reader reader = {.io = run->job->load->step.io, .fd = -1};
    struct error e = {0};
    int rc = atomic_load(&run->rc);

    for (size_t i = 0; i < run->n_put_back && rc == 0; i++) {
        rc = load_span(run, &p->spans[run->put_back[i]], &reader, &e);
    }
    for (size_t i = run->next; i < p->n_spans && rc == 0; i++) {
        rc = load_span(run, &p->spans[i], &reader, &e);
    }
    reader_release(&reader);
    if (rc < 0) {
        fail(run, rc, &e);
    }
}

static void work_all(struct run *run, unsigned n_threads)
{
    pthread_t threads[MAX_THREADS];
    unsigned n = 0;

    n_threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
    while (n + 1 < n_threads && n + 1 < run->job->plan.n_spans &&
           thread_start_beside(&threads[n], work, run) == 0) {
        n++;
    }
    work(run);
    while (n > 0) {
        pthread_join(threads[--n], NULL);
    }
    if (run->n_put_back > 0) {
        work_alone(run);
    }
}

/* Whether that span is the first one of its file. */
static bool is_first(const struct plan *p, size_t i)
{
    return i == 0 || p->spans[i].file != p->spans[i - 1].file;
}

static void look_all(const struct load_job *job)
{
    const struct load_source *from = job->source;

    for (size_t i = 0; from && from->look && i < job->plan.n_spans; i++) {
        if (is_first(&job->plan, i)) {
            from->look(from->arg, &job->load->step, job->plan.spans[i].file);
        }
    }
}

/* Of all files that are needed: whether some have to come from files of the system. */
static bool has_disk(const struct load_job *job)
{
    bool is_from_disk = false;

    for (size_t i = 0; i < job->plan.n_spans; i++) {
        is_from_disk |= is_first(&job->plan, i) && !held(job, job->plan.spans[i].file);
    }
    return is_from_disk && job->load->step.io == io_system();
}

int load_job_run(const struct load_job *job, struct load_pages *pages, unsigned n_threads,
                 struct error *e)
{
    struct run run = {.job = job, .pages = pages, .lock = PTHREAD_MUTEX_INITIALIZER};
    int rc;

    load_pages_planned(pages);
    look_all(job); /* what another node has takes its time */
    load_pages_end(pages);
    if (has_disk(job) && n_threads < MANY_READERS) {
        n_threads = MANY_READERS;
    }
    work_all(&run, n_threads);
    rc = atomic_load(&run.rc);
    if (rc < 0 && e) {
        *e = run.error;
    }
    return rc;
}
