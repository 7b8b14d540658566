/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/step.h"

#include "base/str.h"
#include "ckpt/step_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PREFIX[] = "step-";
enum { PREFIX_LEN = 5, MIN_DIGITS = 12, MAX_DIGITS = 19, UUID_DIGITS = 8 };

void step_name(uint64_t step, const char *uuid, char to[STEP_NAME_BYTES])
{
    snprintf(to, STEP_NAME_BYTES, "%s%0*llu-%.*s", PREFIX, MIN_DIGITS,
             (unsigned long long)step, UUID_DIGITS, uuid);
}

bool step_is_at(const char *root, uint64_t step, const char *uuid, const char *path)
{
    size_t n = strlen(root);
    char name[STEP_NAME_BYTES];

    step_name(step, uuid, name);
    return strncmp(path, root, n) == 0 && path[n] == '/' &&
           strcmp(path + n + 1, name) == 0;
}

bool step_parse_name(const char *name, uint64_t *ret_step)
{
    uint64_t step;
    size_t n;

    if (strncmp(name, PREFIX, PREFIX_LEN) != 0) {
        return false;
    }
    name += PREFIX_LEN;
    n = strspn(name, "0123456789");
    if (n < MIN_DIGITS || n > MAX_DIGITS || (n > MIN_DIGITS && *name == '0') ||
        name[n] != '-' ||
        strspn(name + n + 1, "0123456789abcdef") != UUID_DIGITS ||
        name[n + 1 + UUID_DIGITS] != '\0') {
        return false;
    }
    step = strtoull(name, NULL, 10); /* of so many digits each fits into 64 bits */
    if (step > INT64_MAX) {
        return false;
    }
    *ret_step = step;
    return true;
}

/* --- lists --- */

struct listing {
    struct step_entry *entries;
    size_t n, room;
};

static int add(void *arg, const char *name)
{
    struct listing *l = arg;
    uint64_t step;

    if (!step_parse_name(name, &step)) {
        return 0;
    }
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 16;
        struct step_entry *fresh = reallocarray(l->entries, room,
                                                sizeof(*fresh));

        if (!fresh) {
            return -ENOMEM;
        }
        l->entries = fresh;
        l->room = room;
    }
    l->entries[l->n].step = step;
    l->entries[l->n].token = 0;
    str_copy(l->entries[l->n].name, sizeof(l->entries->name), name);
    l->n++;
    return 0;
}

uint64_t step_token(struct io *io, int root, const char *name)
{
    _free_ char *text = NULL;
    struct commit commit = {0};
    size_t len = 0;
    int dir = io->ops->open_dir(io, root, name), rc;

    if (dir < 0) {
        return 0;
    }
    rc = io_read_file(io, dir, STEP_COMMIT, COMMIT_MAX_BYTES, &text, &len);
    io->ops->close(io, dir);
    return rc == 0 && commit_decode(text, len, &commit, NULL) == 0 ? commit.token : 0;
}

int step_compare(uint64_t token, const char *name, uint64_t other_token,
                 const char *other_name)
{
    if (token != other_token) {
        return token > other_token ? -1 : 1;
    }
    return strcmp(other_name, name);
}

static int by_step(const void *a, const void *b)
{
    const struct step_entry *x = a, *y = b;

    if (x->step != y->step) {
        return x->step > y->step ? -1 : 1;
    }
    return step_compare(x->token, x->name, y->token, y->name);
}

/* Only where several are of one step: it takes reading. */
static bool read_tokens(struct io *io, int root, struct step_entry *entries, size_t n)
{
    bool has_some = false;

    for (size_t i = 0; i < n; i++) {
        if ((i > 0 && entries[i - 1].step == entries[i].step) ||
            (i + 1 < n && entries[i + 1].step == entries[i].step)) {
            entries[i].token = step_token(io, root, entries[i].name);
            has_some = true;
        }
    }
    return has_some;
}

int step_list(struct io *io, int root, struct step_entry **ret, size_t *ret_n,
              struct error *e)
{
    struct listing l = {0};
    int rc = io->ops->list(io, root, add, &l);

    if (rc < 0) {
        free(l.entries);
        return error_set(e, -rc, "list checkpoints");
    }
    if (l.n) {
        qsort(l.entries, l.n, sizeof(*l.entries), by_step);
        if (read_tokens(io, root, l.entries, l.n)) {
            qsort(l.entries, l.n, sizeof(*l.entries), by_step);
        }
    }
    *ret = l.entries;
    *ret_n = l.n;
    return 0;
}

/* --- one --- */

/* Who put that there, or copied it so, has taken the file away. */
static bool is_no_file(int rc)
{
    return rc == -ELOOP || rc == -EINVAL;
}

