/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/output_bed.h"

#include "base/clock.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void view_bed_up(void)
{
    char dir[] = "/tmp/output-test.XXXXXX";

    if (!mkdtemp(dir) || chdir(dir) < 0) {
        bail_out("no temporary directory");
    }
}

void view_bed_down(void)
{
    char dir[PATH_MAX];

    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    is_int(uv_loop_close(uv_default_loop()), 0, "nothing is left on the loop");
    if (getcwd(dir, sizeof(dir))) {
        fs_remove_tree(dir, NULL);
    }
}

static void on_sink(void *arg, uint32_t rank, enum output_which which,
                    enum output_piece piece, const char *data, size_t len)
{
    struct view *v = arg;

    (void)rank;
    (void)which;
    buf_append(&v->got, data, len);
    v->largest = len > v->largest ? len : v->largest;
    if (v->n_pieces < sizeof(v->pieces) - 1) {
        v->pieces[v->n_pieces] = "LCE"[piece];
    }
    v->n_pieces++;
    if (v->pause_after && v->n_pieces >= v->pause_after) {
        v->pause_after = 0;
        output_pause(v->o);
    }
}

static void on_trouble(void *arg, enum output_trouble what, uint64_t lost,
                       const char *text)
{
    struct view *v = arg;
    size_t n = strlen(v->troubles);

    if (n < sizeof(v->troubles) - 1) {
        v->troubles[n] = "USR"[what];
    }
    v->lost = lost;
    snprintf(v->text, sizeof(v->text), "%s", text);
}

void view_on_closed(void *arg)
{
    ((struct view *)arg)->n_closed++;
}

static void on_done(void *arg, bool all_done)
{
    struct view *v = arg;

    v->n_done++;
    v->all_done = all_done;
}

void view_start(struct view *v, struct output_config c)
{
    struct error e = {0};

    memset(v, 0, sizeof(*v));
    c.sink = on_sink;
    c.on_trouble = on_trouble;
    c.arg = v;
    if (output_create(uv_default_loop(), &c, &v->o, &e) < 0) {
        bail_out("%s", e.text);
    }
}

int view_open(struct view *v, const char *path,
                       struct output_stream **ret)
{
    struct output_source from = {.rank = 3, .which = OUTPUT_STDERR};
    struct error e = {0};
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0 || fcntl(p[1], F_SETFL, O_NONBLOCK) < 0 ||
        output_open(v->o, p[0], &from, path, ret, &e) < 0) {
        bail_out("no stream: %s", e.text);
    }
    return p[1];
}

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

void view_turn(unsigned ms)
{
    uint64_t until = clock_mono_ms() + ms;
    uv_timer_t t;

    uv_timer_init(uv_default_loop(), &t);
    uv_timer_start(&t, on_tick, 1, 1);
    do {
        uv_run(uv_default_loop(), UV_RUN_ONCE);
    } while (clock_mono_ms() < until);
    uv_close((uv_handle_t *)&t, NULL);
    uv_run(uv_default_loop(), UV_RUN_NOWAIT);
}

void view_finish(struct view *v, unsigned deadline_ms)
{
    output_destroy(v->o, deadline_ms, on_done, v);
    view_turn_until(v->n_done);
    is_int(v->n_done, 1, "destroyed");
}

void view_put(int fd, const char *s)
{
    if (fs_write_all(fd, s, strlen(s)) < 0) {
        bail_out("pipe is full");
    }
}

char *view_file(const char *name)
{
    char *text = NULL;

    fs_read(name, 64 << 20, &text, NULL, NULL);
    return text;
}
