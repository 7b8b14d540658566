/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pull into a directory where something is already: what somebody left who was killed,
 * another COMMIT, other files; and others who write there meanwhile.
 */
#include <config.h>

#include "ckpt/pull_bed.h"

#include "base/cleanup.h"
#include "ckpt/commit.h"
#include "ckpt/digest.h"
#include "ckpt/io.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct pull_world pull_world;

static void touch(int dir, const char *name)
{
    _close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0) {
        bail_out("no %s", name);
    }
}

/* Of one who was killed when he put its seal there, or began to remove it. */
static void test_left(void)
{
    struct error e;
    struct pull_bed b;
    _close_ int own = -1;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = pull_bed_own(&b);
    unlinkat(own, PULL_FIRST, 0);
    touch(own, ".COMMIT.old");
    pull_world.no_get = PULL_FIRST;
    is_int(pull_run(&b, &b.own, &e), -EAGAIN, "a file is missing, and not to be had");
    pull_world.no_get = NULL;
    ok(!pull_bed_has(own, ".COMMIT.old"), "no removal goes on meanwhile");
    ok(pull_was_synced(b.own.name), "which is on the disk before anything is fetched");
    touch(own, ".COMMIT.old");
    touch(own, ".COMMIT.new");
    is_int(pull_run(&b, &b.own, &e), 0, "it is whole in the end%s", e.text);
    ok(pull_bed_is_whole(&b) && !pull_bed_has(own, ".COMMIT.old") &&
           !pull_bed_has(own, ".COMMIT.new"),
       "with nothing else");
    unlinkat(own, "COMMIT", 0);
    touch(own, ".COMMIT.old");
    is_int(pull_run(&b, &b.own, &e), 0, "also where no file is fetched%s", e.text);
    ok(pull_bed_is_whole(&b) && !pull_bed_has(own, ".COMMIT.old"), "none is left");
    pull_bed_close(&b);
}

/* A file of another program's is none of our seals. */
static void test_others_commit(void)
{
    struct error e;
    struct pull_bed b;

    pull_bed_open(&b);
    pull_world.no_get = "b.bin";
    is_int(pull_run(&b, &b.others, &e), -EAGAIN, "one with a file COMMIT, half of it");
    pull_world.no_get = NULL;
    is_int(pull_run(&b, &b.others, &e), 0, "and then all of it%s", e.text);
    ok(pull_bed_has(b.to, "checkpoint-5/COMMIT") && pull_bed_has(b.to, "checkpoint-5/b.bin"),
       "it is");
    pull_bed_close(&b);
}

/* Writes over some of COMMIT. */
static void change_commit(int own, const char *text, off_t at)
{
    _close_ int fd = openat(own, "COMMIT", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || pwrite(fd, text, strlen(text), at) != (ssize_t)strlen(text)) {
        bail_out("no COMMIT");
    }
}

static void resize_commit(int own, off_t len)
{
    _close_ int fd = openat(own, "COMMIT", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || ftruncate(fd, len) < 0) {
        bail_out("no COMMIT");
    }
}

static void test_commit_here(void)
{
    struct commit stranger = {.step = 5, .uuid = "0123456789abcdef0123456789abcdef"};
    _buf_ struct buf text = {0};
    struct error e;
    struct pull_bed b;
    _close_ int own = -1;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = pull_bed_own(&b);
    change_commit(own, "x", 3);
    is_int(pull_run(&b, &b.own, &e), 0, "whose COMMIT is damaged%s", e.text);
    is_int(b.facts.n_moved, 0, "no file is fetched");
    ok(pull_bed_is_whole(&b), "is whole again");
    resize_commit(own, 10);
    is_int(pull_run(&b, &b.own, &e), 0, "cut%s", e.text);
    ok(pull_bed_is_whole(&b), "is whole again");
    resize_commit(own, 100000);
    is_int(pull_run(&b, &b.own, &e), 0, "too long%s", e.text);
    ok(pull_bed_is_whole(&b), "is whole again");
    commit_encode(&stranger, &text);
    resize_commit(own, 0);
    change_commit(own, buf_str(&text), 0);
    is_int(pull_run(&b, &b.own, &e), -EEXIST, "another one's");
    like(e.text, "another checkpoint", "is left alone");
    pull_bed_close(&b);
}

/* Of a muster that is to come. */
static void test_later_commit(void)
{
    struct error e;
    struct pull_bed b;
    _close_ int own = -1;
    char text[COMMIT_MAX_BYTES + 1] = "";
    char *end;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = pull_bed_own(&b);
    snprintf(text, sizeof(text), "%.*s", (int)b.own.seal.len, b.own.seal.data);
    end = strchr(text, '\n') + 1;
    memcpy(strstr(text, "\"v\":1"), "\"v\":2", 5);
    snprintf(end, sizeof(text) - (size_t)(end - text), "xxh3 %016llx\n",
             (unsigned long long)digest_short_of(text, (size_t)(end - text)));
    change_commit(own, text, 0);
    is_int(pull_run(&b, &b.own, &e), -EEXIST, "a COMMIT that this muster does not know");
    like(e.text, "another checkpoint", "is left alone");
    pull_bed_close(&b);
}