static int say_no_file(const struct step *s, const char *file, struct error *e)
{
    return error_text(e, ERR_FORMAT, "%s/%s is damaged: expected a file, found a link, a pipe, a "
                      "socket, a device or a directory", s->name, file);
}

static int read_commit(struct step *s, struct error *e)
{
    _free_ char *text = NULL;
    size_t len;
    int rc = io_read_file(s->io, s->dir, STEP_COMMIT, COMMIT_MAX_BYTES, &text,
                          &len);

    if (rc == -ENOENT) {
        return error_text(e, ENOENT, "%s has no COMMIT: it was never finished",
                          s->name);
    }
    if (rc == -EFBIG || rc == -ENODATA) {
        return error_text(e, ERR_FORMAT, "%s/%s is no COMMIT: its length is "
                          "wrong", s->name, STEP_COMMIT);
    }
    if (is_no_file(rc)) {
        return say_no_file(s, STEP_COMMIT, e);
    }
    if (rc < 0) {
        return error_set(e, -rc, "read %s/%s", s->name, STEP_COMMIT);
    }
    rc = commit_decode(text, len, &s->commit, e);
    return rc < 0 ? error_wrap(e, "%s", s->name) : 0;
}

static int read_manifest(struct step *s, struct error *e)
{
    _free_ char *text = NULL;
    size_t len = 0;
    int rc = io_read_file(s->io, s->dir, STEP_MANIFEST, MANIFEST_MAX_BYTES,
                          &text, &len);

    if (is_no_file(rc)) {
        return say_no_file(s, STEP_MANIFEST, e);
    }
    if (rc < 0 && rc != -ENOENT && rc != -EFBIG && rc != -ENODATA) {
        return error_set(e, -rc, "read %s/%s", s->name, STEP_MANIFEST);
    }
    if (rc < 0 || len != s->commit.manifest_bytes ||
        !digest_equal(digest_of(text, len), s->commit.manifest_digest)) {
        return error_text(e, ERR_FORMAT, "%s/%s is damaged: expected %llu bytes "
                          "with the digest in COMMIT, found %zu", s->name,
                          STEP_MANIFEST,
                          (unsigned long long)s->commit.manifest_bytes, len);
    }
    rc = manifest_decode(text, len, &s->manifest, e);
    rc = rc < 0 ? rc : manifest_check_commit(&s->manifest, &s->commit, e);
    return rc < 0 ? error_wrap(e, "%s", s->name) : 0;
}

/* Opens a file of it, which must have its length. */
static int open_listed(struct step *s, const struct manifest_file *f,
                       struct error *e)
{
    int fd = s->io->ops->open_file(s->io, s->dir, f->name);
    uint64_t bytes = 0;
    int rc;

    if (is_no_file(fd)) {
        return say_no_file(s, f->name, e);
    }
    if (fd == -ENOENT) {
        return error_text(e, ERR_FORMAT, "%s/%s is missing", s->name, f->name);
    }
    if (fd < 0) {
        return error_set(e, -fd, "open %s/%s", s->name, f->name);
    }
    rc = s->io->ops->size(s->io, fd, &bytes);
    if (rc == 0 && bytes == f->bytes) {
        return fd;
    }
    s->io->ops->close(s->io, fd);
    if (rc < 0) {
        return error_set(e, -rc, "look at %s/%s", s->name, f->name);
    }
    return error_text(e, ERR_FORMAT, "%s/%s is %s: expected %llu bytes, found "
                      "%llu", s->name, f->name,
                      bytes < f->bytes ? "cut" : "too long",
                      (unsigned long long)f->bytes, (unsigned long long)bytes);
}

static int check_lengths(struct step *s, struct error *e)
{
    for (size_t i = 0; i < s->manifest.n_files; i++) {
        int fd = open_listed(s, &s->manifest.files[i], e);

        if (fd < 0) {
            return fd;
        }
        s->io->ops->close(s->io, fd);
    }
    return 0;
}

/* A directory whose name says another step is a copy that somebody renamed. */
static int check_name(const struct step *s, struct error *e)
{
    char name[STEP_NAME_BYTES];

    step_name(s->commit.step, s->commit.uuid, name);
    if (strcmp(name, s->name) == 0) {
        return 0;
    }
    return error_text(e, ERR_FORMAT, "%s holds the checkpoint %s, and is not called so",
                      s->name, name);
}

int step_look_for(struct io *io, int dir, const char *name)
{
    int fd = io->ops->open_file(io, dir, name);

    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    return fd >= 0 ? 1 : fd == -ENOENT ? 0 : fd;
}

