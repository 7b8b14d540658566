/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/save_agent_bed.h"

#include "base/cleanup.h"
#include "base/hugepages.h"
#include "base/str.h"
#include "base/thread.h"
#include "ckpt/snap.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- an agent of ours --- */

struct client *__wrap_client_of(struct muster *m);
struct client_place *__wrap_client_place(struct client *c);
int __wrap_client_snap_begin(struct client *c, const struct worker_snap_begin *begin,
                             struct error *e);
int __wrap_client_snap_answer(struct client *c, struct worker_snap *ret, int *ret_fd,
                              struct error *e);
int __wrap_client_snap_fill(struct client *c, const struct worker_snap_fill *told,
                            struct error *e);
int __wrap_client_snap_send(struct client *c, const struct worker_snap_done *told,
                            const struct worker_snap_want *want, struct error *e);
int __wrap_client_snap_taken(struct client *c, const char *uuid, struct error *e);
long __real_sysconf(int name);
long __wrap_sysconf(int name);

long __wrap_sysconf(int name)
{
    return name == _SC_NPROCESSORS_ONLN ? save_agent_bed.n_processors : __real_sysconf(name);
}

struct client *__wrap_client_of(struct muster *m)
{
    return (struct client *)m;
}

struct client_place *__wrap_client_place(struct client *c)
{
    (void)c;
    save_agent_bed.place.data = NULL;
    return &save_agent_bed.place;
}

uint64_t save_agent_bed_bytes(const struct save_agent_bed *b)
{
    struct stat st;

    return fstat(b->memory, &st) < 0 ? UINT64_MAX : (uint64_t)st.st_size;
}

/* What was cut is made as long again, as the agent does. */
int __wrap_client_snap_begin(struct client *c, const struct worker_snap_begin *begin,
                             struct error *e)
{
    struct save_agent_bed *b = &save_agent_bed;
    uint64_t len = SNAP_PAGE_BYTES + begin->bytes - b->too_short;

    (void)c;
    (void)e;
    b->asked = *begin;
    b->n_asked++;
    return save_agent_bed_bytes(b) < len && ftruncate(b->memory, (off_t)len) < 0 ? -errno : 0;
}

uint64_t save_agent_bed_count(const struct save_agent_bed *b)
{
    uint64_t n = UINT64_MAX;

    return pread(b->memory, &n, sizeof(n), SNAP_PAGE_BYTES - sizeof(n)) == sizeof(n)
               ? n : UINT64_MAX;
}

ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);

int __wrap_client_snap_answer(struct client *c, struct worker_snap *ret, int *ret_fd,
                              struct error *e)
{
    struct save_agent_bed *b = &save_agent_bed;
    const uint64_t none = 0;

    (void)c;
    (void)e;
    *ret = (struct worker_snap){.bytes = b->asked.bytes, .is_bare = !b->is_mapped};
    str_copy(ret->why, sizeof(ret->why), "3 of 2 bytes");
    if (b->refusal) {
        return b->refusal;
    }
    str_copy(ret->uuid, sizeof(ret->uuid), b->is_far_behind ? "another one" : b->asked.uuid);
    if (__real_pwrite(b->memory, &none, sizeof(none), SNAP_PAGE_BYTES - sizeof(none)) < 0) {
        return -errno;
    }
    *ret_fd = fcntl(b->memory, F_DUPFD_CLOEXEC, 0);
    return 0;
}

int __wrap_client_snap_fill(struct client *c, const struct worker_snap_fill *told,
                            struct error *e)
{
    struct save_agent_bed *b = &save_agent_bed;

    (void)c;
    (void)e;
    b->filled = *told;
    b->n_filled++;
    b->filled_at = save_agent_bed_count(b);
    if (pread(b->memory, &b->first_at, 1, SNAP_PAGE_BYTES) != 1) {
        b->first_at = '\0';
    }
    return b->cannot_tell;
}

int __wrap_client_snap_send(struct client *c, const struct worker_snap_done *told,
                            const struct worker_snap_want *want, struct error *e)
{
    struct save_agent_bed *b = &save_agent_bed;

    (void)c;
    (void)e;
    b->done = *told;
    b->wanted = want ? *want : (struct worker_snap_want){0};
    b->n_done++;
    return 0;
}

int __wrap_client_snap_taken(struct client *c, const char *uuid, struct error *e)
{
    (void)c;
    (void)uuid;
    (void)e;
    return 0;
}

/* --- a kernel of ours --- */

enum { POPULATE_WRITE = 23, A_MOMENT_MS = 100 };

void __wrap_hugepages_look(struct hugepages *ret, size_t len);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at);
int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);
int __real_fallocate(int fd, int mode, off_t at, off_t len);
int __wrap_fallocate(int fd, int mode, off_t at, off_t len);

/* There are none: where there are nothing is written to a file, whatever the size. */
void __wrap_hugepages_look(struct hugepages *ret, size_t len)
{
    (void)len;
    *ret = (struct hugepages){.is_over = true};
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at)
{
    struct save_agent_bed *b = &save_agent_bed;
    bool is_part = (uint64_t)at >= SNAP_PAGE_BYTES + b->image.bytes;

    if (is_part && b->fault == SAVE_AGENT_PART_FAILS) {
        errno = ENOSPC;
        return -1;
    }
    if (b->is_held && !is_part && pthread_equal(pthread_self(), b->writer)) {
        b->is_held = false;
        sem_post(&b->is_writing);
        sem_wait(&b->may_write);
        if (b->fault == SAVE_AGENT_WRITER_FAILS) {
            errno = ENOSPC;
            return -1;
        }
    }
    return __real_pwrite(fd, data, len, at);
}

