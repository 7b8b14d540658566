/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/live.h"

#include "base/cleanup.h"
#include "launcher/show.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* News come in bursts: no more than four looks a second for them. */
enum { BURST_MS = 250, DEFAULT_ROWS = 24, DEFAULT_COLUMNS = 80 };

/* --- what a look finds --- */

void live_add(struct live_look *v, const char *key, const char *mark,
              const char *line)
{
    strlist_add(&v->keys, key);
    strlist_add(&v->marks, mark);
    strlist_add(&v->lines, line);
}

static void put_mark(struct buf *to, char *const *cells, size_t n,
                     unsigned restless)
{
    for (size_t i = 0; i < n; i++) {
        buf_printf(to, "%s\n", restless & 1u << i ? "" : cells[i]);
    }
}

/* The head is a thing of its own, which never changes. */
void live_add_table(struct live_look *v, const struct strlist *cells,
                    size_t n_columns, size_t key_column, unsigned restless)
{
    size_t from = v->screen.len;
    char *line, *rest;
    _free_ char *text = NULL;

    show_table(cells, n_columns, &v->screen);
    rest = text = strdup(buf_str(&v->screen) + from);
    for (size_t i = 0; text && i + n_columns <= cells->n; i += n_columns) {
        _buf_ struct buf mark = {0};

        line = strsep(&rest, "\n");
        if (!line) {
            break;
        }
        put_mark(&mark, cells->items + i, i ? n_columns : 0, restless);
        live_add(v, i ? cells->items[i + key_column] : "", buf_str(&mark),
                  line);
    }
}

static void add_object(struct live_look *v, json_t *o, const char *key,
                       const char *const *restless)
{
    const char *name = json_string_value(json_object_get(o, key));
    char *line = json_dumps(o, JSON_COMPACT), *mark;

    for (size_t i = 0; restless[i]; i++) {
        json_object_del(o, restless[i]);
    }
    mark = json_dumps(o, JSON_COMPACT);
    if (line && mark) {
        live_add(v, name ? name : "", mark, line);
    }
    free(line);
    free(mark);
}

void live_add_objects(struct live_look *v, const struct buf *array,
                      const char *key, const char *const *restless)
{
    json_t *list = json_loadb(buf_str(array), array->len, 0, NULL), *o;
    size_t i;

    json_array_foreach(list, i, o) {
        add_object(v, o, key, restless);
    }
    json_decref(list);
}

static void view_release(struct live_look *v)
{
    buf_release(&v->screen);
    strlist_release(&v->keys);
    strlist_release(&v->marks);
    strlist_release(&v->lines);
}

/* --- showing it --- */

struct watching {
    const struct live *config;
    bool is_screen;
    struct strlist known; /* keys and marks in turn, as printed */
    struct buf painted;   /* what stands on the terminal */
    size_t n_painted;     /* lines */
    int news_fd;          /* or -1 */
};

static char **find_mark(struct watching *w, const char *key)
{
    for (size_t i = 0; i + 1 < w->known.n; i += 2) {
        if (strcmp(w->known.items[i], key) == 0) {
            return &w->known.items[i + 1];
        }
    }
    return NULL;
}

/* True if it is news, which it is then no more. */
static bool take_news(struct watching *w, const char *key, const char *mark)
{
    char **old = find_mark(w, key);
    char *copy;

    if (!old) {
        strlist_add(&w->known, key);
        strlist_add(&w->known, mark);
        return true;
    }
    if (strcmp(*old, mark) == 0) {
        return false;
    }
    copy = strdup(mark);
    if (copy) {
        free(*old);
        *old = copy;
    }
    return true;
}

static void print_news(struct watching *w, const struct live_look *v)
{
    for (size_t i = 0; i < v->lines.n; i++) {
        if (take_news(w, v->keys.items[i], v->marks.items[i])) {
            printf("%s\n", v->lines.items[i]);
        }
    }
}

/* At most `width` columns of a line; colours take none. */
static void put_cut(struct buf *to, const char *line, size_t len, size_t width)
{
    size_t columns = 0;
    bool is_escape = false;

    for (size_t i = 0; i < len; i++) {
        bool starts = ((unsigned char)line[i] & 0xc0) != 0x80;

        is_escape |= line[i] == '\x1b';
        if (!is_escape && starts && ++columns > width) {
            buf_puts(to, "\x1b[0m");
            return;
        }
        buf_putc(to, line[i]);
        is_escape &= line[i] != 'm';
    }
}

