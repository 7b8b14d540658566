/* SPDX-License-Identifier: Apache-2.0 */
/* Whether whoever began a save is at it: by his lock, and the mark that he has had one. */
#include <config.h>

#include "ckpt/saver.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/machine.h"
#include "ckpt/flock_fails.h"
#include "ckpt/held.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UUID "0f3a9c2e-0000-4000-8000-000000000000"
#define NAME "step-000000000007-0f3a9c2e"
#define MARK NAME "/.saver"
#define DATA NAME "/r00000.safetensors"

static char root_path[] = "/tmp/saver_test.XXXXXX";
static int root = -1;

static bool is_there(const char *path)
{
    return faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* As a rank 0 begins; *ret_held is its lock. */
static struct step_save *begin(int *ret_held)
{
    char boot[SAVER_BOOT_BYTES] = "";
    struct step_save *s = NULL;

    if (step_save_begin(io_system(), root, 7, UUID, &s, NULL) < 0) {
        bail_out("no " NAME);
    }
    *ret_held = held_take(root, NAME);
    saver_mark(s, *ret_held, boot);
    if (step_save_file(s, "r00000.safetensors", "data", 4, NULL) < 0) {
        bail_out("no " DATA);
    }
    return s;
}

/* What is left where it is killed. */
static void leave(void)
{
    int held = -1;
    struct step_save *s = begin(&held);

    held_give(held);
    step_save_destroy(s);
}

static void put(const char *path, const char *text)
{
    _close_ int fd = openat(root, path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        bail_out("no %s", path);
    }
}

static enum saver_state look(int64_t now_ns)
{
    return saver_look(io_system(), root, NAME, now_ns);
}

static int remove_it(struct error *e)
{
    return saver_remove(io_system(), root, NAME, e);
}

static void test_at_it(void)
{
    int held = -1;
    struct step_save *s = begin(&held);

    ok(held >= 0 && is_there(MARK), "who has a lock says so");
    is_int(look(SAVER_NO_TIME), SAVER_AT_IT, "and is at it");
    is_int(look(INT64_MAX), SAVER_AT_IT, "however long ago he wrote");
    is_int(remove_it(NULL), 0, "what he writes stays");
    ok(is_there(DATA), "all of it");
    held_give(held);
    is_int(look(SAVER_NO_TIME), SAVER_ENDED, "until he has no lock");
    is_int(remove_it(NULL), 1, "then it goes");
    ok(!is_there(NAME), "with its directory");
    is_int(look(SAVER_NO_TIME), SAVER_UNKNOWN, "of nothing nobody knows");
    is_int(remove_it(NULL), 0, "and nothing goes");
    step_save_destroy(s);
}

/* What he ends himself. */
static void test_ended(void)
{
    int held = -1;
    struct step_save *s = begin(&held);

    put(NAME "/COMMIT", "x");
    is_int(look(SAVER_NO_TIME), SAVER_UNKNOWN, "one with COMMIT is no save any more");
    held_give(held);
    is_int(look(SAVER_NO_TIME), SAVER_UNKNOWN, "also where its mark has stayed");
    is_int(remove_it(NULL), 0, "and stays");
    step_save_unmark(s);
    ok(is_there(DATA) && !is_there(MARK), "the mark goes alone");
    step_save_unmark(s);
    unlinkat(root, NAME "/COMMIT", 0);
    is_int(look(INT64_MAX), SAVER_UNKNOWN, "nobody knows of one without a mark");
    is_int(remove_it(NULL), 0, "and it stays");
    step_save_abort(s);
    step_save_destroy(s);
    s = begin(&held);
    step_save_abort(s);
    ok(!is_there(NAME), "a save that is given up leaves no mark");
    step_save_destroy(s);
    held_give(held);
}

/* The child of a program that is killed has its lock, and may be anybody's. */
static void test_killed(void)
{
    int ready[2], held = -1;
    char byte;
    pid_t saver, child = -1;

    if (pipe(ready) < 0) {
        bail_out("no pipe");
    }
    saver = fork();
    if (saver == 0) {
        struct step_save *s = begin(&held);

        child = fork();
        if (child > 0 && s && write(ready[1], &child, sizeof(child)) < 0) {
            _exit(1);
        }
        close(ready[0]);
        close(ready[1]);
        pause();
        _exit(0);
    }
    close(ready[1]);
    if (read(ready[0], &child, sizeof(child)) != (ssize_t)sizeof(child)) {
        bail_out("no child");
    }
    is_int(look(SAVER_NO_TIME), SAVER_AT_IT, "a program is at it");
    kill(saver, SIGSTOP);
    is_int(remove_it(NULL), 0, "what it saves stays, also where it stands still");
    kill(saver, SIGKILL);
    waitpid(saver, NULL, 0);
    is_int(look(SAVER_NO_TIME), SAVER_AT_IT, "its child may go on where it was killed");
    kill(child, SIGKILL);
    while (read(ready[0], &byte, 1) > 0) {
    }
    close(ready[0]);
    for (int i = 0; i < 1000 && look(SAVER_NO_TIME) == SAVER_AT_IT; i++) {
        usleep(10000); /* it is init's */
    }
    is_int(remove_it(NULL), 1, "what both have left goes");
}

static int64_t changed_ns(void)
{
    static const char *const paths[] = {NAME, MARK, DATA};
    int64_t last = 0;

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct stat st;
        int64_t at = fstatat(root, paths[i], &st, 0) < 0
                         ? 0 : st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;

        last = at > last ? at : last;
    }
    return last;
}

