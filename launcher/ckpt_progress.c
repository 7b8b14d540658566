/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_progress.h"

#include "base/clock.h"
#include "launcher/ckpt_report.h"
#include "launcher/ckpt_stop.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REDRAW_MS = 200, FIRST_MS = 10000, MOST_MS = 600000 };

/* --- a line --- */

static void begin(struct ckpt_line *l, uint64_t now)
{
    const char *term = getenv("TERM");

    l->is_begun = true;
    l->is_terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    l->began_ms = now;
    l->pause_ms = FIRST_MS;
    l->next_ms = l->is_terminal ? now : now + FIRST_MS;
}

bool ckpt_line_is_due(struct ckpt_line *l)
{
    uint64_t now = clock_mono_ms();

    if (!l->is_begun) {
        begin(l, now);
    }
    return now >= l->next_ms;
}

static void put(struct ckpt_line *l, const char *text)
{
    if (!l->is_terminal) {
        l->pause_ms = l->pause_ms < MOST_MS / 2 ? 2 * l->pause_ms : MOST_MS;
    }
    l->next_ms = clock_mono_ms() + (l->is_terminal ? REDRAW_MS : l->pause_ms);
    fprintf(stderr, l->is_terminal ? "\rmuster: %s\033[K" : "muster: %s\n", text);
    l->is_open = l->is_terminal;
}

void ckpt_line_bytes(struct ckpt_line *l, const char *doing, const char *name,
                     uint64_t done, uint64_t of)
{
    _buf_ struct buf text = {0};
    uint64_t took_ms;
    char have[32], all[32], rate[32];

    if (!ckpt_line_is_due(l)) {
        return;
    }
    took_ms = clock_mono_ms() - l->began_ms + 1;
    done = of && done > of ? of : done;
    ckpt_format_bytes(done, have, sizeof(have));
    ckpt_format_bytes(of, all, sizeof(all));
    ckpt_format_bytes((uint64_t)((double)done * 1000 / (double)took_ms), rate,
                      sizeof(rate));
    buf_printf(&text, "%s%s", doing, name ? " " : "");
    if (name) {
        show_clean(&text, name, strlen(name));
    }
    buf_printf(&text, ": %s", have);
    if (of) {
        buf_printf(&text, " of %s, %.0f%%", all, 100.0 * (double)done / (double)of);
    }
    buf_printf(&text, ", %s/s", rate);
    put(l, buf_str(&text));
}

void ckpt_line_count(struct ckpt_line *l, const char *doing, uint64_t done, uint64_t of)
{
    _buf_ struct buf text = {0};

    if (ckpt_line_is_due(l)) {
        buf_printf(&text, "%s: %" PRIu64 " of %" PRIu64, doing, done, of);
        put(l, buf_str(&text));
    }
}

void ckpt_line_text(struct ckpt_line *l, const char *text)
{
    if (ckpt_line_is_due(l)) {
        put(l, text);
    }
}

void ckpt_line_hide(struct ckpt_line *l)
{
    if (l->is_open) {
        fputs("\r\033[K", stderr);
        l->is_open = false;
    }
}

void ckpt_line_end(struct ckpt_line *l)
{
    ckpt_line_hide(l);
    *l = (struct ckpt_line){0};
}

/* --- reading --- */

static ssize_t read_and_show(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    struct ckpt_progress *p = (struct ckpt_progress *)io;
    ssize_t n = ckpt_stop_came() ? -ECANCELED
                                 : io_system()->ops->read(io_system(), fd, to, len, at);

    p->done += n > 0 ? (uint64_t)n : 0;
    ckpt_line_bytes(&p->line, p->doing, p->name, p->done, p->of);
    return n;
}

struct io *ckpt_progress_start(struct ckpt_progress *p, const char *doing,
                               const char *name, uint64_t of)
{
    *p = (struct ckpt_progress){.ops = *io_system()->ops, .doing = doing, .name = name,
                                .of = of};
    p->ops.read = read_and_show;
    p->io.ops = &p->ops;
    return &p->io;
}

void ckpt_progress_end(struct ckpt_progress *p)
{
    ckpt_line_end(&p->line);
}
