/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_progress.h"

#include "base/clock.h"
#include "launcher/ckpt_report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SHOW_EVERY_MS = 200 };

static void show(struct ckpt_progress *p)
{
    uint64_t now = clock_mono_ms(), done = p->done < p->of ? p->done : p->of;
    _buf_ struct buf name = {0};
    char have[32], all[32];

    if (now - p->shown_ms < SHOW_EVERY_MS) {
        return;
    }
    p->shown_ms = now;
    p->is_open = true;
    show_clean(&name, p->name, strlen(p->name));
    ckpt_format_bytes(done, have, sizeof(have));
    ckpt_format_bytes(p->of, all, sizeof(all));
    fprintf(stderr, "\rmuster: reading %s: %s of %s, %.0f%%\033[K", buf_str(&name), have,
            all, p->of ? 100.0 * (double)done / (double)p->of : 100.0);
}

static ssize_t read_and_show(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    struct ckpt_progress *p = (struct ckpt_progress *)io;
    ssize_t n = io_system()->ops->read(io_system(), fd, to, len, at);

    p->done += n > 0 ? (uint64_t)n : 0;
    show(p);
    return n;
}

struct io *ckpt_progress_start(struct ckpt_progress *p, const char *name, uint64_t of)
{
    *p = (struct ckpt_progress){.ops = *io_system()->ops, .name = name, .of = of};
    p->ops.read = read_and_show;
    p->io.ops = &p->ops;
    return isatty(STDERR_FILENO) ? &p->io : io_system();
}

void ckpt_progress_end(struct ckpt_progress *p)
{
    if (p->is_open) {
        fputs("\r\033[K", stderr);
        p->is_open = false;
    }
}
