/* SPDX-License-Identifier: Apache-2.0 */
/* The C API of checkpoints, by one rank. */
#include <config.h>

#include "ckpt/api_bed.h"

#include "base/cleanup.h"
#include "ckpt/copy.h"
#include "ckpt/io.h"
#include "ckpt/save_priv.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static char root[API_BED_ROOT_BYTES];

static void test_alone(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "alone", NULL, NULL);
    float w[6] = {1, 2, 3, 4, 5, 6}, column[2];
    const uint64_t shape[2] = {2, 3}, at[2] = {0, 1}, len[2] = {2, 1};
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32,
                                   .n_dims = 2, .shape = shape, .data = w};
    char json[] = "{\"lr\": 0.5}", rng[] = "abcd", text[100] = "";
    uint64_t save = 0;
    int64_t step = -1;
    size_t n = 0;

    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), -ENOENT,
           "nothing to load");
    is_int(muster_ckpt_tensor(ck, &t), 0, "a tensor");
    is_int(muster_ckpt_blob(ck, "config", json, strlen(json), MUSTER_JSON), 0,
           "JSON");
    is_int(muster_ckpt_blob(ck, "rng", rng, 4, MUSTER_PER_RANK), 0, "a blob");
    is_int(muster_ckpt_save(ck, 10, 0, &save), 0, "a save: %s",
           muster_ckpt_error_text(ck));
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_DURABLE), 1, "durable");
    is_int(muster_ckpt_test(ck, save, (enum muster_ckpt_level)9), -EINVAL, "no such level");
    is_int(muster_ckpt_wait(ck, 0, MUSTER_CKPT_SNAPSHOT, 0), 0, "as the newest");
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_REMOTE), -ENOTSUP, "no store");
    is_int(muster_ckpt_test(ck, save + 1, MUSTER_CKPT_DURABLE), -EINVAL,
           "none such");
    memset(w, 0, sizeof(w));
    memset(rng, 0, 4);
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "loaded: %s",
           muster_ckpt_error_text(ck));
    is_int(step, 10, "its step");
    ok(w[0] == 1 && w[5] == 6 && memcmp(rng, "abcd", 4) == 0, "its bytes");
    t = (struct muster_ckpt_tensor){.name = "w", .dtype = MUSTER_F32,
                                    .n_dims = 2, .shape = shape, .at = at,
                                    .len = len, .data = column};
    is_int(muster_ckpt_read(ck, 10, &t), 0, "a column");
    ok(column[0] == 2 && column[1] == 5, "its elements");
    is_int(muster_ckpt_read_blob(ck, 10, "config", text, sizeof(text), &n), 0,
           "JSON comes back");
    is_str(text, "{\"lr\":0.5}", "as JSON");
    is_int(muster_ckpt_read_blob(ck, 10, "rng", NULL, 0, &n), 0, "how long");
    is_int((int)n, 4, "that long");
    is_int(muster_ckpt_read_blob(ck, 10, "none", NULL, 0, &n), -ENODATA,
           "no such blob");
    like(muster_ckpt_error_text(ck), "blob 'none' is not in it", "named");
    muster_ckpt_close(ck);
}

static void test_newest(void)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 2,
                                    .every_steps = 5};
    struct muster_ckpt *ck = api_bed_open(root, "newest", NULL, &o);
    int32_t v = 0;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32,
                                   .data = &v};
    int64_t step = -1;

    is_int(muster_ckpt_tensor(ck, &t), 0, "a number");
    for (v = 1; v <= 4; v++) {
        is_int(muster_ckpt_save(ck, v * 10, MUSTER_CKPT_WAIT, NULL), 0,
               "step %d", v * 10);
    }
    v = 50;
    is_int(muster_ckpt_save(ck, 40, 0, NULL), 0, "one of the same step");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "the newest");
    is_int(step, 40, "its step");
    is_int(muster_ckpt_load(ck, 40, 0, NULL), 0, "loaded");
    is_int(v, 50, "the later one of that step");
    is_int(muster_ckpt_latest(ck, 30, &step), -ENOENT, "only two are kept");
    is_int(muster_ckpt_load(ck, 10, 0, NULL), -ENOENT, "one that is gone");
    like(muster_ckpt_error_text(ck), "no checkpoint", "said");
    v = 7;
    is_int(muster_ckpt_save(ck, 5, 0, NULL), 0, "an older step");
    is_int(muster_ckpt_load(ck, 5, 0, &step), 0, "it is not removed itself");
    is_int(muster_ckpt_due(ck, 10), MUSTER_CKPT_BY_STEPS, "due by steps");
    is_int(muster_ckpt_due(ck, 11), 0, "not due");
    is_int(muster_ckpt_should_stop(ck, NULL), 0, "goes on");
    muster_ckpt_close(ck);
}

