/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/progress.h"

#include "base/clock.h"
#include "base/fs.h"
#include "launcher/show.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    REDRAW_MS = 100,        /* on a terminal */
    PLAIN_MS = 10000,       /* elsewhere */
    DEFAULT_COLUMNS = 80,
    MAX_PARTS = 8,
    MAX_HELD = 65536,       /* of one line without an end */
    MAX_SOURCES = 65536,
};

/* What a source printed since its last newline. */
struct held {
    struct progress_source from;
    struct buf text;    /* behind its label */
};

struct progress {
    int out_fd, err_fd;
    bool is_live;       /* err_fd is a terminal */
    bool shares_screen; /* out_fd is one too: stdout tears the line as well */
    bool is_drawn;
    void (*sink)(void *arg, int fd, struct buf *data);
    void *sink_arg;
    struct buf out;     /* lines with their labels, on their way */
    int failed[2];      /* errno of writing to out, err */
    uint64_t shown_ms;
    bool has_shown;
    struct buf line;    /* as last rendered */
    char key[160];      /* what the last plain line was about */
    struct held *held;
    size_t n_held;
};

struct progress_view progress_view(const struct run_status *s,
                                   uint64_t elapsed_ms)
{
    struct progress_view v = {
        .name = s->name,
        .state = status_run_name(s->state),
        .generation = s->generation,
        .n_workers = (int)s->n_workers,
        .n_nodes = (int)s->n_nodes,
        .restarts = s->restarts,
        .max_restarts = s->max_restarts,
        .step = s->step,
        .elapsed_ms = elapsed_ms,
    };

    for (size_t i = 0; i < s->n_workers; i++) {
        v.n_alive += s->workers[i].state == STATUS_WORKER_RUNNING ||
                     s->workers[i].state == STATUS_WORKER_STOPPING;
    }
    for (size_t i = 0; i < s->n_metrics; i++) {
        if (strcmp(s->metrics[i].name, "loss") == 0) {
            v.has_loss = true;
            v.loss = s->metrics[i].value;
        }
    }
    return v;
}

/* One piece of the line; the higher `rank`, the sooner it is left out. */
struct part {
    int rank;
    char text[128];
};

static void add_part(struct part *parts, size_t *n, int rank, const char *fmt,
                     ...) __attribute__((format(printf, 4, 5)));

static void add_part(struct part *parts, size_t *n, int rank, const char *fmt,
                     ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(parts[*n].text, sizeof(parts[*n].text), fmt, ap);
    va_end(ap);
    parts[(*n)++].rank = rank;
}

static size_t make_parts(const struct progress_view *v, struct part *parts)
{
    char span[32];
    size_t n = 0;

    clock_format_span(v->elapsed_ms, span, sizeof(span));
    add_part(parts, &n, 5, "%.63s", v->name);
    add_part(parts, &n, 0, "%s", v->state);
    if (v->n_workers) {
        add_part(parts, &n, 1, "%d/%d workers", v->n_alive, v->n_workers);
    }
    if (v->step >= 0) {
        add_part(parts, &n, 2, "step %" PRId64, v->step);
    }
    if (v->has_loss) {
        add_part(parts, &n, 3, "loss %.4g", v->loss);
    }
    if (v->restarts) {
        add_part(parts, &n, 6, "restarts %d/%d", v->restarts, v->max_restarts);
    }
    if (v->generation > 1) {
        add_part(parts, &n, 7, "generation %d", v->generation);
    }
    add_part(parts, &n, 4, "%s", span);
    return n;
}

static size_t parts_width(const struct part *parts, size_t n, int limit)
{
    size_t width = 0;

    for (size_t i = 0; i < n; i++) {
        if (parts[i].rank <= limit) {
            width += show_width(parts[i].text) + (width ? 2 : 0);
        }
    }
    return width;
}

