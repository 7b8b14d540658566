/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that come as files. A timer asks libuv's thread pool for a look into
 * the directory, one look at a time: where the filesystem hangs, only looking
 * stops.
 */
#include <config.h>

#include "launcher/control.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "launcher/control_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_MS = 1000, MAX_FOUND = 64 };

struct control_watch {
    uv_timer_t timer;
    uv_work_t work;
    control_f *on_request;
    void *arg;
    char dir[PATH_MAX];
    struct strlist found; /* texts, oldest first; the worker's while working */
    bool is_working;
    bool is_destroyed;
    bool timer_is_closed;
};

/* Reads a request and removes it: it is answered once, whatever becomes of it.
 * NULL for what is none. */
static char *take_request(int dir_fd, const char *name)
{
    _close_ int fd = openat(dir_fd, name,
                            O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    _free_ char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        (st.st_uid != geteuid() && st.st_uid != 0) ||
        st.st_size > CONTROL_MAX_LINE) {
        return NULL;
    }
    text = malloc((size_t)st.st_size + 1);
    n = text ? read(fd, text, (size_t)st.st_size) : -1;
    if (n < 0 || unlinkat(dir_fd, name, 0) < 0) {
        return NULL;
    }
    text[n] = '\0';
    return take_ptr(&text);
}

static int only_requests(const struct dirent *d)
{
    return d->d_name[0] != '.' && str_ends(d->d_name, ".json");
}

static void look(void *arg)
{
    struct control_watch *w = arg;
    _close_ int fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent **names = NULL;
    int n = fd < 0 ? 0 : scandirat(fd, ".", &names, only_requests, alphasort);

    for (int i = 0; i < n; i++) {
        char *text = w->found.n < MAX_FOUND ? take_request(fd, names[i]->d_name)
                                            : NULL;

        if (text) {
            strlist_take(&w->found, text);
        }
        free(names[i]);
    }
    free(names);
}

static void on_work(uv_work_t *req)
{
    thread_apart(look, req->data, -1);
}

static void free_if_over(struct control_watch *w)
{
    if (w->is_destroyed && w->timer_is_closed && !w->is_working) {
        strlist_release(&w->found);
        free(w);
    }
}

static void after_look(uv_work_t *req, int status)
{
    struct control_watch *w = req->data;

    (void)status;
    w->is_working = false;
    for (size_t i = 0; i < w->found.n && !w->is_destroyed; i++) {
        struct error e = {0};

        /* Nobody waits for an answer. */
        control_dispatch(w->on_request, w->arg, w->found.items[i],
                         strlen(w->found.items[i]), NULL, &e);
    }
    strlist_release(&w->found);
    free_if_over(w);
}

static void on_timer(uv_timer_t *t)
{
    struct control_watch *w = t->data;

    if (!w->is_working &&
        uv_queue_work(t->loop, &w->work, on_work, after_look) == 0) {
        w->is_working = true;
    }
}

int control_watch_create(uv_loop_t *loop, const char *run_dir,
                         control_f *on_request, void *arg,
                         struct control_watch **ret, struct error *e)
{
    struct control_watch *w = calloc(1, sizeof(*w));
    int rc;

    if (!w) {
        return error_set(e, ENOMEM, "watch for requests");
    }
    rc = fs_path(w->dir, sizeof(w->dir), e, "%s/control", run_dir);
    if (rc < 0) {
        free(w);
        return rc;
    }
    w->on_request = on_request;
    w->arg = arg;
    w->work.data = w;
    uv_timer_init(loop, &w->timer);
    w->timer.data = w;
    uv_timer_start(&w->timer, on_timer, LOOK_MS, LOOK_MS);
    *ret = w;
    return 0;
}

static void timer_closed(uv_handle_t *h)
{
    struct control_watch *w = h->data;

    w->timer_is_closed = true;
    free_if_over(w);
}

void control_watch_destroy(struct control_watch *w)
{
    if (w) {
        w->is_destroyed = true;
        uv_close((uv_handle_t *)&w->timer, timer_closed);
    }
}