static void test_refused(void)
{
    struct muster_ckpt *ck = NULL, *none = NULL;
    float w[4] = {0};
    const uint64_t shape[1] = {4}, at[1] = {3}, len[1] = {2};
    struct muster_ckpt_tensor good = {.name = "w", .dtype = MUSTER_F32,
                                      .n_dims = 1, .shape = shape, .data = w};
    struct muster_ckpt_tensor t;
    char bad[] = "{";

    is_int(muster_ckpt_open(NULL, NULL, "dir:/nonexistent/a/b", NULL, &none),
           -ENOENT, "no such place");
    like(muster_ckpt_error_text(none), "make /nonexistent/a/b", "named");
    is_int(muster_ckpt_save(none, 1, 0, NULL), -EINVAL, "good for nothing");
    muster_ckpt_close(none);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    is_int(muster_ckpt_open(NULL, NULL, NULL, NULL, &none), -EINVAL, "no place");
    like(muster_ckpt_error_text(none), "MUSTER_CHECKPOINT_DIR, which names it", "a "
         "variable would say it");
    muster_ckpt_close(none);
    setenv("MUSTER_CHECKPOINT_DIR", "", 1);
    is_int(muster_ckpt_open(NULL, NULL, NULL, NULL, &none), -EINVAL, "an empty one");
    unsetenv("MUSTER_CHECKPOINT_DIR");
    muster_ckpt_close(none);
    is_int(muster_ckpt_open(NULL, NULL, "s4://x", NULL, &none), -ENOTSUP,
           "an unknown kind of place");
    muster_ckpt_close(none);
    ck = api_bed_open(root, "refused", NULL, NULL);
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "nothing registered");
    t = good;
    t.name = ".hidden";
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "a name of ours");
    t = good;
    t.dtype = (enum muster_dtype)77;
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "no type");
    t = good;
    t.at = at;
    t.len = len;
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "a box outside");
    like(muster_ckpt_error_text(ck), "tensor 'w': its box", "said");
    t = good;
    t.data = NULL;
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "no data");
    t = good;
    t.is_flat = 1;
    t.flat_end = 5;
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "a range outside");
    t.flat_end = 3;
    is_int(muster_ckpt_tensor(ck, &t), 0, "a part of it");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "a hole");
    like(muster_ckpt_error_text(ck), "tensor 'w': no rank has [3:4]", "where");
    is_int(muster_ckpt_tensor(ck, &good), 0, "all of it, too");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "an overlap");
    like(muster_ckpt_error_text(ck), "overlap", "said");
    is_int(muster_ckpt_blob(ck, "j", bad, 1, MUSTER_JSON), 0, "bad JSON");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "is found when saved");
    is_int(muster_ckpt_clear(ck), 0, "all is forgotten");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "and nothing is left");
    is_int(muster_ckpt_save(ck, -1, 0, NULL), -EINVAL, "a negative step");
    is_int(muster_ckpt_save(ck, 1, 16, NULL), -EINVAL, "no such flag");
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_REFUSE, NULL), -ECANCELED, "refused");
    is_int(muster_ckpt_load(ck, 1, 4, NULL), -EINVAL, "flags");
    is_int(muster_ckpt_load(ck, 1, MUSTER_CKPT_CANNOT, NULL), -EILSEQ, "cannot");
    is_int(muster_ckpt_load(ck, 1, MUSTER_CKPT_UNFIT, NULL), -ENODATA, "unfit");
    muster_ckpt_close(ck);
    muster_ckpt_close(NULL);
}

static void test_nothing_saved(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "unsaved", NULL, NULL), *lost = NULL;
    char path[API_BED_ROOT_BYTES + 32];

    is_int(muster_ckpt_wait(ck, 0, MUSTER_CKPT_DURABLE, -1), 0, "nothing is on its way");
    is_int(muster_ckpt_wait(ck, 0, (enum muster_ckpt_level)9, -1), -EINVAL, "to no such level");
    is_int(muster_ckpt_test(ck, 0, MUSTER_CKPT_DURABLE), -EINVAL, "nor there");
    is_str(muster_ckpt_error_text(ck), "nothing has been saved by this handle", "said");
    is_int(muster_ckpt_wait(ck, 1, MUSTER_CKPT_DURABLE, 0), -EINVAL, "nor is one of a number");
    like(muster_ckpt_error_text(ck), "one of the last 64 of this handle, which has made 0",
         "said, too");
    muster_ckpt_close(ck);
    snprintf(path, sizeof(path), "%s/no/place", root);
    is_int(muster_ckpt_open(NULL, NULL, path, NULL, &lost), -ENOENT, "no directory for one");
    like(muster_ckpt_error_text(lost), "/no/place: expected the directory that it lies in",
         "which is said");
    muster_ckpt_close(lost);
}

