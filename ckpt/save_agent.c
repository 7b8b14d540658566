/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank copies its image and its part into memory of the node's agent, which has
 * them from then on: it writes them to the disk, and the agent of the run's lead
 * commits when all ranks are there.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hugepages.h"
#include "base/str.h"
#include "base/utf8.h"
#include "ckpt/fill.h"
#include "ckpt/save_ahead.h"
#include "ckpt/snap.h"
#include "ckpt/view.h"
#include "comm/client.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    N_MAPS = 2, /* as many as the agent has of a rank */
    BUSY_WAIT_MS = 60000,
    BUSY_LOOK_MS = 5,
    MOST_OPEN = 64, /* files of memory that are not mapped yet */
};

/* A file of a checkpoint, in memory. */
struct held {
    bool is_asked;
    bool is_open;   /* it is there, and not mapped yet */
    bool is_coming; /* from another node, meanwhile: see snap_await() */
    int fd;
    char *at; /* NULL: it is not there, as far as was asked, or not mapped yet */
    size_t len;
};

struct agent_way {
    struct client *client; /* borrowed */
    struct save_map maps[N_MAPS]; /* the newest first */
    struct save_ahead *ahead; /* of the second one; NULL: none */
    struct buf part;
    uint64_t part_at;   /* in the file of the save that is being put */
    uint64_t part_plan; /* of what it is; 0: none */
    bool is_sealed;     /* it has its digest */
    struct image_copy copy; /* of the save that is being put */
    bool *is_there;         /* of each block of it */
    uint64_t n_there;
    bool is_told; /* that it is being filled; and how far is to be seen */
    struct fill *fill;      /* into what; NULL: its memory is there */
    int fill_fd;            /* of that; -1 */

    /* What the agent has of a checkpoint that is being loaded. */
    char held_uuid[COMMIT_UUID_BYTES]; /* "": nothing */
    struct held *held; /* of each of its files */
    size_t n_held, n_open;
    char absent_uuid[COMMIT_UUID_BYTES]; /* of a save that the agent does not have: where
                                            others are asked that takes its time */
};

/* --- memory --- */

static void unmap(struct save_map *m)
{
    if (m->at) {
        munmap(m->at, m->len);
    }
    *m = (struct save_map){0};
}

/* Brings the map of that file to the front, where there is one. */
static bool find_map(struct agent_way *w, ino_t file)
{
    struct save_map last = w->maps[N_MAPS - 1];

    if (w->maps[0].at && w->maps[0].file == file) {
        return true;
    }
    memmove(&w->maps[1], &w->maps[0], (N_MAPS - 1) * sizeof(last));
    w->maps[0] = last;
    return last.at && last.file == file;
}

static int map_file(struct agent_way *w, int fd, uint64_t bytes,
                    struct error *e)
{
    size_t len = SNAP_PAGE_BYTES + bytes;
    struct save_map *m = &w->maps[0], ahead;
    struct stat st;
    void *at;

    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < len) {
        return error_text(e, EPROTO, "the agent's memory has less than %zu "
                          "bytes", len);
    }
    if (views_leave(client_place(w->client)->data, st.st_dev, st.st_ino, e) < 0) {
        return -ENOMEM;
    }
    m->is_touched = save_ahead_end(w->ahead, st.st_ino, &ahead) || m->is_touched;
    w->ahead = NULL;
    if (!find_map(w, st.st_ino)) {
        unmap(m);
        *m = ahead;
    }
    if (m->len >= len) {
        return 0;
    }
    unmap(m);
    at = hugepages_map(len, PROT_READ | PROT_WRITE, fd);
    if (at == MAP_FAILED) {
        return error_set(e, errno, "map %zu bytes of the agent's", len);
    }
    *m = (struct save_map){.file = st.st_ino, .at = at, .len = len};
    return 0;
}

/* --- saving --- */

/* The part of a plan differs from save to save in its header only. */
static int encode_part(struct agent_way *w, const struct save_job *job, struct error *e)
{
    int rc;

    w->is_sealed = w->part_plan != job->plan || !part_encode_again(job->part, &w->part);
    if (!w->is_sealed) {
        return 0;
    }
    buf_clear(&w->part);
    rc = part_encode(job->part, &w->part, e);
    w->part_plan = rc < 0 ? 0 : job->plan;
    return rc;
}

/* A part that was not made yet is, while the agent looks for memory. */
static int ask_once(struct agent_way *w, const struct save_job *job,
                    const struct worker_snap_begin *begin, bool *is_encoded,
                    struct worker_snap *ret, int *ret_fd, struct error *e)
{
    struct error why = {0};
    int part = 0, rc = client_snap_begin(w->client, begin, e);

