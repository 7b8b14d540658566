/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter on a loop: answers, and a filesystem that hangs: link() is the
 * test's own, and waits until it is let go.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/thread.h"
#include "launcher/arbiter.h"
#include "launcher/rundir.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN "20261122-101500-abcdef"

enum { PATIENCE_MS = 60000, SHORT_MS = 50 };

static char dir[] = "/tmp/muster-arbiter-test-XXXXXX";
static const uint8_t nonce[RUNDIR_NONCE_BYTES] = {7}, other[RUNDIR_NONCE_BYTES] = {8};
static const struct view_place place = {dir, RUN, 1, nonce};

static uv_sem_t gate; /* link() waits for it ... */
static bool hangs;    /* ... where it hangs */
static uv_sem_t reached, passed;
static int here;      /* open, for all but those with a table of their own */
static bool is_apart; /* link() saw that it had one */

int __wrap_link(const char *from, const char *to);
int __real_link(const char *from, const char *to);

int __wrap_link(const char *from, const char *to)
{
    bool waits = __atomic_load_n(&hangs, __ATOMIC_SEQ_CST);
    int rc;

    if (waits) {
        uv_sem_post(&reached);
        uv_sem_wait(&gate);
    }
    __atomic_store_n(&is_apart, fcntl(here, F_GETFD) < 0, __ATOMIC_SEQ_CST);
    rc = __real_link(from, to);
    if (waits) {
        uv_sem_post(&passed);
    }
    return rc;
}

static struct {
    uv_loop_t *loop;
    int n;
    enum arbiter_answer answer[16];
    uint32_t number[16];
    uint32_t lead;
    char text[128];
} heard;

static void on_answer(void *arg, enum arbiter_answer answer, uint32_t number,
                      const struct view *view, const char *text)
{
    (void)arg;
    heard.answer[heard.n % 16] = answer;
    heard.number[heard.n++ % 16] = number;
    heard.lead = view->lead;
    snprintf(heard.text, sizeof(heard.text), "%s", text);
    uv_stop(heard.loop); /* or it would wait in the same turn for more */
}