/* At most `width` columns of a text; never part of a character. */
static size_t cut_at(const char *s, size_t width)
{
    size_t i = 0;

    for (size_t n = 0; s[i]; i++) {
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
        if (n > width) {
            break;
        }
    }
    return i;
}

void progress_line(const struct progress_view *v, size_t width, struct buf *to)
{
    struct part parts[MAX_PARTS];
    size_t n = make_parts(v, parts);
    int limit = MAX_PARTS;
    bool is_first = true;

    while (limit > 0 && parts_width(parts, n, limit) > width) {
        limit--;
    }
    for (size_t i = 0; i < n; i++) {
        if (parts[i].rank <= limit) {
            buf_puts(to, is_first ? "" : "  ");
            show_clean(to, parts[i].text, cut_at(parts[i].text, width));
            is_first = false;
        }
    }
}

struct progress *progress_create(int out_fd, int err_fd)
{
    struct progress *p = calloc(1, sizeof(*p));
    const char *term = getenv("TERM");

    if (!p) {
        return NULL;
    }
    p->out_fd = out_fd;
    p->err_fd = err_fd;
    p->is_live = isatty(err_fd) && term && strcmp(term, "dumb") != 0;
    p->shares_screen = p->is_live && isatty(out_fd);
    return p;
}

void progress_set_sink(struct progress *p,
                       void (*sink)(void *arg, int fd, struct buf *data),
                       void *arg)
{
    p->sink = sink;
    p->sink_arg = arg;
}

static void write_buf(struct progress *p, bool is_err, struct buf *b)
{
    if (p->sink) {
        p->sink(p->sink_arg, is_err ? p->err_fd : p->out_fd, b);
        return;
    }
    if (!p->failed[is_err]) {
        p->failed[is_err] = -fs_write_all(is_err ? p->err_fd : p->out_fd,
                                          b->data, b->len);
    }
    buf_clear(b);
}

static void write_to(struct progress *p, bool is_err, const char *data,
                     size_t len)
{
    _buf_ struct buf b = {0};

    buf_append(&b, data, len);
    write_buf(p, is_err, &b);
}