static void test_texts(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "texts", NULL, NULL);
    char text[8] = "", should[API_BED_ROOT_BYTES + 64];
    int64_t step = -1;
    size_t n = 9;

    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), -ENOENT, "there is none");
    snprintf(should, sizeof(should), "no checkpoint in %s/texts", root);
    is_str(muster_ckpt_error_text(ck), should, "said");
    muster_ckpt_blob(ck, "empty", NULL, 0, MUSTER_PER_RANK);
    muster_ckpt_blob(ck, "own", should, 3, MUSTER_PER_RANK);
    muster_ckpt_blob(ck, "same", NULL, 0, MUSTER_REPLICATED);
    is_int(muster_ckpt_save(ck, 5, 0, NULL), 0, "one of step 5");
    is_int(muster_ckpt_latest(ck, 5, &step), -ENOENT, "there is none below");
    snprintf(should, sizeof(should), "no checkpoint below step 5 in %s/texts", root);
    is_str(muster_ckpt_error_text(ck), should, "said so");
    is_int(muster_ckpt_latest(ck, 6, &step), 0, "but below 6");
    is_str(muster_ckpt_error_text(ck), "", "nothing to say");
    is_int(muster_ckpt_read_blob(ck, 5, "empty", text, sizeof(text), &n), 0, "a blob of the "
           "rank, of no bytes");
    is_int((int)n, 0, "is there");
    is_str(muster_ckpt_error_text(ck), "", "nor of that");
    is_int(muster_ckpt_read_blob(ck, 5, "own", text, sizeof(text), &n), 0, "one of some");
    is_str(muster_ckpt_error_text(ck), "", "nor of that");
    is_int(muster_ckpt_read_blob(ck, 5, "same", text, sizeof(text), &n), 0, "one of all");
    is_str(muster_ckpt_error_text(ck), "", "nor of that");
    muster_ckpt_close(ck);
}

static void test_mismatch(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "mismatch", NULL, NULL);
    struct muster_ckpt *other = api_bed_open(root, "mismatch", NULL, NULL);
    const uint64_t shape[2] = {2, 3}, turned[2] = {3, 2};
    float w[6] = {0};
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32,
                                   .n_dims = 2, .shape = shape, .data = w};
    char blob[8] = "abc";

    is_int(muster_ckpt_tensor(ck, &t), 0, "a tensor");
    is_int(muster_ckpt_blob(ck, "b", blob, 3, MUSTER_REPLICATED), 0, "a blob");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), 0, "saved");
    t.shape = turned;
    is_int(muster_ckpt_tensor(other, &t), 0, "the other way round");
    is_int(muster_ckpt_load(other, 1, 0, NULL), -EINVAL, "is another shape");
    like(muster_ckpt_error_text(other), "is F32 [0:2, 0:3] there, and registered "
         "as F32 [0:3, 0:2]", "both are said");
    muster_ckpt_close(other);
    other = api_bed_open(root, "mismatch", NULL, NULL);
    t.name = "v";
    is_int(muster_ckpt_tensor(other, &t), 0, "another name");
    is_int(muster_ckpt_load(other, 1, 0, NULL), -ENODATA, "is not there");
    like(muster_ckpt_error_text(other), "tensor 'v' is not in it", "named");
    muster_ckpt_close(other);
    other = api_bed_open(root, "mismatch", NULL, NULL);
    is_int(muster_ckpt_blob(other, "b", blob, 8, MUSTER_REPLICATED), 0, "longer");
    is_int(muster_ckpt_load(other, 1, 0, NULL), -EINVAL, "another length");
    like(muster_ckpt_error_text(other), "has 3 bytes there, and 8 are", "both");
    muster_ckpt_close(other);
    muster_ckpt_close(ck);
}

/* Files are called by ranks, and not by what is in them. */
static void test_case(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "case", NULL, NULL);
    uint8_t upper = 1, lower = 2;
    char first[] = "abcd", second[] = "efgh";
    const uint64_t one = 1;
    const struct muster_ckpt_tensor tensors[] = {
        {.name = "W", .dtype = MUSTER_U8, .n_dims = 1, .shape = &one, .data = &upper},
        {.name = "w", .dtype = MUSTER_U8, .n_dims = 1, .shape = &one, .data = &lower}};
    int rc = muster_ckpt_tensor(ck, &tensors[0]) | muster_ckpt_tensor(ck, &tensors[1]) |
             muster_ckpt_blob(ck, "RNG", first, 4, MUSTER_PER_RANK) |
             muster_ckpt_blob(ck, "rng", second, 4, MUSTER_PER_RANK) |
             muster_ckpt_save(ck, 1, 0, NULL) | muster_ckpt_fence(ck);

    is_int(rc, 0, "names that differ in case alone: %s", muster_ckpt_error_text(ck));
    upper = lower = 0;
    memset(first, 0, 4);
    memset(second, 0, 4);
    is_int(muster_ckpt_load(ck, 1, 0, NULL), 0, "are loaded: %s", muster_ckpt_error_text(ck));
    ok(upper == 1 && lower == 2 && memcmp(first, "abcd", 4) == 0 &&
           memcmp(second, "efgh", 4) == 0, "each with its own bytes");
    muster_ckpt_close(ck);
}