    if (rc == 0 && !*is_encoded) {
        part = encode_part(w, job, &why);
        *is_encoded = true;
    }
    rc = rc < 0 ? rc : client_snap_answer(w->client, ret, ret_fd, e);
    if (part < 0) {
        *e = why;
    }
    return part < 0 ? part : rc;
}

/* The one before the last is still on its way: training waits for it here, unless it
 * is to go on without this one. */
static int ask_until(struct agent_way *w, const struct save_job *job,
                     const struct worker_snap_begin *begin, bool *is_encoded,
                     struct worker_snap *ret, int *ret_fd, struct error *e)
{
    uint64_t end_ms = clock_mono_ms() + BUSY_WAIT_MS;
    int rc = ask_once(w, job, begin, is_encoded, ret, ret_fd, e);

    while (rc == -EBUSY && !(job->flags & MUSTER_CKPT_SKIP) && clock_mono_ms() < end_ms) {
        poll(NULL, 0, BUSY_LOOK_MS);
        rc = ask_once(w, job, begin, is_encoded, ret, ret_fd, e);
    }
    return rc == -EBUSY && !(job->flags & MUSTER_CKPT_SKIP)
               ? error_text(e, EBUSY, "two earlier saves have been on their way to the disk for "
                            "%d s: expected saves less often, or a faster disk; with "
                            "MUSTER_CKPT_SKIP, or skip=True in Python, this one is left out "
                            "at once", BUSY_WAIT_MS / 1000)
               : rc;
}

static uint64_t room_for(const struct agent_way *w, const struct save_job *job)
{
    return snap_room(job->image->bytes, w->part.len);
}

/* The part will be as long as that of the save before, most times. */
static int ask(struct agent_way *w, const struct save_job *job,
               struct worker_snap_begin *begin, struct worker_snap *ret, int *ret_fd,
               struct error *e)
{
    bool is_encoded = w->part_plan != job->plan;
    int rc = is_encoded ? encode_part(w, job, e) : 0;

    begin->bytes = room_for(w, job);
    rc = rc < 0 ? rc : ask_until(w, job, begin, &is_encoded, ret, ret_fd, e);
    if (rc == 0 && room_for(w, job) > begin->bytes) {
        close_fd(ret_fd);
        begin->bytes = room_for(w, job);
        rc = ask_until(w, job, begin, &is_encoded, ret, ret_fd, e);
    }
    return rc;
}

static void drop_fill(struct agent_way *w)
{
    fill_destroy(w->fill);
    w->fill = NULL;
    close_fd(&w->fill_fd);
}

/* The agent writes the first blocks while the last are being copied. Without memory for that
 * it begins later. */
static void let_see(struct agent_way *w)
{
    uint64_t n = w->copy.n_blocks;

    if (n > w->n_there) {
        free(w->is_there);
        w->is_there = malloc(n * sizeof(*w->is_there));
        w->n_there = w->is_there ? n : 0;
    }
    if (n > 0 && w->n_there >= n) {
        memset(w->is_there, 0, n * sizeof(*w->is_there));
        image_copy_tell(&w->copy, snap_filled(w->maps[0].at), w->is_there);
    }
}

static int begin_copy(struct agent_way *w, const struct save_job *job, bool is_bare, int *fd,
                      struct error *e)
{
    const struct save_map *m = &w->maps[0];

    drop_fill(w);
    if (!is_bare) {
        image_copy_begin(&w->copy, job->image, m->at + SNAP_PAGE_BYTES, !m->is_touched);
        let_see(w);
        return 0;
    }
    w->fill = fill_create(*fd, m->at, m->len);
    if (!w->fill) {
        return error_set(e, ENOMEM, "fill a snapshot");
    }
    w->fill_fd = take_fd(fd);
    image_copy_begin_fill(&w->copy, job->image, w->fill, SNAP_PAGE_BYTES);
    let_see(w);
    return 0;
}