static size_t columns(const struct progress *p)
{
    struct winsize size;

    if (ioctl(p->err_fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
        return size.ws_col - 1u; /* the last column may wrap */
    }
    return DEFAULT_COLUMNS - 1;
}

static void take_away(struct progress *p)
{
    if (p->is_drawn) {
        write_to(p, true, "\r\x1b[K", 4);
        p->is_drawn = false;
    }
}

static void draw(struct progress *p)
{
    if (p->is_live && p->line.len && !p->is_drawn) {
        write_to(p, true, p->line.data, p->line.len);
        p->is_drawn = true;
    }
}

void progress_destroy(struct progress *p)
{
    if (!p) {
        return;
    }
    progress_flush(p);
    take_away(p);
    buf_release(&p->line);
    buf_release(&p->out);
    free(p->held);
    free(p);
}

/* What makes a plain line worth printing before its time. */
static void make_key(const struct progress_view *v, char *to, size_t size)
{
    snprintf(to, size, "%.100s %d %d %d", v->state, v->generation,
             v->n_workers, v->restarts);
}

void progress_update(struct progress *p, const struct progress_view *v,
                     uint64_t now_ms)
{
    char key[sizeof(p->key)];
    bool has_changed;

    make_key(v, key, sizeof(key));
    has_changed = strcmp(key, p->key) != 0;
    if (p->has_shown && !has_changed &&
        now_ms - p->shown_ms < (p->is_live ? REDRAW_MS : PLAIN_MS)) {
        return;
    }
    memcpy(p->key, key, sizeof(key));
    p->shown_ms = now_ms;
    p->has_shown = true;
    buf_clear(&p->line);
    progress_line(v, p->is_live ? columns(p) : SIZE_MAX, &p->line);
    if (p->is_live) {
        take_away(p);
        draw(p);
    } else {
        progress_note(p, "%s", buf_str(&p->line));
    }
}

/* Of whatever generation. */
static struct held *find_held(struct progress *p,
                              const struct progress_source *from)
{
    for (size_t i = 0; i < p->n_held; i++) {
        if (p->held[i].from.stream == from->stream &&
            p->held[i].from.is_err == from->is_err) {
            return &p->held[i];
        }
    }
    return NULL;
}

static void drop_held(struct progress *p, struct held *h)
{
    buf_release(&h->text);
    *h = p->held[--p->n_held];
}

/* Keeps the end of what came until the rest of the line does; false if there is
 * no room to. */
static bool hold(struct progress *p, const struct progress_source *from,
                 const char *label, const char *data, size_t len)
{
    struct held *h = find_held(p, from);

    if (!h && p->n_held < MAX_SOURCES) {
        /* Grown by powers of two. */
        if ((p->n_held & (p->n_held - 1)) == 0) {
            size_t cap = p->n_held ? 2 * p->n_held : 1;

            h = reallocarray(p->held, cap, sizeof(*h));
            if (!h) {
                return false;
            }
            p->held = h;
        }
        h = &p->held[p->n_held++];
        *h = (struct held){.from = *from};
    }
    if (!h || h->text.len + len > MAX_HELD) {
        return false;
    }
    if (!h->text.len) {
        buf_puts(&h->text, label);
    }
    buf_append(&h->text, data, len);
    return true;
}

/* The buffer is empty afterwards. */
static void print_chunk(struct progress *p, bool is_err, struct buf *b)
{
    bool tears = is_err ? p->is_live : p->shares_screen;

    if (!b->len) {
        return;
    }
    if (tears) {
        take_away(p);
    }
    write_buf(p, is_err, b);
    if (tears) {
        draw(p);
    }
}

static void add_line(struct buf *to, const char *label, size_t label_len,
                     const char *line, size_t len)
{
    char *at = buf_reserve(to, label_len + len);

    if (at) {
        memcpy(at, label, label_len);
        memcpy(at + label_len, line, len);
        at[label_len + len] = '\0';
        to->len += label_len + len;
    }
}

static void end_held(struct progress *p, struct held *h, struct buf *to)
{
    buf_append(to, h->text.data, h->text.len);
    buf_putc(to, '\n');
    drop_held(p, h);
}

void progress_output(struct progress *p, const struct progress_source *from,
                     const char *label, const char *data, size_t len)
{
    struct held *h = find_held(p, from);
    size_t label_len = strlen(label);
    struct buf *out = &p->out;

    if (h && h->from.generation != from->generation) {
        /* Its node was lost, or the worker killed, before the rest came. */
        end_held(p, h, out);
        h = NULL;
    }
    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) + 1 : len;

        if (!end && hold(p, from, label, data, n)) {
            break;
        }
        if (h) {
            buf_append(out, h->text.data, h->text.len);
            buf_append(out, data, n);
            drop_held(p, h);
            h = NULL;
        } else {
            add_line(out, label, label_len, data, n);
        }
        if (!end) {
            buf_putc(out, '\n');
        }
        data += n;
        len -= n;
    }
    out->failed = false; /* without memory some lines are not shown */
    print_chunk(p, from->is_err, out);
}

void progress_flush(struct progress *p)
{
    while (p->n_held) {
        bool is_err = p->held[0].from.is_err;
        _buf_ struct buf out = {0};

        end_held(p, &p->held[0], &out);
        print_chunk(p, is_err, &out);
    }
}

int progress_error(const struct progress *p)
{
    return p->failed[0];
}

void progress_note(struct progress *p, const char *fmt, ...)
{
    _buf_ struct buf text = {0}, clean = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    buf_puts(&clean, "muster: ");
    show_clean(&clean, buf_str(&text), text.len);
    buf_putc(&clean, '\n');
    print_chunk(p, true, &clean);
}
