/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/log_prune.h"
#include "tests/lib/tap.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/muster-prune.XXXXXX";

static void make(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/logs/%s/0", dir, name);
    if (fs_mkdirs(path, NULL) < 0) {
        bail_out("%s", path);
    }
    snprintf(path, sizeof(path), "%s/logs/%s/0/stdout", dir, name);
    fs_write_replace(path, "x\n", 2, NULL);
}

static bool there(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/logs/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* As digits: the generations of 1 to 9 that are there. */
static const char *left(void)
{
    static char text[10];
    size_t n = 0;

    for (char c = '1'; c <= '9'; c++) {
        if (there((char[]){c, '\0'})) {
            text[n++] = c;
        }
    }
    text[n] = '\0';
    return text;
}

static void test_keeps(void)
{
    static const struct {
        uint32_t keep;
        int64_t running;
        const char *want; /* of 1 to 9 */
    } cases[] = {
        {0, 9, "123456789"}, {1, 9, "189"}, {2, 9, "1789"},
        {7, 9, "123456789"}, {8, 9, "123456789"}, {UINT32_MAX, 9, "123456789"},
        {1, 1, "123456789"}, {1, 2, "123456789"}, {1, 3, "123456789"},
        {1, 4, "13456789"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char got[10] = "";
        size_t n = 0;

        for (char c = '1'; c <= '9'; c++) {
            if (log_prune_keeps(c - '0', cases[i].running, cases[i].keep)) {
                got[n++] = c;
            }
        }
        is_str(got, cases[i].want, "%u beside number %d", cases[i].keep,
               (int)cases[i].running);
    }
}

static void test_prune(void)
{
    static const char *const others[] = {"notes", "3x", "-4", "node-3"};
    struct error e = {0};

    for (char c = '1'; c <= '9'; c++) {
        make((char[]){c, '\0'});
    }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        make(others[i]);
    }
    is_int(log_prune(dir, 9, 2, &e), 5, "five are removed: %s", e.text);
    is_str(left(), "1789", "the first is left, and the last ones");
    is_int(log_prune(dir, 9, 2, &e), 0, "once");
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        ok(there(others[i]), "%s is nobody's", others[i]);
    }
    is_int(log_prune("/nonexistent", 9, 2, &e), 0, "no logs are no failure");
}

/* A link of that name leads elsewhere, where all stays. */
static void test_link(void)
{
    struct error e = {0};
    char path[256];

    snprintf(path, sizeof(path), "%s/logs/4", dir);
    make("notes");
    is_int(symlink("notes", path), 0, "a link");
    log_prune(dir, 9, 2, &e);
    ok(!there("4"), "is removed");
    ok(there("notes/0/stdout"), "and what it leads to is not");
}

/* A directory that takes long to go, by the linker's hand. */
static sem_t may_go;
static atomic_int n_begun;
static atomic_bool is_slow;

int __real_fs_remove_tree(const char *path, struct error *e);
int __wrap_fs_remove_tree(const char *path, struct error *e);

int __wrap_fs_remove_tree(const char *path, struct error *e)
{
    atomic_fetch_add(&n_begun, 1);
    while (is_slow && sem_wait(&may_go) < 0) {
    }
    return __real_fs_remove_tree(path, e);
}

/* One that is in the middle of it, as generation 5 runs, until let_go(). */
static struct log_pruner *begin_slowly(char last)
{
    struct log_pruner *p = NULL;
    struct error e = {0};

    for (char c = '1'; c <= last; c++) {
        make((char[]){c, '\0'});
    }
    is_int(log_pruner_create(dir, 2, &p, &e), 0, "a pruner: %s", e.text);
    is_slow = true;
    n_begun = 0;
    log_pruner_start(p, 5);
    for (int i = 0; i < 10000 && n_begun == 0; i++) {
        usleep(1000);
    }
    return p;
}

static void let_go(void)
{
    is_slow = false;
    sem_post(&may_go);
}

static void test_behind(void)
{
    struct log_pruner *p = begin_slowly('9');

    log_pruner_start(p, 8);
    log_pruner_start(p, 9);
    is_str(left(), "123456789", "nothing has gone yet");
    let_go();
    log_pruner_release(p, 20000);
    is_str(left(), "1789", "what was said meanwhile is made up for, before its end");
}

/* Whoever leaves does not wait for one that hangs. */
static void test_hangs(void)
{
    struct log_pruner *p = begin_slowly('5');

    log_pruner_release(p, 50);
    ok(there("2"), "it is left alone");
    let_go();
    for (int i = 0; i < 10000 && there("2"); i++) {
        usleep(1000);
    }
    ok(!there("2"), "and goes on by itself");
}

int main(void)
{
    sem_init(&may_go, 0, 0);
    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    test_keeps();
    test_prune();
    test_link();
    test_behind();
    test_hangs();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
