/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads take the spans of the plan one by one. A span is widened to whole blocks,
 * read, and verified; then its pieces are copied to where they are wanted, which is
 * nobody else's place.
 */
#include <config.h>

#include "ckpt/load_priv.h"

#include "base/cleanup.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { MAX_THREADS = 64 };

void load_job_release(struct load_job *job)
{
    free(job->wants);
    free(job->to);
    plan_release(&job->plan);
}

int load_job_add(struct load_job *job, size_t tensor, const struct box *box,
                 char *to)
{
    if (job->n == job->room) {
        size_t room = job->room ? 2 * job->room : 64;
        struct plan_want *wants = reallocarray(job->wants, room,
                                               sizeof(*wants));
        char **places;

        if (!wants) {
            return -ENOMEM;
        }
        job->wants = wants;
        places = reallocarray(job->to, room, sizeof(*places));
        if (!places) {
            return -ENOMEM;
        }
        job->to = places;
        job->room = room;
    }
    job->wants[job->n] = (struct plan_want){tensor, *box};
    job->to[job->n++] = to;
    return 0;
}

/* --- one span --- */

struct run {
    const struct load_job *job;
    _Atomic size_t next;
    _Atomic int rc;
    pthread_mutex_t lock; /* for the error */
    struct error error;
};

static const char *tensor_at(const struct run *run, const struct plan_span *s,
                             uint64_t begin, uint64_t end, size_t *ret_len)
{
    const struct load_job *job = run->job;

    for (size_t i = s->first; i < s->first + s->n; i++) {
        const struct plan_piece *p = &job->plan.pieces[i];

        if (p->begin < end && p->end > begin) {
            struct index_tensor t = index_tensor(
                job->load->index, job->wants[p->want].tensor);

            *ret_len = t.name_len < 200 ? t.name_len : 200;
            return t.name;
        }
    }
    *ret_len = 0;
    return "";
}

static int verify(const struct run *run, const struct plan_span *s,
                  const char *data, uint64_t begin, uint64_t end,
                  struct error *e)
{
    const struct step *step = &run->job->load->step;
    size_t n, name_len = 0;
    const uint64_t *blocks = index_blocks(run->job->load->index, s->file, &n);
    const char *name;

    for (uint64_t at = begin; at < end; at += DIGEST_BLOCK_BYTES) {
        size_t len = end - at < DIGEST_BLOCK_BYTES ? end - at
                                                   : DIGEST_BLOCK_BYTES;

        if (digest_short_of(data + (at - begin), len) ==
            blocks[at / DIGEST_BLOCK_BYTES]) {
            continue;
        }
        name = tensor_at(run, s, at, at + len, &name_len);
        return error_text(e, ERR_FORMAT, "%s/%s is damaged: bytes %llu to %llu, "
                          "with tensor '%.*s', do not have their digest",
                          step->name, step->manifest.files[s->file].name,
                          (unsigned long long)at,
                          (unsigned long long)(at + len), (int)name_len, name);
    }
    return 0;
}

enum { DIRECT_ALIGN = 4096 };

/* Past the page cache, where the file is not in it: bytes that are read once need no
 * memory there, which costs more to get than the disk takes. Only of files of the
 * system; false where it cannot be. */
static bool is_read_directly(const struct step *s, int fd, uint64_t at)
{
    struct iovec one = {&(char){0}, 1};
    int flags;

    if (s->io != io_system() || at % DIRECT_ALIGN != 0 ||
        preadv2(fd, &one, 1, (off_t)at, RWF_NOWAIT) == 1) {
        return false;
    }
    flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

static void read_through_cache(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0) {
        fcntl(fd, F_SETFL, flags & ~O_DIRECT);
    }
}

/* `to` is aligned. */
static int read_bytes(const struct step *s, int fd, char *to, size_t len, uint64_t at)
{
    size_t even = 0;
    int rc = 0;

    if (is_read_directly(s, fd, at)) {
        even = len / DIRECT_ALIGN * DIRECT_ALIGN;
        rc = even > 0 ? io_read_all(s->io, fd, to, even, at) : 0;
        read_through_cache(fd);
        if (rc == -EINVAL) { /* not there */
            even = 0;
            rc = 0;
        }
    }
    return rc < 0 || even == len
               ? rc : io_read_all(s->io, fd, to + even, len - even, at + even);
}