/* What is here of a file is neither right nor as long. */
static void test_longer(void)
{
    struct error e;
    struct pull_bed b;
    _close_ int own = -1, fd = -1;
    _step_ struct step s = {0};

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = pull_bed_own(&b);
    fd = openat(own, PULL_FIRST, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || write(fd, "more", 4) != 4) {
        bail_out("no %s", PULL_FIRST);
    }
    is_int(pull_run(&b, &b.own, &e), 0, "with a file that is longer here%s", e.text);
    is_int(b.facts.n_moved, 1, "which is fetched");
    is_int(step_open(io_system(), b.to, b.own.name, &s, &e), 0, "is as long as it was%s", e.text);
    is_int(step_verify(&s, &e), 0, "and right%s", e.text);
    pull_bed_close(&b);
}

/* It has no directory of its own. */
static void test_file(void)
{
    static const char name[] = "step-7.safetensors";
    static const char data[] = "\x40\0\0\0\0\0\0\0{\"t\":{\"dtype\":\"U8\",\"shape\":[1],"
                               "\"data_offsets\":[0,1]}}           x";
    _parcel_ struct parcel p = {0};
    _close_ int fd = -1;
    struct error e;
    struct pull_bed b;

    pull_bed_open(&b);
    fd = openat(b.from, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, sizeof(data) - 1) != sizeof(data) - 1) {
        bail_out("no %s", name);
    }
    pull_bed_pack(&b, FOUND_SAFETENSORS, name, &p);
    is_int(pull_run(&b, &p, &e), 0, "a single file%s", e.text);
    ok(pull_bed_has(b.to, name) && !pull_bed_has(b.to, ".step-7.safetensors.muster-part"),
       "is all that is there");
    pull_bed_close(&b);
}

/* Two who write the same files, and one who takes them away. */
static void test_somebody_else(void)
{
    struct error e;
    struct pull_bed b;
    char to[80];
    int own, work;

    pull_bed_open(&b);
    snprintf(to, sizeof(to), "%s/to", b.path);
    own = pull_bed_mkdir(to, b.own.name);
    work = pull_bed_mkdir(to, PULL_PART);
    is_int(flock(own, LOCK_EX) | flock(work, LOCK_EX), 0, "somebody else fetches both");
    is_int(pull_run(&b, &b.own, &e), -EBUSY, "one of ours");
    like(e.text, "somebody else fetches step-", "is told");
    is_int(pull_run(&b, &b.others, &e), -EBUSY, "and one of others");
    like(e.text, "somebody else fetches checkpoint-5 into this directory", "is told");
    ok(atomic_load(&pull_world.n_gets) == 0 && !pull_bed_has(work, "a.bin"), "nothing was fetched");
    b.st.is_dry = true;
    is_int(pull_run(&b, &b.others, &e), 0, "a dry run writes nothing%s", e.text);
    b.st.is_dry = false;
    close(own);
    close(work);
    pull_world.goes_from = b.to;
    is_int(pull_run(&b, &b.others, &e), -EBUSY, "what was fetched is gone, and not in the store");
    pull_world.goes_from = -1;
    like(e.text, "or removes it", "is told");
    is_int(pull_run(&b, &b.others, &e), 0, "then it is fetched%s", e.text);
    is_int(pull_run(&b, &b.own, &e), 0, "and ours%s", e.text);
    ok(pull_bed_is_whole(&b) && pull_bed_has(b.to, "checkpoint-5/b.bin"), "both are whole");
    pull_bed_close(&b);
}

static void test_name_comes(void)
{
    struct error e;
    struct pull_bed b;

    pull_bed_open(&b);
    pull_world.comes_into = b.to;
    is_int(pull_run(&b, &b.others, &e), -EEXIST, "somebody makes one of that name meanwhile");
    pull_world.comes_into = -1;
    ok(pull_bed_has(b.to, PULL_OTHER) && !pull_bed_has(b.to, "checkpoint-5/b.bin"), "which stays");
    pull_bed_close(&b);
}

static void test_no_room(void)
{
    struct error e;
    struct pull_bed b;

    pull_bed_open(&b);
    pull_world.has_no_room = true;
    is_int(pull_run(&b, &b.own, &e), -ENOSPC, "a disk that is full: %s", e.text);
    is_int(atomic_load(&pull_world.n_gets), 0, "nothing is fetched");
    pull_world.has_no_room = false;
    pull_bed_close(&b);
}

/* Between that it was opened and that it was locked. */
static void test_moved(void)
{
    struct error e;
    struct pull_bed b;

    pull_bed_open(&b);
    pull_world.moves_from = b.to;
    is_int(pull_run(&b, &b.others, &e), -EBUSY, "somebody has taken away what is fetched into");
    pull_world.moves_from = -1;
    like(e.text, "somebody else fetches checkpoint-5", "which is told");
    is_int(atomic_load(&pull_world.n_gets), 0, "and nothing is fetched");
    pull_bed_close(&b);
}

int main(void)
{
    test_left();
    test_others_commit();
    test_commit_here();
    test_later_commit();
    test_longer();
    test_file();
    test_somebody_else();
    test_name_comes();
    test_no_room();
    test_moved();
    return tap_done();
}