static void on_deadline(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

static bool wait_for(uv_loop_t *loop, int n)
{
    bool late = false;
    uv_timer_t deadline;

    uv_timer_init(loop, &deadline);
    deadline.data = &late;
    uv_timer_start(&deadline, on_deadline, PATIENCE_MS, 0);
    while (heard.n < n && !late) {
        uv_run(loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&deadline, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
    return heard.n >= n;
}

static struct arbiter *make(uv_loop_t *loop, uint64_t timeout_ms)
{
    struct arbiter *a = NULL;

    memset(&heard, 0, sizeof(heard));
    heard.loop = loop;
    uv_loop_init(loop);
    if (arbiter_create(loop, &place, timeout_ms, on_answer, NULL, &a, NULL) < 0) {
        bail_out("arbiter_create");
    }
    return a;
}

static void end(uv_loop_t *loop, struct arbiter *a)
{
    arbiter_destroy(a);
    uv_run(loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(loop), 0, "nothing is left on the loop");
}

static struct view view_of(uint32_t number, uint32_t lead)
{
    struct view v = {.number = number, .lead = lead};
    bool in[4] = {0};

    in[lead] = true;
    if (view_set(&v, in, lead + 1) < 0) {
        bail_out("out of memory");
    }
    return v;
}

static void test_answers(void)
{
    uv_loop_t loop;
    struct arbiter *a = make(&loop, PATIENCE_MS);
    _view_ struct view mine = view_of(2, 1), theirs = view_of(2, 3);

    arbiter_claim(a, &mine, NULL);
    ok(wait_for(&loop, 1) && heard.answer[0] == ARBITER_WON, "a claim is won");
    arbiter_claim(a, &theirs, NULL);
    ok(wait_for(&loop, 2) && heard.answer[1] == ARBITER_LOST &&
       heard.number[1] == 2, "another is lost");
    is_int(heard.lead, 1, "to the first");
    end(&loop, a);
}

static void test_shared(void)
{
    uv_loop_t loop;
    struct arbiter *a = make(&loop, PATIENCE_MS);
    _view_ struct view mine = view_of(9, 1);
    char path[PATH_MAX];

    arbiter_check(a, NULL);
    ok(wait_for(&loop, 1) && heard.answer[0] == ARBITER_SHARED,
       "a directory with the nonce is shared");
    rundir_write_nonce(dir, other, NULL);
    arbiter_check(a, NULL);
    ok(wait_for(&loop, 2) && heard.answer[1] == ARBITER_OTHER,
       "one with another is not");
    arbiter_claim(a, &mine, NULL);
    ok(wait_for(&loop, 3) && heard.answer[2] == ARBITER_UNKNOWN &&
       strstr(heard.text, dir) && strstr(heard.text, "is not the directory of this run"),
       "and nothing is claimed there");
    snprintf(path, sizeof(path), "%s/nonce", dir);
    unlink(path);
    arbiter_check(a, NULL);
    ok(wait_for(&loop, 4) && heard.answer[3] == ARBITER_OTHER,
       "one without any is another one");
    rundir_write_nonce(dir, nonce, NULL);
    end(&loop, a);
}

static void test_error(void)
{
    uv_loop_t loop;
    struct arbiter *a = make(&loop, PATIENCE_MS);
    _view_ struct view v = view_of(9, 1);
    char path[64];

    snprintf(path, sizeof(path), "%s/views/1.9", dir);
    fs_write_replace(path, "x", 1, NULL);
    arbiter_claim(a, &v, NULL);
    ok(wait_for(&loop, 1) && heard.answer[0] == ARBITER_UNKNOWN,
       "what does not parse is no answer");
    like(heard.text, "views/1.9", "and named");
    end(&loop, a);
}

/* It hangs for longer than anybody waits; what was asked comes to be. */
static void test_hang(void)
{
    uv_loop_t loop;
    struct arbiter *a = make(&loop, SHORT_MS);
    _view_ struct view v = view_of(3, 1);
    struct error e = {0};
    int n_busy = 0;

    __atomic_store_n(&hangs, true, __ATOMIC_SEQ_CST);
    arbiter_claim(a, &v, NULL);
    ok(wait_for(&loop, 1) && heard.answer[0] == ARBITER_UNKNOWN &&
       heard.number[0] == 3, "who hangs gives no answer in time");
    like(heard.text, "does not answer", "which is said");
    uv_sem_post(&gate);
    ok(wait_for(&loop, 2) && heard.answer[1] == ARBITER_WON,
       "the late one is told, too");
    uv_sem_wait(&passed);
    ok(__atomic_load_n(&is_apart, __ATOMIC_SEQ_CST) == thread_can_be_apart(),
       "no child gets what is open there");
    for (int i = 0; i < 9; i++) {
        n_busy += arbiter_claim(a, &v, &e) == -EBUSY;
    }
    is_int(n_busy, 1, "no more than eight may hang");
    ok(wait_for(&loop, 10), "each is late");
    /* The first has long been through. A thread that is still on its way there opens
     * and closes files in this process where it could not get a table of its own, and
     * to a sanitizer the numbers would be those that the loop gives up meanwhile. */
    for (int i = 0; i < 1 + 8; i++) {
        uv_sem_wait(&reached);
    }
    end(&loop, a);
    for (int i = 0; i < 8; i++) {
        uv_sem_post(&gate);
    }
    for (int i = 0; i < 8; i++) {
        uv_sem_wait(&passed);
    }
    is_int(heard.n, 10, "nobody is called once the arbiter is gone");
    __atomic_store_n(&hangs, false, __ATOMIC_SEQ_CST);
}

/* A claim was made twice, as it was not answered; the first of them is, and the next
 * view is claimed. What comes of the second says nothing of that one. */
static void test_late_twin(void)
{
    uv_loop_t loop;
    struct arbiter *a = make(&loop, SHORT_MS);
    _view_ struct view first = view_of(4, 1), next = view_of(5, 1);

    __atomic_store_n(&hangs, true, __ATOMIC_SEQ_CST);
    arbiter_claim(a, &first, NULL);
    ok(wait_for(&loop, 1) && heard.answer[0] == ARBITER_UNKNOWN, "no answer");
    arbiter_claim(a, &first, NULL);
    ok(wait_for(&loop, 2) && heard.answer[1] == ARBITER_UNKNOWN, "nor again");
    uv_sem_post(&gate);
    ok(wait_for(&loop, 3) && heard.answer[2] == ARBITER_WON, "then it is won");
    uv_sem_wait(&passed);
    uv_sem_post(&gate);
    uv_sem_wait(&passed);
    arbiter_claim(a, &next, NULL);
    ok(wait_for(&loop, 4) && heard.answer[3] == ARBITER_UNKNOWN &&
       heard.number[3] == 5, "the next view is not");
    uv_sem_post(&gate);
    uv_sem_wait(&passed);
    ok(wait_for(&loop, 5) && heard.answer[4] == ARBITER_WON &&
       heard.number[4] == 5, "before its own claim is answered");
    end(&loop, a);
    is_int(heard.n, 5, "the second answer to the first is not told");
    __atomic_store_n(&hangs, false, __ATOMIC_SEQ_CST);
}

int main(void)
{
    if (!mkdtemp(dir) || uv_sem_init(&gate, 0) < 0 ||
        uv_sem_init(&reached, 0) < 0 || uv_sem_init(&passed, 0) < 0) {
        bail_out("set up");
    }
    rundir_write_nonce(dir, nonce, NULL);
    here = fcntl(2, F_DUPFD_CLOEXEC, 100); /* of no number that they use */
    test_answers();
    test_shared();
    test_error();
    test_hang();
    test_late_twin();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
