/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/runview.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

void run_view_release(struct run_view *v)
{
    rundir_destroy(v->dir);
    run_status_destroy(v->status);
    json_decref(v->json);
    *v = (struct run_view){0};
}

int run_view_make_fresh(struct run_view *v, struct error *e)
{
    v->status = run_status_create();
    if (!v->status) {
        return error_set(e, ENOMEM, "read a status");
    }
    str_copy(v->status->id, sizeof(v->status->id), v->dir->id);
    str_copy(v->status->name, sizeof(v->status->name), v->dir->name);
    str_copy(v->status->run_dir, sizeof(v->status->run_dir), v->dir->path);
    v->status->created_ns = v->dir->created_ns;
    v->status->updated_ns = v->dir->created_ns;
    return 0;
}

static int parse_status(struct run_view *v, const char *text, size_t len,
                        struct error *e)
{
    json_error_t je;
    int rc = run_status_from_json(text, len, &v->status, e);

    if (rc < 0) {
        return error_wrap(e, "%s", v->dir->path);
    }
    v->json = json_loadb(text, len, 0, &je);
    return v->json ? 0 : error_set(e, ENOMEM, "read a status");
}

int run_view_refresh(struct run_view *v, struct error *e)
{
    uint64_t now = clock_wall_ns();
    _free_ char *text = NULL;
    char path[PATH_MAX];
    size_t len = 0;
    int rc = rundir_path(v->dir, path, sizeof(path), e, "status.json");

    rc = rc < 0 ? rc : fs_read_regular(path, STATUS_MAX_JSON_BYTES, &text, &len,
                                       e);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    run_status_destroy(v->status);
    json_decref(v->json);
    v->status = NULL;
    v->json = NULL;
    v->has_status = rc == 0;
    rc = rc == 0 ? parse_status(v, text, len, e) : run_view_make_fresh(v, e);
    if (rc < 0) {
        return rc;
    }
    v->is_locked = rundir_is_locked(v->dir, &v->owner);
    v->age_ms = now > v->status->updated_ns
                    ? (now - v->status->updated_ns) / 1000000u : 0;
    v->is_stale = !status_run_is_over(v->status->state) &&
                  v->age_ms > STATUS_STALE_MS;
    return 0;
}

int run_view_read(const char *path, struct run_view *ret, struct error *e)
{
    struct run_view v = {0};
    int rc = rundir_open(path, &v.dir, e);

    rc = rc < 0 ? rc : run_view_refresh(&v, e);
    if (rc < 0) {
        run_view_release(&v);
        return rc;
    }
    *ret = v;
    return 0;
}

bool run_view_is_alive(const struct run_view *v)
{
    return !status_run_is_over(v->status->state) &&
           (v->is_locked || !v->is_stale);
}

bool run_view_is_all_here(const struct run_view *v)
{
    const struct run_status *s = v->status;
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (strcmp(s->nodes[i].host, host) != 0) {
            return false;
        }
    }
    return s->n_nodes > 0;
}

/* Agents of another user's run are not heard. */
static bool is_own(const struct run_view *v)
{
    struct stat st;

    return stat(v->dir->path, &st) == 0 && st.st_uid == geteuid();
}

bool run_view_is_unheard(const struct run_view *v)
{
    return v->has_status && !v->is_silent && !v->is_locked &&
           !status_run_is_over(v->status->state) &&
           (v->is_stale || run_view_is_all_here(v)) && is_own(v) &&
           !control_is_heard(v->dir->id);
}

/* Which is why nobody could write a newer status. */
static const char *full_note(const struct run_view *v)
{
    struct statvfs fs;

    return statvfs(v->dir->path, &fs) == 0 && (fs.f_bavail == 0 ||
                   (fs.f_files > 0 && fs.f_favail == 0))
               ? ", and its directory is full" : "";
}

void run_view_state(const struct run_view *v, char *to, size_t size)
{
    const char *state = status_run_name(v->status->state);
    char span[32];

    clock_format_span(v->age_ms, span, sizeof(span));
    if (!v->is_stale && run_view_is_unheard(v)) {
        snprintf(to, size, "%s (nobody answers, last word %s ago)", state, span);
    } else if (!v->is_stale) {
        str_copy(to, size, state);
    } else if (v->is_locked) {
        snprintf(to, size, "%s (stale: no word for %s, but pid %ld on %s "
                 "holds it%s)", state, span, (long)v->owner.pid,
                 v->owner.host, full_note(v));
    } else {
        snprintf(to, size, "%s (stale: no word for %s, and nobody holds it%s)",
                 state, span, full_note(v));
    }
}

void run_view_json(const struct run_view *v, struct buf *to)
{
    _buf_ struct buf fresh = {0};
    json_t *root;
    char *text;

    if (v->json) {
        root = json_copy(v->json);
    } else {
        run_status_to_json(v->status, &fresh);
        root = json_loadb(buf_str(&fresh), fresh.len, 0, NULL);
    }
    if (json_object_set_new(root, "stale", json_boolean(v->is_stale)) < 0 ||
        json_object_set_new(root, "locked", json_boolean(v->is_locked)) < 0) {
        to->failed = true;
    }
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (text) {
        buf_puts(to, text);
    } else {
        to->failed = true;
    }
    free(text);
}