/* As much as the terminal can show and the next painting can go back over.
 * Returns the lines. */
static size_t put_screen(struct buf *to, const char *text)
{
    struct winsize size = {0};
    size_t rows, columns, n = 0;

    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    rows = size.ws_row ? size.ws_row : DEFAULT_ROWS;
    columns = size.ws_col ? size.ws_col : DEFAULT_COLUMNS;
    while (*text) {
        size_t len = strcspn(text, "\n");

        if (n + 2 >= rows && text[len] && text[len + 1]) {
            put_cut(to, "...", 3, columns);
            buf_putc(to, '\n');
            return n + 1;
        }
        put_cut(to, text, len, columns);
        buf_putc(to, '\n');
        text += len + (text[len] == '\n');
        n++;
    }
    return n;
}

static void paint(struct watching *w, const struct live_look *v)
{
    _buf_ struct buf now = {0};
    size_t n = put_screen(&now, buf_str(&v->screen));

    if (strcmp(buf_str(&now), buf_str(&w->painted)) == 0) {
        return;
    }
    if (w->n_painted) {
        printf("\x1b[%zuA\r\x1b[J", w->n_painted);
    }
    fputs(buf_str(&now), stdout);
    buf_clear(&w->painted);
    buf_puts(&w->painted, buf_str(&now));
    w->n_painted = n;
}

/* --- waiting --- */

/* A file that is put in place of the old one comes as "moved to". */
static int open_news(const char *dir)
{
    int fd = dir ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;

    if (fd >= 0 && inotify_add_watch(fd, dir, IN_MOVED_TO | IN_ONLYDIR) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Takes all that has come; true if a status was among it. */
static bool read_news(int fd)
{
    char bytes[4096] __attribute__((aligned(8)));
    bool found = false;
    ssize_t n;

    while ((n = read(fd, bytes, sizeof(bytes))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *ev = (const void *)(bytes + at);

            found |= (ev->mask & IN_Q_OVERFLOW) != 0 ||
                     (ev->len && strcmp(ev->name, "status.json") == 0);
            at += (ssize_t)(sizeof(*ev) + ev->len);
        }
    }
    return found;
}

/* Until there may be news; false once nobody reads what is printed. */
static bool wait_for_news(const struct watching *w)
{
    struct pollfd fds[] = {{.fd = STDOUT_FILENO},
                           {.fd = w->news_fd, .events = POLLIN}};
    int left = (int)w->config->period_ms;

    while (left > 0) {
        int pause = left < BURST_MS ? left : BURST_MS;
        int n = poll(fds, 2, left);

        if (n < 0 && errno != EINTR) {
            return false;
        }
        if (n <= 0) {
            return true;
        }
        if (fds[0].revents) {
            return false;
        }
        poll(fds, 1, pause);
        if (read_news(w->news_fd)) {
            return true;
        }
        left -= pause;
    }
    return true;
}

static int look_once(struct watching *w, bool *ret_is_over, struct error *e)
{
    __attribute__((cleanup(view_release))) struct live_look v = {0};
    int rc = w->config->look(w->config->arg, &v, e);

    if (rc < 0) {
        return rc;
    }
    if (v.lines.failed || v.marks.failed || v.keys.failed || v.screen.failed) {
        return error_set(e, ENOMEM, "watch");
    }
    if (w->is_screen) {
        paint(w, &v);
    } else {
        print_news(w, &v);
    }
    *ret_is_over = v.is_over || fflush(stdout) != 0;
    return 0;
}

int live_run(const struct live *config, struct error *e)
{
    struct watching w = {.config = config,
                         .is_screen = isatty(STDOUT_FILENO) &&
                                      !config->has_lines,
                         .news_fd = open_news(config->dir)};
    bool is_over = false;
    int rc;

    do {
        rc = look_once(&w, &is_over, e);
    } while (rc == 0 && !is_over && wait_for_news(&w));
    if (w.news_fd >= 0) {
        close(w.news_fd);
    }
    strlist_release(&w.known);
    buf_release(&w.painted);
    return rc;
}
