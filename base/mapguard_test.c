/* SPDX-License-Identifier: Apache-2.0 */
/* A mapped file is cut: who reads it goes on and is told, who reads another one dies
 * as before. */
#include <config.h>

#include "base/mapguard.h"
#include "base/thread.h"
#include "tests/lib/tap.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20, MANY = 64 };

struct file {
    int fd;
    char *at;
};

static struct file make(void)
{
    struct file f = {.fd = memfd_create("mapguard_test", MFD_CLOEXEC)};

    if (f.fd < 0 || ftruncate(f.fd, BYTES) < 0) {
        bail_out("no memfd");
    }
    f.at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
    memset(f.at, 7, BYTES);
    return f;
}

static void drop(struct file *f)
{
    munmap(f->at, BYTES);
    close(f->fd);
}

static unsigned sum(const char *at)
{
    unsigned n = 0;

    for (size_t i = 0; i < BYTES; i++) {
        n += ((const volatile unsigned char *)at)[i];
    }
    return n;
}

static void test_cut(void)
{
    struct file f = make(), other = make();
    struct mapguard *g = mapguard_add(f.at, BYTES), *o = mapguard_add(other.at, BYTES);

    is_int(sum(f.at), 7 * BYTES, "what is there is read");
    ok(!mapguard_is_torn(g), "and whole");
    ok(ftruncate(f.fd, 5000) == 0, "it is cut");
    ok(sum(f.at) < 7 * BYTES, "what is left is read to its end");
    ok(mapguard_is_torn(g), "and known to be torn");
    f.at[BYTES - 1] = 1; /* nobody's memory but ours */
    ok(!mapguard_is_torn(o) && sum(other.at) == 7 * BYTES, "the other one is whole");
    mapguard_remove(g);
    drop(&f);
    f = make();
    g = mapguard_add(f.at, BYTES);
    ok(!mapguard_is_torn(g), "the next one begins whole");
    ok(ftruncate(f.fd, 0) == 0, "it is cut, too");
    f.at[0] = 1;
    ok(mapguard_is_torn(g), "and torn by who writes to it");
    mapguard_remove(g);
    mapguard_remove(o);
    mapguard_remove(NULL);
    drop(&f);
    drop(&other);
}

static void *read_it(void *arg)
{
    mapguard_admit();
    sum(((struct file *)arg)->at);
    return NULL;
}

/* Threads that read while it is cut: each of them goes on. */
static void test_threads(void)
{
    int n_torn = 0;

    for (int i = 0; i < MANY; i++) {
        struct file f = make();
        struct mapguard *g = mapguard_add(f.at, BYTES);
        pthread_t threads[3];
        int n = 0;

        while (n < 3 && thread_start(&threads[n], read_it, &f) == 0) {
            n++;
        }
        if (ftruncate(f.fd, 0) < 0) {
            bail_out("no way to cut it");
        }
        while (n > 0) {
            pthread_join(threads[--n], NULL);
        }
        sum(f.at);
        n_torn += mapguard_is_torn(g);
        mapguard_remove(g);
        drop(&f);
    }
    is_int(n_torn, MANY, "all threads have gone on, each time");
}

/* The signal of one that nobody has registered ends the process. */
static void test_others(void)
{
    struct file f = make();
    const struct rlimit none = {0, 0};
    int status = 0;
    pid_t pid;

    mapguard_remove(mapguard_add(f.at, BYTES));
    pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGBUS, SIG_DFL); /* a sanitizer has one of its own */
        mapguard_install();
        if (ftruncate(f.fd, 0) == 0) {
            sum(f.at);
        }
        _exit(0);
    }
    ok(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGBUS, "another one dies of it");
    drop(&f);
}

int main(void)
{
    mapguard_install();
    mapguard_install();
    test_cut();
    if (TAP_FINDS_RACES) {
        skip("memory that is replaced while it is read is a race");
    } else if (tap_valgrind()) {
        skip("valgrind makes another signal of SIGBUS at times");
    } else {
        test_threads();
    }
    if (tap_valgrind()) {
        skip("valgrind makes another signal of SIGBUS at times");
    } else {
        test_others();
    }
    return tap_done();
}