static int reserve(void *self, const struct save_job *job, struct error *e)
{
    struct agent_way *w = self;
    struct worker_snap_begin begin = {.step = job->gather.step};
    struct worker_snap snap;
    _close_ int fd = -1;
    int rc;

    str_copy(begin.uuid, sizeof(begin.uuid), job->gather.uuid);
    if (strlen(job->root_path) >= sizeof(begin.root)) {
        return error_set(e, ENAMETOOLONG, "%.80s...", job->root_path);
    }
    if (!utf8_is_valid(job->root_path)) {
        return error_text(e, EILSEQ, "agents tell each other of paths in UTF-8 only");
    }
    str_copy(begin.root, sizeof(begin.root), job->root_path);
    rc = ask(w, job, &begin, &snap, &fd, e);
    if (rc == -ENOSPC) {
        rc = error_text(e, ENOMEM, "%s", snap.why); /* of memory, not of the disk */
    }
    if (rc == 0 && strcmp(snap.uuid, begin.uuid) != 0) {
        return error_text(e, EPROTO, "the agent answers what was asked before: it "
                          "is far behind");
    }
    rc = rc < 0 ? rc : map_file(w, fd, begin.bytes, e);
    if (rc == 0 && !w->maps[1].at) {
        w->ahead = save_ahead_create(fd);
    }
    return rc < 0 ? rc : begin_copy(w, job, snap.is_bare, &fd, e);
}

static int read_part(void *arg, uint64_t at, size_t len, void *to, struct error *e)
{
    const struct agent_way *w = arg;

    (void)e;
    memcpy(to, w->part.data + (at - w->part_at), len);
    return 0;
}

/* Behind the image, which need not be all there yet. */
static int put_part(struct agent_way *w, const struct save_job *job, struct error *e)
{
    const struct fill_source source = {read_part, w, false};

    if (!w->is_sealed) {
        part_seal(&w->part);
        w->is_sealed = true;
    }
    w->part_at = SNAP_PAGE_BYTES + snap_room(job->image->bytes, 0);
    if (w->fill) {
        return fill_piece(w->fill, w->part_at, w->part.len, &source, e);
    }
    memcpy(w->maps[0].at + w->part_at, w->part.data, w->part.len);
    return 0;
}

/* What was taken of it goes at once, as there is too little. The agent makes another one. */
static void cut_fill(struct agent_way *w)
{
    int rc;

    do {
        rc = ftruncate(w->fill_fd, 0);
    } while (rc < 0 && errno == EINTR);
    unmap(&w->maps[0]);
}

/* Who writes meanwhile takes one of those that copy, else, for whom the program waits. */
static bool has_processor_left(const struct save_job *job)
{
    return sysconf(_SC_NPROCESSORS_ONLN) > (long)job->n_threads;
}

/* Not of what the disk has at once; nor, without a processor for it, where memory is taken
 * meanwhile: whoever writes that looks up each page of it, when it is there for the first time. */
static void tell_fill(struct agent_way *w, const struct save_job *job)
{
    enum { MIN_BLOCKS = 2 };
    struct worker_snap_fill m = {.image_bytes = job->image->bytes, .may_stay = job->may_stay,
                                 .is_chosen = job->is_chosen};

    if (w->copy.n_blocks < MIN_BLOCKS) {
        return;
    }
    m.is_crowded = !has_processor_left(job);
    if (!m.is_crowded || !w->fill) {
        str_copy(m.uuid, sizeof(m.uuid), job->gather.uuid);
        w->is_told = client_snap_fill(w->client, &m, NULL) == 0;
    }
}

/* While others copy: to seal it takes as long as to copy some blocks. */
struct putting {
    struct agent_way *way;
    const struct save_job *job;
    struct error error;
    int rc;
};

static void put_part_first(void *arg)
{
    struct putting *p = arg;

    p->rc = put_part(p->way, p->job, &p->error);
}

static int put(void *self, const struct save_job *job, struct error *e)
{
    struct agent_way *w = self;
    struct putting part = {.way = w, .job = job};
    int rc;

    tell_fill(w, job);
    image_copy_help(&w->copy, job->n_threads, put_part_first, &part);
    rc = image_copy_end(&w->copy, e);
    if (rc == 0 && part.rc < 0) {
        *e = part.error;
        rc = part.rc;
    }
    if (rc < 0 && w->fill) {
        cut_fill(w);
    }
    w->maps[0].is_touched = rc == 0 && !w->fill;
    return rc;
}

static void help(void *self, unsigned n_threads)
{
    struct agent_way *w = self;

    image_copy_help(&w->copy, n_threads, NULL, NULL);
}

static struct worker_snap_want want(const char *uuid, enum worker_snap_level level)
{
    struct worker_snap_want m = {.level = (uint8_t)level};

    str_copy(m.uuid, sizeof(m.uuid), uuid);
    return m;
}

