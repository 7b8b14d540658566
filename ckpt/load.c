/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/load.h"

#include "base/cleanup.h"
#include "base/utf8.h"
#include "ckpt/load_priv.h"
#include "ckpt/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHOWN = 200 };
#define MAX_INDEX_BYTES (UINT64_C(1) << 36)

bool load_is_damage(int rc)
{
    switch (rc) {
    case -ENODATA: /* what is asked for is not what it has */
    case -EINVAL:
    case -ENOMEM:  /* this process has not what it needs */
    case -EMFILE:
    case -ENFILE:
    case -EACCES: /* somebody else's, and may be whole: its owner can help */
    case -EPERM:
    case -EREMOTEIO: /* a GPU */
        return false;
    default:
        return rc < 0;
    }
}

/* --- opening --- */

static int read_index(const struct step *s, struct index **ret,
                      struct error *e)
{
    const struct manifest_file *f = &s->manifest.files[s->manifest.index];
    _free_ char *data = NULL;
    struct digest digest;
    size_t len = 0;
    int rc = io_read_file(s->io, s->dir, f->name, MAX_INDEX_BYTES, &data, &len);

    if (rc < 0 && rc != -ENODATA) {
        return error_set(e, -rc, "read %s/%s", s->name, f->name);
    }
    if (digest_of_file(data, len, &digest) < 0) {
        return error_set(e, ENOMEM, "verify the %zu bytes of %s/%s", len, s->name, f->name);
    }
    if (len != f->bytes || !digest_equal(digest, f->digest)) {
        return error_text(e, ERR_FORMAT, "%s/%s is damaged: its %zu bytes do not "
                          "have the digest in the manifest", s->name, f->name,
                          len);
    }
    rc = index_take(data, len, ret, e);
    if (rc < 0) {
        return error_wrap(e, "%s/%s", s->name, f->name);
    }
    take_ptr(&data);
    return 0;
}

/* The blocks' digests in the index are those that the manifest vouches for. */
static int check_blocks(const struct step *s, const struct index *x,
                        struct error *e)
{
    for (size_t i = 0; i < index_n_files(x); i++) {
        const struct manifest_file *f = &s->manifest.files[i];
        const uint64_t *blocks;
        size_t n = 0;

        if (i >= s->manifest.n_files) {
            return error_text(e, ERR_FORMAT, "%s: the index has %zu files, and "
                              "the manifest %zu", s->name, index_n_files(x),
                              s->manifest.n_files);
        }
        blocks = index_blocks(x, i, &n);
        if (n != digest_n_blocks(f->bytes) ||
            !digest_equal(digest_of_blocks(blocks, f->bytes), f->digest)) {
            return error_text(e, ERR_FORMAT, "%s: the index and the manifest "
                              "differ in %s", s->name, f->name);
        }
    }
    return 0;
}

/* Damage is none where it is being removed. */
static int look_again(const struct step *s, int rc, struct error *e)
{
    return load_is_damage(rc) ? step_or_gone(s, rc, e) : rc;
}

int load_open(struct step *s, struct load *ret, struct error *e)
{
    _cleanup_(index) struct index *x = NULL;
    int rc = read_index(s, &x, e);

    rc = rc < 0 ? rc : check_blocks(s, x, e);
    rc = look_again(s, rc, e);
    if (rc == 0) {
        ret->step = *s;
        ret->index = take_ptr(&x);
        *s = (struct step){0};
    }
    return rc;
}

void load_close(struct load *l)
{
    index_destroy(l->index);
    step_close(&l->step);
    *l = (struct load){0};
}

/* --- what is wanted --- */

static int refuse(const struct load_want *w, const struct load *l, int code,
                  const char *why, struct error *e)
{
    _buf_ struct buf name = {0};

    utf8_put_printable(&name, w->name, MAX_SHOWN);
    return error_text(e, code, "%s: tensor '%s' %s", l->step.name,
                      buf_str(&name), why);
}

static int refuse_shape(const struct load_want *w, const struct load *l,
                        const struct index_tensor *t, struct error *e)
{
    struct box there = box_whole(t->n_dims, t->shape);
    struct box here = box_whole(w->n_dims, w->shape);
    char a[160], b[160], why[400];

    box_format(&there, a, sizeof(a));
    box_format(&here, b, sizeof(b));
    snprintf(why, sizeof(why), "is %s %s there, and registered as %s %s: expected the type "
             "and shape that it has there", dtype_name(t->dtype), a, dtype_name(w->dtype), b);
    return refuse(w, l, EINVAL, why, e);
}

int load_find(const struct load *l, const struct load_want *w, size_t near, size_t *ret,
              struct error *e)
{
    size_t place = index_find_near(l->index, w->name, near);
    struct index_tensor t;

    if (place == SIZE_MAX) {
        return refuse(w, l, ENODATA, "is not in it", e);
    }
    t = index_tensor(l->index, place);
    if (t.dtype != w->dtype || t.n_dims != w->n_dims ||
        (t.n_dims > 0 &&
         memcmp(t.shape, w->shape, t.n_dims * sizeof(*t.shape)) != 0)) {
        return refuse_shape(w, l, &t, e);
    }
    *ret = place;
    return 0;
}

