/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/wire.h"
#include "rendezvous/tree_msg.h"

#include <string.h>

enum {
    MAX_UNREAD_BYTES = 1 << 20,           /* that nobody has read: no more output then */
    LEAVE_MS = 2000,                      /* for the last words, with nobody to wait for */
    CREDIT_BYTES = TREE_WINDOW_BYTES / 2, /* at a time: who sends stops at all of it */
};

/* No more than a bounded amount of output is taken that nobody reads, a pager
 * or a stopped terminal: the workers wait then, as they would on a pipe of
 * their own. What is left at the end is bounded by what agents hold. */
void front_give_credit(struct front *f)
{
    _buf_ struct buf b = {0};

    if (!f->lead || !f->n_owed ||
        (f->phase != FRONT_OVER &&
         writer_pending(f->writer) > MAX_UNREAD_BYTES)) {
        return;
    }
    wire_put_u32(&b, (uint32_t)f->n_owed);
    link_send_buf(f->lead, TREE_CREDIT, &b);
    f->n_owed = 0;
}

void front_on_room(void *arg)
{
    front_give_credit(arg);
}

void front_tell_unread(struct front *f)
{
    int error = writer_error(f->writer, 1);

    if (error && !f->told_unread) {
        f->told_unread = true;
        screen_note(f->screen, "standard output: %s; the run goes on, and what "
                    "workers print is in %s/logs", strerror(error),
                    f->config->dir->path);
    }
}

void front_take_output(struct front *f, const struct channel_frame *frame)
{
    struct tree_output o;

    if (tree_output_decode(frame->data, frame->len, &o) == 0) {
        screen_output(f->screen, &o);
    }
    f->n_owed += frame->len;
    if (f->n_owed >= CREDIT_BYTES) {
        front_give_credit(f);
    }
}

static bool is_late(const struct front *f)
{
    return f->leaves_ms && front_now_ms(f) - f->leaves_ms > LEAVE_MS;
}

void front_hurry(struct front *f)
{
    if (!f->leaves_ms) {
        f->leaves_ms = front_now_ms(f);
    }
}

void front_drain_output(struct front *f)
{
    f->is_ending = true;
    while (writer_pending(f->writer) && !is_late(f)) {
        uv_run(&f->loop, UV_RUN_ONCE);
    }
}