static int send_done(void *self, const struct save_job *job, struct error *e)
{
    struct agent_way *w = self;
    struct worker_snap_done done = {.image_bytes = job->image->bytes,
                                    .part_bytes = w->part.len};
    struct worker_snap_want held = want(job->gather.uuid, WORKER_SNAP_HELD);

    w->is_told = false;
    str_copy(done.uuid, sizeof(done.uuid), job->gather.uuid);
    held.is_chosen = job->is_chosen;
    return client_snap_send(w->client, &done, job->may_stay ? &held : NULL, e);
}

static int hand(void *self, const struct save_job *job, struct error *e)
{
    struct agent_way *w = self;
    struct save_map first = w->maps[0];
    int rc = client_snap_taken(w->client, job->gather.uuid, e);

    drop_fill(w);
    if (snap_room(job->image->bytes, w->part.len) + SNAP_PAGE_BYTES < first.len) {
        first = (struct save_map){0}; /* not all of its memory may be there */
    }
    if (rc == 0 && w->ahead) {
        save_ahead_start(w->ahead, &first);
    }
    return rc;
}

/* A snapshot that not all ranks have made comes to nothing by itself; but one is not waited
 * for that does not become full. */
static void give_up(void *self, const struct save_job *job)
{
    struct agent_way *w = self;
    struct worker_snap_fill none = {0};

    drop_fill(w);
    if (w->is_told) {
        w->is_told = false;
        str_copy(none.uuid, sizeof(none.uuid), job->gather.uuid);
        client_snap_fill(w->client, &none, NULL);
    }
}

static void forget(void *self, const struct save_job *job)
{
    (void)job;
    drop_fill(self);
}

static int look(struct agent_way *w, const char *uuid,
                enum muster_ckpt_level level, struct error *e)
{
    struct worker_snap_status s;
    int rc = client_snap_status(w->client, uuid, &s, e);

    if (rc < 0) {
        return rc;
    }
    if ((int)s.level >= (int)level + 1) {
        return 1;
    }
    return s.error ? error_text(e, (int)(s.error & 0xffff), "%s", s.why) : 0;
}

static int reached(void *self, const char *uuid, enum muster_ckpt_level level,
                   int64_t timeout_ms, struct error *e)
{
    struct agent_way *w = self;
    uint64_t end_ms = timeout_ms < 0 ? UINT64_MAX
                                     : clock_mono_ms() + (uint64_t)timeout_ms;
    int rc = look(w, uuid, level, e);

    if (rc == 0 && timeout_ms != 0 && level > MUSTER_CKPT_SNAPSHOT) {
        struct worker_snap_want m = want(uuid, (enum worker_snap_level)level + 1);

        rc = client_snap_want(w->client, &m, e);
    }
    while (rc == 0 && (rc = look(w, uuid, level, e)) == 0 && clock_mono_ms() < end_ms) {
        struct pollfd p = {.fd = client_fd(w->client), .events = POLLIN};
        uint64_t left = end_ms - clock_mono_ms();

        poll(&p, 1, left > 1000 ? 1000 : (int)left);
    }
    return rc;
}

static bool stays(void *self, const char *uuid)
{
    struct agent_way *w = self;
    struct worker_snap_status s;

    return client_snap_status(w->client, uuid, &s, NULL) == 0 && s.error == 0 && s.why[0];
}

/* --- loading --- */

static void drop_held(struct agent_way *w)
{
    for (size_t i = 0; i < w->n_held; i++) {
        if (w->held[i].is_open) {
            close(w->held[i].fd);
        }
        if (w->held[i].at) {
            munmap(w->held[i].at, w->held[i].len);
        }
    }
    w->n_open = 0;
    free(w->held);
    w->held = NULL;
    w->n_held = 0;
    w->held_uuid[0] = '\0';
}

void save_agent_look(void *self, const struct step *step)
{
    struct agent_way *w = self;

    drop_held(w);
    w->held = calloc(step->manifest.n_files + 1, sizeof(*w->held));
    if (w->held) {
        w->n_held = step->manifest.n_files;
        str_copy(w->held_uuid, sizeof(w->held_uuid), step->commit.uuid);
    }
}

void save_agent_looked(void *self)
{
    drop_held(self);
}

static struct held *held_of(const struct agent_way *w, const struct step *s,
                            uint32_t file)
{
    return strcmp(w->held_uuid, s->commit.uuid) == 0 && file < w->n_held
               ? &w->held[file] : NULL;
}

static void map_held(struct agent_way *w, struct held *h)
{
    struct stat st;
    void *at;

    if (fstat(h->fd, &st) == 0 && (uint64_t)st.st_size >= h->len) {
        at = hugepages_map(h->len, PROT_READ, h->fd);
        h->at = at == MAP_FAILED ? NULL : at;
    }
    close(h->fd);
    h->is_open = false;
    w->n_open--;
}