static struct strided memory_of(const struct load_want *w)
{
    return (struct strided){w->dtype, w->n_dims, w->len, w->strides, w->data};
}

static bool has_scratch(const struct load_want *w)
{
    struct strided s = memory_of(w);

    return (w->strides || w->device) && strided_bytes(&s) > 0;
}

/* Where what is read is put in row-major order: the want's own memory, or scratch, from
 * which it is spread. For all n, of which most have none. */
static int make_scratch(const struct load_want *wants, size_t n, char ***scratch,
                        char **to, struct error *e)
{
    for (size_t i = 0; i < n; i++) {
        struct strided s = memory_of(&wants[i]);

        to[i] = wants[i].data;
        if (!has_scratch(&wants[i])) {
            continue;
        }
        *scratch = *scratch ? *scratch : calloc(n, sizeof(**scratch));
        to[i] = *scratch ? malloc(strided_bytes(&s)) : NULL;
        if (!to[i]) {
            return error_set(e, ENOMEM, "get %llu bytes to load tensor '%.200s' by way of",
                             (unsigned long long)strided_bytes(&s), wants[i].name);
        }
        (*scratch)[i] = to[i];
    }
    return 0;
}

/* All of them are in it, and there is a plan to read them. */
static int plan(struct load_job *job, const struct load_want *wants, size_t n,
                struct error *e)
{
    size_t near = 0; /* programs register what belongs together one after the other */
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct load_want *w = &wants[i];
        struct plan_want *to = &job->wants[i];

        *to = (struct plan_want){.at = w->at, .len = w->len,
                                 .is_whole = box_is_whole(w->n_dims, w->shape, w->at, w->len)};
        rc = load_find(job->load, w, near, &to->tensor, e);
        near = to->tensor + 1;
    }
    return rc < 0 ? rc : plan_make(job->load->index, job->wants, n, DIGEST_BLOCK_BYTES,
                                   &job->plan, e);
}

/* What the program has asked of a GPU before may write there, too: `last` as for
 * device_settle(). */
static int spread(const struct load_want *w, const char *scratch, void **last,
                  struct error *e)
{
    struct strided s = memory_of(w);
    int rc = 0;

    if (scratch && w->device) {
        rc = device_settle(w->device, w->data, last, e);
        rc = rc < 0 ? rc : device_put(w->device, w->data, scratch,
                                      strided_bytes(&s), e);
    } else if (scratch) {
        strided_put(&s, 0, strided_bytes(&s), scratch);
    }
    return rc < 0 && e ? error_wrap(e, "tensor '%.100s'", w->name) : rc;
}

/* --- all --- */

struct load_into {
    const struct load_want *wants; /* the caller's */
    size_t n;
    unsigned n_threads;
    char **scratch; /* of each, or NULL; NULL where none has any */
    struct load_job job;
    struct load_pages pages;
};

void load_into_destroy(struct load_into *into)
{
    if (!into) {
        return;
    }
    load_pages_release(&into->pages); /* its threads use the rest */
    for (size_t i = 0; into->scratch && i < into->n; i++) {
        free(into->scratch[i]);
    }
    free(into->scratch);
    load_job_release(&into->job);
    free(into);
}

int load_into_begin(const struct load_want *wants, size_t n, unsigned n_threads,
                    struct load_into **ret, struct error *e)
{
    _cleanup_(load_into) struct load_into *into = calloc(1, sizeof(*into));
    int rc;

    if (!into) {
        return error_set(e, ENOMEM, "get memory for a load");
    }
    into->wants = wants;
    into->n = n;
    into->n_threads = n_threads;
    if (load_job_make_room(&into->job, n) < 0) {
        return error_set(e, ENOMEM, "get memory for a list of the %zu tensors to load", n);
    }
    rc = make_scratch(wants, n, &into->scratch, into->job.to, e);
    if (rc < 0) {
        return rc;
    }
    load_pages_begin(&into->pages, wants, into->job.to, n, n_threads);
    *ret = take_ptr(&into);
    return 0;
}

int load_fill(const struct load *l, const struct load_source *source,
              struct load_into *into, struct error *e)
{
    void *last = NULL;
    int rc;

    into->job.load = l;
    into->job.source = source;
    rc = plan(&into->job, into->wants, into->n, e);
    rc = rc < 0 ? rc : load_job_run(&into->job, &into->pages, into->n_threads, e);
    rc = look_again(&l->step, rc, e);
    for (size_t i = 0; into->scratch && i < into->n && rc == 0; i++) {
        rc = spread(&into->wants[i], into->scratch[i], &last, e);
    }
    return rc;
}

int load_boxes(const struct load *l, const struct load_source *source,
               const struct load_want *wants, size_t n, unsigned n_threads,
               struct error *e)
{
    _cleanup_(load_into) struct load_into *into = NULL;
    int rc = load_into_begin(wants, n, n_threads, &into, e);

    return rc < 0 ? rc : load_fill(l, source, into, e);
}