/* As it was written long ago. */
static void make_old(void)
{
    static const char *const paths[] = {MARK, DATA, NAME};
    const struct timespec times[2] = {{.tv_sec = time(NULL) - 3700},
                                      {.tv_sec = time(NULL) - 3700}};

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        utimensat(root, paths[i], times, 0);
    }
}

static void test_elsewhere(void)
{
    char boot[SAVER_BOOT_BYTES] = "", same_boot[128];
    const char *const marks[] = {"00000000-0000-0000-0000-000000000000 8:1\n", same_boot, "",
                                 "x"};
    struct error e = {0};

    machine_boot_id(boot, sizeof(boot), NULL);
    snprintf(same_boot, sizeof(same_boot), "%s 4095:1048575\n", boot);
    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        leave();
        put(MARK, marks[i]);
        is_int(look(SAVER_NO_TIME), SAVER_UNKNOWN, "mark %zu: of another place nobody knows", i);
        is_int(look(changed_ns() + SAVER_STILL_NS - 1), SAVER_UNKNOWN, "not before an hour");
        is_int(look(changed_ns() + SAVER_STILL_NS), SAVER_ENDED, "without a change");
        is_int(remove_it(&e), 0, "by the filesystem's clock");
        make_old();
        utimensat(root, DATA, NULL, 0);
        is_int(remove_it(&e), 0, "and of each of its files");
        make_old();
        is_int(remove_it(&e), 1, "then it goes");
    }
}

/* Where directories are not locked. */
static void test_no_locks(void)
{
    static const int none[] = {EBADF, ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL};
    int held = -1;

    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        struct step_save *s;

        flock_fails_of = none[i];
        s = begin(&held);
        ok(held < 0 && !is_there(MARK), "%s: no lock, no mark", strerror(none[i]));
        flock_fails_of = 0;
        step_save_abort(s);
        step_save_destroy(s);
        leave();
        make_old();
        flock_fails_of = none[i];
        is_int(look(INT64_MAX), SAVER_UNKNOWN, "who cannot lock knows nothing");
        is_int(remove_it(NULL), 0, "and removes nothing");
        flock_fails_of = 0;
        is_int(remove_it(NULL), 1, "who can does");
    }
}

/* --- a removal that is cut short --- */

static int unlink_no_data(struct io *io, int dir, const char *name)
{
    return strcmp(name, "r00000.safetensors") == 0
               ? -EIO : io_system()->ops->unlink(io, dir, name);
}

static void test_cut_short(void)
{
    struct io_ops ops = *io_system()->ops;
    struct io io = {.ops = &ops};
    struct error e = {0};

    ops.unlink = unlink_no_data;
    leave();
    put(NAME "/r00001.safetensors", "more");
    is_int(saver_remove(&io, root, NAME, &e), -EIO, "what cannot be removed");
    like(e.text, NAME "/r00000.safetensors: ", "is told");
    ok(is_there(MARK) && is_there(DATA), "and keeps its mark");
    put(NAME "/notes.txt", "mine");
    is_int(remove_it(&e), -ENOTEMPTY, "what is somebody else's stays");
    like(e.text, "notes.txt is not muster's", "and is told");
    ok(!is_there(MARK) && !is_there(DATA), "all else is gone");
    is_int(remove_it(&e), 0, "and nobody hears of it again");
    unlinkat(root, NAME "/notes.txt", 0);
    unlinkat(root, NAME, AT_REMOVEDIR);
}

int main(void)
{
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
    test_at_it();
    test_ended();
    test_killed();
    test_elsewhere();
    test_no_locks();
    test_cut_short();
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