/* The helper has pages for its block: now the writer goes on, and comes to its end. */
int __wrap_madvise(void *at, size_t len, int advice)
{
    struct save_agent_bed *b = &save_agent_bed;
    int rc = __real_madvise(at, len, advice);

    if (advice == POPULATE_WRITE && b->fault != SAVE_AGENT_NO_FAULT &&
        !pthread_equal(pthread_self(), b->writer)) {
        sem_post(&b->may_write);
        poll(NULL, 0, A_MOMENT_MS);
        if (b->fault == SAVE_AGENT_HELPER_FAILS) {
            errno = EFAULT;
            return -1;
        }
    }
    return rc;
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t len)
{
    struct save_agent_bed *b = &save_agent_bed;

    if (b->fault == SAVE_AGENT_HELPER_FAILS) {
        errno = ENOSPC;
        return -1;
    }
    return __real_fallocate(fd, mode, at, len);
}

/* --- what is saved --- */

void save_agent_bed_open(struct save_agent_bed *b)
{
    struct load_source source;

    *b = (struct save_agent_bed){.image.bytes = SAVE_AGENT_BYTES,
                                 .image.header.len = SAVE_AGENT_BYTES, .n_processors = 4};
    sem_init(&b->is_writing, 0, 0);
    sem_init(&b->may_write, 0, 0);
    b->memory = memfd_create("save_agent_test", MFD_CLOEXEC);
    b->image.header.data = malloc(SAVE_AGENT_BYTES);
    if (b->memory < 0 || !b->image.header.data ||
        save_agent_create((struct muster *)(void *)b, &b->way, &source) < 0) {
        bail_out("nothing to save to");
    }
    memset(b->image.header.data, 'x', SAVE_AGENT_BYTES);
    b->job = (struct save_job){.root_path = "/scratch/ck", .image = &b->image,
                               .part = &b->part, .plan = 1, .n_threads = 1};
    b->job.gather.uuid = "0123456789abcdef0123456789abcdef";
}

void save_agent_bed_close(struct save_agent_bed *b)
{
    b->way.ops->destroy(b->way.self);
    free(b->image.header.data);
    close_fd(&b->memory);
}

int save_agent_bed_reserve(struct save_agent_bed *b)
{
    b->error = (struct error){0};
    return b->way.ops->reserve(b->way.self, &b->job, &b->error);
}

void *save_agent_bed_put(void *bed)
{
    struct save_agent_bed *b = bed;

    b->writer = pthread_self();
    b->rc = b->way.ops->put(b->way.self, &b->job, &b->error);
    return NULL;
}

int save_agent_bed_save(struct save_agent_bed *b, enum save_agent_fault f)
{
    pthread_t t;

    b->fault = f;
    b->is_held = true;
    b->error = (struct error){0};
    if (b->way.ops->reserve(b->way.self, &b->job, &b->error) < 0 ||
        thread_start(&t, save_agent_bed_put, b) != 0) {
        bail_out("no save: %s", b->error.text);
    }
    sem_wait(&b->is_writing);
    if (f == SAVE_AGENT_NO_FAULT) {
        sem_post(&b->may_write);
    }
    b->way.ops->help(b->way.self, 1);
    pthread_join(t, NULL);
    return b->rc;
}

int save_agent_bed_save_alone(struct save_agent_bed *b)
{
    int rc = save_agent_bed_reserve(b);

    b->fault = SAVE_AGENT_NO_FAULT;
    b->is_held = false;
    return rc < 0 ? rc : b->way.ops->put(b->way.self, &b->job, &b->error);
}

int save_agent_bed_hand(struct save_agent_bed *b)
{
    int rc = b->way.ops->send(b->way.self, &b->job, &b->error);

    return rc < 0 ? rc : b->way.ops->hand(b->way.self, &b->job, &b->error);
}

bool save_agent_bed_is_right(const struct save_agent_bed *b)
{
    uint64_t len = save_agent_bed_bytes(b);
    char *at = mmap(NULL, len, PROT_READ, MAP_SHARED, b->memory, 0);
    bool is_right = at != MAP_FAILED;

    for (uint64_t i = 0; is_right && i < SAVE_AGENT_BYTES; i++) {
        is_right = at[SNAP_PAGE_BYTES + i] == 'x';
    }
    is_right = is_right && at[SNAP_PAGE_BYTES + snap_room(SAVE_AGENT_BYTES, 0)] != 0;
    munmap(at, len);
    return is_right;
}

bool save_agent_bed_is_part_right(const struct save_agent_bed *b)
{
    _buf_ struct buf part = {0};
    uint64_t len = save_agent_bed_bytes(b), from = SNAP_PAGE_BYTES + snap_room(SAVE_AGENT_BYTES, 0);
    char *at = mmap(NULL, len, PROT_READ, MAP_SHARED, b->memory, 0);
    bool is_right = at != MAP_FAILED && part_encode(&b->part, &part, NULL) == 0 &&
                    from + part.len <= len && memcmp(at + from, part.data, part.len) == 0;

    munmap(at, len);
    return is_right;
}
