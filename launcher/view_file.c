/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/view_file.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/jsonw.h"
#include "launcher/rundir.h"
#include "rendezvous/order.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    VIEW_VERSION = 1,
    MAX_VIEW_BYTES = 1 << 20, /* ORDER_MAX_NODES ranks, and to spare */
    MAX_READS = 5,            /* of a file that link() says is there */
    AGAIN_MS = 50,
};

/* --- what it says --- */

void view_file_encode(const struct view *v, const struct view_place *at,
                      struct buf *b)
{
    struct jsonw w = jsonw_start(b);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", VIEW_VERSION);
    jsonw_str(&w, "run", at->run_id);
    jsonw_int(&w, "start", at->start);
    jsonw_int(&w, "view", v->number);
    jsonw_int(&w, "lead", v->lead);
    jsonw_array(&w, "members");
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        if (view_has(v, i)) {
            jsonw_int(&w, NULL, i);
        }
    }
    jsonw_end_array(&w);
    if (v->has_verdict) {
        jsonw_int(&w, "exit_status", v->status);
        jsonw_str(&w, "reason", v->reason);
    }
    jsonw_end_object(&w);
    buf_putc(b, '\n');
}

/* An integer from 0 to `max`. */
static bool read_int(const json_t *v, uint64_t max, uint64_t *ret)
{
    json_int_t n = json_integer_value(v);

    if (!json_is_integer(v) || n < 0 || (uint64_t)n > max) {
        return false;
    }
    *ret = (uint64_t)n;
    return true;
}

/* Rising, with the lead among them. -EINVAL if not. */
static int read_members(const json_t *list, struct view *v)
{
    _free_ bool *in = calloc(ORDER_MAX_NODES, sizeof(*in));
    size_t n = json_array_size(list);
    uint64_t rank, next = 0;

    if (!in) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        if (!read_int(json_array_get(list, i), ORDER_MAX_NODES - 1, &rank) ||
            rank < next) {
            return -EINVAL;
        }
        in[rank] = true;
        next = rank + 1;
    }
    return in[v->lead] ? view_set(v, in, (uint32_t)next) : -EINVAL;
}

static bool read_head(const json_t *root, struct view *v)
{
    const json_t *status = json_object_get(root, "exit_status");
    const char *reason = json_string_value(json_object_get(root, "reason"));
    uint64_t number, lead, code = 0;

    if (!read_int(json_object_get(root, "view"), UINT32_MAX, &number) ||
        !read_int(json_object_get(root, "lead"), ORDER_MAX_NODES - 1, &lead) ||
        (status && !read_int(status, UINT8_MAX, &code))) {
        return false;
    }
    v->number = (uint32_t)number;
    v->lead = (uint32_t)lead;
    v->shared = true;
    v->has_verdict = status != NULL;
    v->status = (uint8_t)code;
    str_copy(v->reason, sizeof(v->reason), reason ? reason : "");
    return true;
}

static int decode(const json_t *root, const struct view_place *at,
                  uint32_t number, struct view *v, struct error *e)
{
    const char *run = json_string_value(json_object_get(root, "run"));
    uint64_t version, start;
    int rc;

    if (!read_int(json_object_get(root, "v"), INT32_MAX, &version) ||
        version < 1) {
        return error_text(e, ERR_FORMAT, "expected a format version 'v'");
    }
    if (version > VIEW_VERSION) {
        return error_text(e, ERR_VERSION, "format %llu, this muster knows %d",
                          (unsigned long long)version, VIEW_VERSION);
    }
    if (!run || strcmp(run, at->run_id) != 0 ||
        !read_int(json_object_get(root, "start"), UINT32_MAX, &start) ||
        start != at->start) {
        return error_text(e, ERR_FORMAT, "expected a view of start %u of run "
                          "%s", at->start, at->run_id);
    }
    if (!read_head(root, v) || v->number != number) {
        return error_text(e, ERR_FORMAT, "expected view %u and its lead",
                          number);
    }
    rc = read_members(json_object_get(root, "members"), v);
    if (rc == -EINVAL) {
        return error_text(e, ERR_FORMAT, "expected members, by rank, the lead "
                          "among them");
    }
    return rc < 0 ? error_set(e, -rc, "list members") : 0;
}

int view_file_decode(const char *text, size_t len, const struct view_place *at,
                     uint32_t number, struct view *ret, struct error *e)
{
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    _view_ struct view v = {0};
    int rc = json_is_object(root)
                 ? decode(root, at, number, &v, e)
                 : error_text(e, ERR_FORMAT, "expected a JSON object");

    json_decref(root);
    if (rc == 0) {
        *ret = v;
        v = (struct view){0};
    }
    return rc;
}