static int read_file(const struct step *s, uint32_t file, char *to, size_t len,
                     uint64_t at, struct error *e)
{
    const char *name = s->manifest.files[file].name;
    int fd = s->io->ops->open_file(s->io, s->dir, name);
    int rc = fd < 0 ? fd : read_bytes(s, fd, to, len, at);

    if (fd >= 0) {
        s->io->ops->close(s->io, fd);
    }
    if (rc == -ENODATA || rc == -EINVAL || rc == -ELOOP) {
        return error_text(e, ERR_FORMAT, "%s/%s was cut or replaced while it was "
                          "read", s->name, name);
    }
    return rc < 0 ? error_set(e, -rc, "read %s/%s", s->name, name) : 0;
}

/* What a thread reads into. */
struct space {
    char *data;
    size_t len;
};

static int make_space(struct space *s, size_t len, struct error *e)
{
    if (s->len < len) {
        free(s->data);
        s->data = aligned_alloc(DIRECT_ALIGN, len + -len % DIRECT_ALIGN);
        s->len = s->data ? len : 0;
    }
    return s->data ? 0 : error_set(e, ENOMEM, "load");
}

/* Bytes [begin, end) of a file, verified: where they lie in memory and are good, else
 * from the directory, in `buffer`, which is made when it is needed. */
static int read_span(const struct run *run, const struct plan_span *s,
                     struct space *buffer, uint64_t begin, uint64_t end,
                     const char **ret, struct error *e)
{
    const struct load_source *source = run->job->source;
    const struct step *step = &run->job->load->step;
    const char *held = source ? source->file(source->arg, step, s->file) : NULL;
    int rc;

    if (held && verify(run, s, held + begin, begin, end, NULL) == 0) {
        *ret = held + begin;
        return 0;
    }
    rc = make_space(buffer, end - begin, e);
    rc = rc < 0 ? rc : read_file(step, s->file, buffer->data, end - begin, begin, e);
    rc = rc < 0 ? rc : verify(run, s, buffer->data, begin, end, e);
    *ret = buffer->data;
    return rc;
}

static int load_span(struct run *run, const struct plan_span *s,
                     struct space *buffer, struct error *e)
{
    const struct load_job *job = run->job;
    uint64_t file_bytes = job->load->step.manifest.files[s->file].bytes;
    uint64_t begin = s->begin - s->begin % DIGEST_BLOCK_BYTES;
    uint64_t end = digest_n_blocks(s->end) * DIGEST_BLOCK_BYTES;
    struct plan_span wide = *s;
    const char *bytes = NULL;
    int rc;

    end = end < file_bytes ? end : file_bytes;
    if (s->end > end || begin == end) {
        return s->end > end
                   ? error_text(e, ERR_FORMAT, "%s: a tensor lies behind the end "
                                "of %s", job->load->step.name,
                                job->load->step.manifest.files[s->file].name)
                   : 0;
    }
    wide.begin = begin;
    rc = read_span(run, s, buffer, begin, end, &bytes, e);
    for (size_t i = s->first; i < s->first + s->n && rc == 0; i++) {
        const struct plan_piece *p = &job->plan.pieces[i];

        plan_copy(job->load->index, job->wants, p, &wide, bytes,
                  job->to[p->want]);
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

static void *work(void *arg)
{
    struct run *run = arg;
    const struct plan *p = &run->job->plan;
    struct space buffer = {0};
    struct error e = {0};
    int rc = 0;
    size_t i;

    while (rc == 0 && atomic_load(&run->rc) == 0 &&
           (i = atomic_fetch_add(&run->next, 1)) < p->n_spans) {
        rc = load_span(run, &p->spans[i], &buffer, &e);
    }
    free(buffer.data);
    if (rc < 0) {
        fail(run, rc, &e);
    }
    return NULL;
}

static void work_all(struct run *run, unsigned n_threads)
{
    pthread_t threads[MAX_THREADS];
    unsigned n = 0;

    n_threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
    while (n + 1 < n_threads && n + 1 < run->job->plan.n_spans &&
           thread_start(&threads[n], work, run) == 0) {
        n++;
    }
    work(run);
    while (n > 0) {
        pthread_join(threads[--n], NULL);
    }
}

int load_job_run(const struct load_job *job, unsigned n_threads,
                 struct error *e)
{
    struct run run = {.job = job, .lock = PTHREAD_MUTEX_INITIALIZER};
    int rc;

    work_all(&run, n_threads);
    rc = atomic_load(&run.rc);
    if (rc < 0 && e) {
        *e = run.error;
    }
    return rc;
}