/* What this rank has saved, other nodes are asked for, too; what others have, comes from
 * memory where it is on this node. All else comes from the disk: every block is held
 * against its digest either way. Whose memory it is writes to it in a later save, in which
 * all ranks take part. */
static void look_held(void *arg, const struct step *s, uint32_t file)
{
    struct agent_way *w = arg;
    struct held *h = held_of(w, s, file);
    struct error e = {0};
    struct worker_snap got;
    _close_ int fd = -1;
    uint32_t rank;

    if (!h || h->is_asked) {
        return;
    }
    h->is_asked = true;
    if (part_data_rank(s->manifest.files[file].name, &rank) &&
        client_snap_find(w->client, rank, s->commit.uuid, &got, &fd, &e) == 0 &&
        strcmp(got.uuid, s->commit.uuid) == 0 &&
        got.image_bytes == s->manifest.files[file].bytes) {
        h->is_coming = got.is_bare;
        h->len = SNAP_PAGE_BYTES + got.image_bytes;
        h->fd = take_fd(&fd);
        h->is_open = true;
        w->n_open++;
        if (w->n_open > MOST_OPEN) { /* rather wait for memory than have no descriptors */
            map_held(w, h);
        }
    }
}

static const char *find_held(void *arg, const struct step *s, uint32_t file)
{
    struct held *h = held_of(arg, s, file);

    if (h && h->is_open) {
        map_held(arg, h);
    }
    return h && h->at ? h->at + SNAP_PAGE_BYTES : NULL;
}

static bool await_held(void *arg, const struct step *s, uint32_t file, uint64_t end)
{
    const struct held *h = held_of(arg, s, file);

    return h && h->at && (!h->is_coming || snap_await(h->at, digest_n_blocks(end)));
}

/* --- mapping --- */

/* Of what this rank saves itself (launcher/snap_hold.h): a copy of another node's may be
 * written to by the agent, and nobody here is asked before. */
static bool is_own_memory(int fd)
{
    char link[64], path[PATH_MAX];
    const char *name;
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    if (n < 0) {
        return false;
    }
    path[n] = '\0';
    name = strrchr(path, '/');
    return name && str_starts(name + 1, "snap-");
}

int save_agent_open(void *self, uint32_t rank, const struct step *step, uint32_t file)
{
    struct agent_way *w = self;
    const struct manifest_file *f = &step->manifest.files[file];
    char own[PART_NAME_BYTES];
    struct worker_snap held;
    _close_ int fd = -1;

    part_data_name(rank, own);
    if (strcmp(f->name, own) != 0 || strcmp(w->absent_uuid, step->commit.uuid) == 0) {
        return -ENOENT;
    }
    if (client_snap_find(w->client, rank, step->commit.uuid, &held, &fd,
                         &(struct error){0}) < 0 ||
        strcmp(held.uuid, step->commit.uuid) != 0 || held.image_bytes != f->bytes ||
        held.is_bare || !is_own_memory(fd)) {
        str_copy(w->absent_uuid, sizeof(w->absent_uuid), step->commit.uuid);
        return -ENOENT;
    }
    return take_fd(&fd);
}

struct client_place *save_agent_place(void *self)
{
    struct agent_way *w = self;

    return client_place(w->client);
}

static void destroy(void *self)
{
    struct agent_way *w = self;
    struct save_map ahead;

    drop_held(w);
    save_ahead_end(w->ahead, 0, &ahead);
    drop_fill(w);
    for (size_t i = 0; i < N_MAPS; i++) {
        unmap(&w->maps[i]);
    }
    buf_release(&w->part);
    free(w->is_there);
    free(w);
}

static const struct save_ops ops = {
    .reserve = reserve,
    .put = put,
    .help = help,
    .send = send_done,
    .hand = hand,
    .abort = give_up,
    .done = forget,
    .reached = reached,
    .stays = stays,
    .destroy = destroy,
};

int save_agent_create(struct muster *m, struct save_way *ret,
                      struct load_source *ret_source)
{
    struct client *client = client_of(m);
    struct agent_way *w;

    if (!client) {
        return 0;
    }
    w = calloc(1, sizeof(*w));
    if (!w) {
        return -ENOMEM;
    }
    w->client = client;
    w->fill_fd = -1;
    *ret = (struct save_way){&ops, w};
    *ret_source = (struct load_source){look_held, find_held, await_held, w};
    return 0;
}