/* --- where it stands --- */

static int view_path(const struct view_place *at, uint32_t number, char *to,
                     size_t size, struct error *e)
{
    return fs_path(to, size, e, "%s/views/%u.%u", at->run_dir, at->start,
                   number);
}

int view_file_read(const struct view_place *at, uint32_t number,
                   struct view *ret, struct error *e)
{
    char path[PATH_MAX];
    _free_ char *text = NULL;
    size_t len = 0;
    int rc = view_path(at, number, path, sizeof(path), e);

    rc = rc < 0 ? rc : fs_read_regular(path, MAX_VIEW_BYTES, &text, &len, e);
    if (rc < 0) {
        return rc;
    }
    rc = view_file_decode(text, len, at, number, ret, e);
    return rc < 0 ? error_wrap(e, "%s", path) : 0;
}

static void wait_a_little(void)
{
    struct timespec t = {.tv_nsec = AGAIN_MS * 1000000L};

    nanosleep(&t, NULL);
}

/* Another host's file, or our own after all, may be hidden for a moment by what
 * this one remembers of the directory. */
static int read_back(const struct view_place *at, uint32_t number,
                     struct view *ret, struct error *e)
{
    int rc = -ENOENT;

    for (int i = 0; i < MAX_READS && rc == -ENOENT; i++) {
        if (i) {
            wait_a_little();
        }
        rc = view_file_read(at, number, ret, e);
    }
    return rc;
}

/* In the directory of views, which is made where it is missing. */
static int write_draft(const struct view_place *at, const struct view *v,
                       char *path, size_t size, struct error *e)
{
    _buf_ struct buf text = {0};
    int rc = fs_path(path, size, e, "%s/views", at->run_dir);

    if (rc == 0 && mkdir(path, 0700) < 0 && errno != EEXIST) {
        return error_set(e, errno, "make %s", path);
    }
    rc = rc < 0 ? rc : fs_path(path, size, e, "%s/views/.%u.%u-of-%u",
                               at->run_dir, at->start, v->number, v->lead);
    view_file_encode(v, at, &text);
    if (rc < 0 || text.failed) {
        return rc < 0 ? rc : error_set(e, ENOMEM, "write %s", path);
    }
    return fs_write_atomic(path, text.data, text.len, e);
}

/* So that a server that crashes now does not forget it. */
static void sync_views(const char *run_dir)
{
    char path[PATH_MAX];
    _close_ int fd = -1;

    if (fs_path(path, sizeof(path), NULL, "%s/views", run_dir) == 0) {
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd >= 0) {
        (void)fsync(fd);
    }
}

static bool is_same(const struct view *a, const struct view *b)
{
    uint32_t n = a->n_nodes > b->n_nodes ? a->n_nodes : b->n_nodes;

    for (uint32_t i = 0; i < n; i++) {
        if (view_has(a, i) != view_has(b, i)) {
            return false;
        }
    }
    return a->lead == b->lead && a->has_verdict == b->has_verdict &&
           a->status == b->status;
}

static int check_place(const struct view_place *at, struct error *e)
{
    int rc = at->nonce ? rundir_check_nonce(at->run_dir, at->nonce, e) : 1;

    return rc != 0 ? rc
                   : error_text(e, ESTALE, "%s is not the directory of this run here: "
                                "views are claimed where all others see it", at->run_dir);
}

int view_file_claim(const struct view_place *at, const struct view *v,
                    struct view *ret, struct error *e)
{
    char draft[PATH_MAX], path[PATH_MAX];
    _view_ struct view found = {0};
    struct error link_error = {0};
    int rc = view_path(at, v->number, path, sizeof(path), e);

    rc = rc < 0 ? rc : check_place(at, e);
    rc = rc < 0 ? rc : write_draft(at, v, draft, sizeof(draft), e);
    if (rc < 0) {
        return rc;
    }
    if (link(draft, path) < 0) {
        error_set(&link_error, errno, "make %s", path);
    }
    rc = read_back(at, v->number, &found, e);
    unlink(draft);
    if (rc == -ENOENT && link_error.code && link_error.code != EEXIST) {
        if (e) {
            *e = link_error;
        }
        return -link_error.code;
    }
    if (rc < 0) {
        return rc;
    }
    sync_views(at->run_dir);
    if (is_same(&found, v)) {
        return 1;
    }
    *ret = found;
    found = (struct view){0};
    return 0;
}