int step_or_gone(const struct step *s, int rc, struct error *e)
{
    int has = step_look_for(s->io, s->dir, STEP_COMMIT);

    return has == 0 || has == -ESTALE
               ? error_text(e, ENOENT, "%s has no COMMIT any more: it is being removed",
                            s->name)
               : rc;
}

static int open_as(struct io *io, int root, const char *name, bool is_renamed,
                   struct step *ret, struct error *e)
{
    struct step s = {.io = io};
    int rc;

    str_copy(s.name, sizeof(s.name), name);
    s.dir = io->ops->open_dir(io, root, name);
    if (s.dir < 0) {
        return error_set(e, -s.dir, "open %s", name);
    }
    rc = read_commit(&s, e);
    if (rc == 0) {
        rc = is_renamed ? 0 : check_name(&s, e);
        rc = rc < 0 ? rc : read_manifest(&s, e);
        rc = rc < 0 ? rc : check_lengths(&s, e);
        rc = rc < 0 ? step_or_gone(&s, rc, e) : 0;
    }
    if (rc < 0) {
        step_close(&s);
        return rc;
    }
    *ret = s;
    return 0;
}

int step_open(struct io *io, int root, const char *name, struct step *ret,
              struct error *e)
{
    return open_as(io, root, name, false, ret, e);
}

int step_open_renamed(struct io *io, int root, const char *name, struct step *ret,
                      struct error *e)
{
    return open_as(io, root, name, true, ret, e);
}

void step_close(struct step *s)
{
    if (s->io) {
        s->io->ops->close(s->io, s->dir);
        manifest_release(&s->manifest);
        *s = (struct step){0};
    }
}

/* --- all of its bytes --- */

static int verify_file(struct step *s, size_t at_file, char *block, struct error *e)
{
    const struct manifest_file *f = &s->manifest.files[at_file];
    uint64_t n = digest_n_blocks(f->bytes), at = 0;
    _free_ uint64_t *blocks = calloc(n + 1, sizeof(*blocks));
    int fd = blocks ? open_listed(s, f, e) : error_set(e, ENOMEM, "verify");
    int rc = 0;

    if (fd < 0) {
        return fd;
    }
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        size_t len = f->bytes - at < DIGEST_BLOCK_BYTES ? f->bytes - at
                                                        : DIGEST_BLOCK_BYTES;

        rc = io_read_all(s->io, fd, block, len, at);
        blocks[i] = rc == 0 ? digest_short_of(block, len) : 0;
        at += len;
    }
    s->io->ops->close(s->io, fd);
    if (rc < 0) {
        return error_set(e, -rc, "read %s/%s", s->name, f->name);
    }
    if (!digest_equal(digest_of_blocks(blocks, f->bytes), f->digest)) {
        rc = error_text(e, ERR_FORMAT, "%s/%s is damaged: its %llu bytes do "
                        "not have the digest in the manifest", s->name,
                        f->name, (unsigned long long)f->bytes);
        step_blame(s, at_file, blocks, n, e);
    }
    return rc;
}

int step_verify(struct step *s, struct error *e)
{
    _free_ char *block = malloc(DIGEST_BLOCK_BYTES);

    if (!block) {
        return error_set(e, ENOMEM, "verify %s", s->name);
    }
    for (size_t i = 0; i < s->manifest.n_files; i++) {
        int rc = verify_file(s, i, block, e);

        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* --- the newest --- */

static int try(struct io *io, int root, const char *name, bool is_deep,
               struct step *ret, struct error *e)
{
    int rc = step_open(io, root, name, ret, e);

    if (rc == 0 && is_deep) {
        rc = step_verify(ret, e);
        if (rc < 0) {
            rc = step_or_gone(ret, rc, e);
            step_close(ret);
        }
    }
    return rc;
}

int step_find_newest(struct io *io, int root, bool is_deep,
                     void (*tell)(void *arg, const char *name,
                                  const struct error *why),
                     void *arg, struct step *ret, struct error *e)
{
    _free_ struct step_entry *entries = NULL;
    struct step best = {0};
    size_t n = 0;
    int rc = step_list(io, root, &entries, &n, e);

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct step s = {0};
        struct error why = {0};

        if (best.io && entries[i].step < best.commit.step) {
            break;
        }
        if (try(io, root, entries[i].name, is_deep, &s, &why) < 0) {
            if (tell) {
                tell(arg, entries[i].name, &why);
            }
        } else if (!best.io || s.commit.token > best.commit.token) {
            step_close(&best);
            best = s;
        } else {
            step_close(&s);
        }
    }
    if (rc < 0) {
        return rc;
    }
    if (!best.io) {
        return error_text(e, ENOENT, "no checkpoint");
    }
    *ret = best;
    return 0;
}