/* Any thread may have the signal. */
static atomic_uint n_alarms;

/* The next one comes in a millisecond, and later and later: where all is slow (valgrind, on a
 * machine that has more to do) a call would never get on between two of them. */
static void next_alarm(unsigned n)
{
    unsigned ms = 1u << (n / 256 < 9 ? n / 256 : 9);

    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 1000 * ms}, NULL);
}

static void on_alarm(int sig)
{
    (void)sig;
    next_alarm(atomic_fetch_add(&n_alarms, 1));
}

/* A program may have a timer whose handler lets calls end with EINTR. */
static void test_signals(void)
{
    enum { BYTES = 8 << 20 };
    const struct itimerval never = {{0, 0}, {0, 0}};
    const struct sigaction act = {.sa_handler = on_alarm};
    struct muster_ckpt *ck = api_bed_open(root, "signals", NULL, NULL);
    _free_ uint8_t *data = malloc(BYTES);
    const uint64_t n = BYTES;
    const struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_U8, .n_dims = 1,
                                         .shape = &n, .data = data};
    size_t n_wrong = 0;
    int rc = data ? muster_ckpt_tensor(ck, &t) : -ENOMEM;

    sigaction(SIGALRM, &act, NULL);
    next_alarm(0);
    for (int step = 1; step <= 5 && rc == 0; step++) {
        memset(data, step, BYTES);
        rc = muster_ckpt_save(ck, step, step % 2 ? 0 : MUSTER_CKPT_LAZY, NULL) |
             muster_ckpt_fence(ck) | muster_ckpt_wait(ck, 0, MUSTER_CKPT_DURABLE, 0);
        memset(data, 0, BYTES);
        rc |= muster_ckpt_load(ck, step, 0, NULL);
        for (size_t i = 0; i < BYTES; i++) {
            n_wrong += data[i] != step;
        }
    }
    signal(SIGALRM, SIG_IGN); /* also one that another thread is about to begin */
    setitimer(ITIMER_REAL, &never, NULL);
    is_int(rc, 0, "saves and loads, while signals come: %s", muster_ckpt_error_text(ck));
    ok(n_wrong == 0 && atomic_load(&n_alarms) > 0, "have the right bytes");
    muster_ckpt_close(ck);
}

/* What lies in tests/golden was saved once, in the first version of each format, with the
 * tensor, the JSON and the blob of test_alone(): whatever comes later opens it. */
static void test_golden(void)
{
    const char *srcdir = getenv("MUSTER_SRCDIR");
    const uint64_t shape[] = {2, 3};
    float w[6] = {0};
    const struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32, .n_dims = 2,
                                         .shape = shape, .data = w};
    char rng[4] = "", text[32] = "", from[4096], to[5000];
    _close_ int from_fd = -1, to_fd = -1;
    struct muster_ckpt *ck = NULL;
    struct found_facts facts;
    struct error e = {0};
    struct found f;
    int64_t step = -1;
    size_t n = 0;

    snprintf(from, sizeof(from), "%s/tests/golden", srcdir ? srcdir : "..");
    snprintf(to, sizeof(to), "%s/golden", root);
    mkdir(to, 0700);
    from_fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    to_fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ok(found_one(io_system(), from_fd, "step-000000000010-804f7d12", &f) &&
           copy_checkpoint(io_system(), from_fd, &f, to_fd, to, &facts, &e) == 0,
       "one of the first version is whole, and is copied: %s", e.text);
    ck = api_bed_open(root, "golden", NULL, NULL);
    is_int(muster_ckpt_tensor(ck, &t) | muster_ckpt_blob(ck, "rng", rng, 4, MUSTER_PER_RANK) |
               muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step),
           0, "and loaded: %s", muster_ckpt_error_text(ck));
    is_int(step, 10, "its step");
    ok(w[0] == 1 && w[5] == 6 && memcmp(rng, "abcd", 4) == 0, "its bytes");
    is_int(muster_ckpt_read_blob(ck, 10, "config", text, sizeof(text) - 1, &n), 0, "its JSON");
    is_str(text, "{\"lr\":0.5}", "as it was");
    muster_ckpt_close(ck);
}

int main(void)
{
    api_bed_begin(root);
    test_alone();
    test_newest();
    test_refused();
    test_nothing_saved();
    test_texts();
    test_mismatch();
    test_case();
    test_signals();
    test_golden();
    return api_bed_end(root);
}
