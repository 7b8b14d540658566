/* SPDX-License-Identifier: Apache-2.0 */
/* Every wait ends when the segment is aborted, or when the agent hangs up. */
#include <config.h>

#include "comm/shm_priv.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

enum {
    YIELDS = 50,
    SLEEP_MS = 100, /* longest, between looks at the agent's socket */
};

int shm_check_abort(const struct shm *s, struct error *e)
{
    char why[SEGMENT_WHY_SIZE];
    enum segment_abort_code code = segment_aborted(s->seg, NULL);

    if (code == SEGMENT_OK) {
        return 0;
    }
    segment_aborted(s->seg, why);
    return error_text(e, code == SEGMENT_ABORT_MISMATCH ? EINVAL : ECONNABORTED,
                      "%s", why);
}

static int check_agent(const struct shm *s, struct error *e)
{
    struct pollfd p = {.fd = s->agent_fd, .events = POLLRDHUP};

    if (s->agent_fd < 0 || poll(&p, 1, 0) <= 0 ||
        !(p.revents & (POLLHUP | POLLRDHUP | POLLERR))) {
        return 0;
    }
    segment_abort(s->seg, SEGMENT_ABORT_LOST, "the agent of this node is gone");
    return shm_check_abort(s, e);
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Nobody gets any further if one that is waited for has ended. */
static int abort_left(const struct shm *s, const struct segment_worker *w,
                      struct error *e)
{
    char why[SEGMENT_WHY_SIZE];

    segment_say_left(s->seg, (uint32_t)(w - s->workers), why);
    segment_abort(s->seg, SEGMENT_ABORT_LOST, why);
    return shm_check_abort(s, e);
}

int shm_wait_counter(const struct shm *s, struct segment_worker *w,
                     const _Atomic uint64_t *counter, uint64_t target,
                     struct error *e)
{
    struct segment_event *ev = w ? &w->event : &s->seg->head->mover;

    for (int i = 0; i < s->spins + YIELDS; i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= target) {
            return 0;
        }
        if (i < s->spins) {
            pause_cpu();
        } else {
            sched_yield();
        }
    }
    for (;;) {
        uint32_t seen = atomic_load(&ev->word);
        bool has_left = w && atomic_load(&w->left);
        int rc;

        if (atomic_load(counter) >= target) {
            return 0;
        }
        rc = shm_check_abort(s, e);
        if (rc == 0) {
            rc = has_left ? abort_left(s, w, e) : check_agent(s, e);
        }
        if (rc < 0) {
            return rc;
        }
        segment_event_sleep(ev, seen, SLEEP_MS);
    }
}

uint32_t shm_who_lags(const struct shm *s, enum segment_stage stage,
                      uint64_t target)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (atomic_load_explicit(&s->workers[i].through[stage],
                                 memory_order_acquire) < target) {
            return i;
        }
    }
    return s->n;
}

int shm_wait_workers(const struct shm *s, enum segment_stage stage,
                     uint64_t target, struct error *e)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct segment_worker *w = &s->workers[i];
        int rc = shm_wait_counter(s, w, &w->through[stage], target, e);

        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}
