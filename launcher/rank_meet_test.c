/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that meet by files: each one a process, on nodes that are directories. */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/rank_meet.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 60000, SHORT_MS = 1000 };

static char bed[] = "/tmp/rank_meet_test.XXXXXX";

/* --- the list --- */

static void test_list(void)
{
    static const struct {
        const char *text, *what;
        int rc;
    } cases[] = {
        {"muster-meeting 1 10.0.0.1 20000\n0 2 1 a\n2 2 3 b\nend\n", "whole", 0},
        {"muster-meeting 1 - 0\n4 2 1 a\nend\n", "a note", 0},
        {"muster-meeting 1 ::1 1\nend\n", "nobody", 0},
        {"", "nothing", -ERR_FORMAT},
        {"muster-meeting 2 - 0\nend\n", "another version", -ERR_FORMAT},
        {"muster-meeting 1 - 0\n4 2 1 a\n", "no end", -ERR_FORMAT},
        {"muster-meeting 1 - 0\n4 2 1 a\nend\nx", "words behind", -ERR_FORMAT},
        {"muster-meeting 1 - 0\n4 2 1\nend\n", "a field less", -ERR_FORMAT},
        {"muster-meeting 1 - 0\n4 0 1 a\nend\n", "no ranks", -ERR_FORMAT},
        {"muster-meeting 1 - 0\n4 2 1 a\n4 2 1 a\nend\n", "twice", -ERR_FORMAT},
        {"muster-meeting 1 - 0\n4 2 1 a\n0 2 1 a\nend\n", "no order",
         -ERR_FORMAT},
        {"muster-meeting 1 host 1\nend\n", "a name", -ERR_FORMAT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _meet_list_ struct meet_list l = {0};
        _meet_list_ struct meet_list again = {0};
        _buf_ struct buf b = {0};

        is_int(meet_list_parse(cases[i].text, &l), cases[i].rc, "%s",
               cases[i].what);
        meet_list_print(&l, &b);
        is_int(meet_list_parse(buf_str(&b), &again), 0, "%s: printed again",
               cases[i].what);
        ok(again.n == l.n && again.port == l.port &&
           strcmp(again.addr, l.addr) == 0, "%s: the same", cases[i].what);
    }
}

static void test_order(void)
{
    _meet_list_ struct meet_list l = {0};
    static const uint32_t ranks[] = {4, 0, 6, 2};

    for (size_t i = 0; i < ARRAY_SIZE(ranks); i++) {
        ok(meet_list_add(&l, &(struct meet_node){ranks[i], 2, 1, 1}),
           "rank %u", ranks[i]);
    }
    ok(!meet_list_add(&l, &(struct meet_node){4, 2, 2, 1}), "not twice");
    is_int(meet_list_ranks(&l), 8, "ranks of all nodes");
    for (uint32_t i = 0; i < l.n; i++) {
        is_int(l.nodes[i].rank, 2 * i, "node %u", i);
    }
}

/* --- meetings --- */

struct rank {
    pid_t pid;
    FILE *says;
};

struct how {
    uint64_t launch, timeout_ms;
    const char *dir, *home; /* in the bed */
    uint32_t world, n_local;
    bool fails; /* rank 0 does, once they have met */
};

static void make_place(const struct how *h, uint32_t rank,
                       struct rank_place *p)
{
    *p = (struct rank_place){
        .rank = rank, .world = h->world, .local_world = h->n_local,
        .local_rank = rank % h->n_local, .launch_id = h->launch,
        .daemon = h->launch * 100 + rank / h->n_local,
    };
}

static void fill_dirs(const struct how *h, const struct rank_place *place,
                      struct strlist *dirs)
{
    _strlist_ struct strlist env = {0};

    strlist_addf(&env, "OMPI_MCA_initial_wdir=%s/%s", bed, h->dir);
    if (h->home) {
        strlist_addf(&env, "HOME=%s/%s", bed, h->home);
    }
    rank_meet_dirs(&env, place, dirs);
}

static void be_rank(const struct how *h, uint32_t rank, FILE *to)
{
    struct rank_place place;
    _strlist_ struct strlist dirs = {0};
    struct rank_meet m = {.place = &place, .dirs = &dirs, .addr = "10.0.0.1",
                          .port = (uint16_t)h->launch,
                          .timeout_ms = h->timeout_ms};
    struct rank_met met;
    struct error e = {0};

    make_place(h, rank, &place);
    fill_dirs(h, &place, &dirs);
    if (rank_meet(&m, &met, &e) < 0) {
        fprintf(to, "%s", e.text);
        return;
    }
    fprintf(to, "%u/%u %s:%u", met.node, met.n_nodes, met.addr, met.port);
    fflush(to);
    if (rank == 0 && h->fails) {
        rank_meet_clean(&m);
    } else if (rank == 0) {
        rank_meet_end(&m);
    }
}

static struct rank start(const struct how *h, uint32_t rank)
{
    struct rank r;
    int ends[2];

    if (pipe(ends) < 0) {
        bail_out("pipe");
    }
    r.pid = fork();
    if (r.pid == 0) {
        FILE *to = fdopen(ends[1], "w");

        be_rank(h, rank, to);
        fclose(to);
        _exit(0);
    }
    close(ends[1]);
    r.says = fdopen(ends[0], "r");
    return r;
}

static void finish(struct rank *r, char *said, size_t size)
{
    said[fread(said, 1, size - 1, r->says)] = '\0';
    fclose(r->says);
    waitpid(r->pid, NULL, 0);
}

static void expect(struct rank *r, const char *want, const char *name)
{
    char said[1024];

    finish(r, said, sizeof(said));
    is_str(said, want, "%s", name);
}

static void expect_part(struct rank *r, const char *want, const char *name)
{
    char said[1024];

    finish(r, said, sizeof(said));
    like(said, want, "%s", name);
}

static const char *in_bed(const char *name)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", bed, name);
    return path;
}

static void fresh(const char *name)
{
    fs_remove_tree(in_bed(name), NULL);
    mkdir(in_bed(name), 0755);
}

/* Only an empty one can be removed so. */
static void expect_empty(const char *name)
{
    is_int(rmdir(in_bed(name)), 0, "nothing is left in %s", name);
}

static void test_meet(void)
{
    struct how h = {.launch = 7, .timeout_ms = LONG_MS, .dir = "a", .world = 4,
                    .n_local = 2};
    struct rank r[4];

    fresh("a");
    for (uint32_t i = 4; i-- > 0;) {
        r[i] = start(&h, i); /* rank 0 is the last */
    }
    expect(&r[3], "1/2 10.0.0.1:7", "a second rank of a second node");
    expect(&r[2], "1/2 10.0.0.1:7", "a first one");
    expect(&r[1], "0/2 10.0.0.1:7", "a second rank of the first node");
    expect(&r[0], "0/2 10.0.0.1:7", "rank 0");
    expect_empty("a");
}

static int n_swept; /* so many files are gone before they have their name */

int __real_fs_write_replace(const char *path, const void *data, size_t len,
                            struct error *e);
int __wrap_fs_write_replace(const char *path, const void *data, size_t len,
                            struct error *e);

int __wrap_fs_write_replace(const char *path, const void *data, size_t len,
                            struct error *e)
{
    if (n_swept > 0) {
        n_swept--;
        return error_set(e, ENOENT, "rename %s", path);
    }
    return __real_fs_write_replace(path, data, len, e);
}

/* Rank 0 empties the directory while the other one writes there. */
static void test_swept(void)
{
    struct how h = {.launch = 6, .timeout_ms = LONG_MS, .dir = "a", .world = 2,
                    .n_local = 1};
    struct rank r[2];

    fresh("a");
    n_swept = 1;
    r[1] = start(&h, 1);
    n_swept = 0;
    r[0] = start(&h, 0);
    expect(&r[1], "1/2 10.0.0.1:6", "one whose file is swept away");
    expect(&r[0], "0/2 10.0.0.1:6", "is met");
    expect_empty("a");
    fresh("a");
    n_swept = 100;
    r[1] = start(&h, 1);
    n_swept = 0;
    expect_part(&r[1], "rename ", "one that can never write says so");
    fresh("a");
}

static void test_late(void)
{
    struct how h = {.launch = 8, .timeout_ms = LONG_MS, .dir = "a", .world = 2,
                    .n_local = 1};
    struct rank r[2];
    struct stat st;

    fresh("a");
    r[0] = start(&h, 0);
    while (stat(in_bed("a/.muster-mpi-0000000000000008"), &st) < 0) {
        usleep(1000);
    }
    is_int(st.st_mode & 07777, 0700, "the directory is private");
    r[1] = start(&h, 1);
    expect(&r[1], "1/2 10.0.0.1:8", "one that comes late");
    expect(&r[0], "0/2 10.0.0.1:8", "is waited for");
    expect_empty("a");
}

/* A launch of the same name has crashed here: it had other nodes. */
static void test_stale(void)
{
    struct how h = {.launch = 9, .timeout_ms = LONG_MS, .dir = "a", .world = 4,
                    .n_local = 2};
    static const char all[] = "muster-meeting 1 6.6.6.6 666\n0 2 1 1\n2 2 2 "
                              "2\nend\n";
    static const char note[] = "muster-meeting 1 - 0\n3 1 3 3\nend\n";
    struct rank r[4];

    fresh("a");
    mkdir(in_bed("a/.muster-mpi-0000000000000009"), 0700);
    fs_write_replace(in_bed("a/.muster-mpi-0000000000000009/all"), all,
                     sizeof(all) - 1, NULL);
    fs_write_replace(in_bed("a/.muster-mpi-0000000000000009/r3"), note,
                     sizeof(note) - 1, NULL);
    fs_write_replace(in_bed("a/.muster-mpi-0000000000000009/g1"), "", 0, NULL);
    for (uint32_t i = 4; i-- > 0;) {
        r[i] = start(&h, i);
    }
    for (uint32_t i = 4; i-- > 0;) {
        expect(&r[i], i < 2 ? "0/2 10.0.0.1:9" : "1/2 10.0.0.1:9",
               "what was left is not believed");
    }
    expect_empty("a");
}

/* One a year old, as by a node that lost its power; and what is none, or none of
 * ours to remove. */
static void test_old(void)
{
    struct how h = {.launch = 17, .timeout_ms = LONG_MS, .dir = "a", .world = 1,
                    .n_local = 1};
    static const struct { const char *name; mode_t mode; bool goes; } cases[] = {
        {"a/.muster-mpi-00000000000000aa", 0700, true},
        {"a/.muster-mpi-00000000000000ab", 0755, false},
        {"a/.muster-mpi-00000000000000ac0", 0700, false},
        {"a/.muster-mpi-mine", 0700, false},
    };
    static const struct timespec long_ago[2] = {{1000000000, 0}, {1000000000, 0}};
    struct rank r;
    struct stat st;

    fresh("a");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        mkdir(in_bed(cases[i].name), 0700);
        chmod(in_bed(cases[i].name), cases[i].mode);
        utimensat(AT_FDCWD, in_bed(cases[i].name), long_ago, 0);
    }
    mkdir(in_bed("a/.muster-mpi-00000000000000ad"), 0700);
    r = start(&h, 0);
    expect(&r, "0/1 10.0.0.1:17", "beside old ones");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(stat(in_bed(cases[i].name), &st) < 0, cases[i].goes, "%s %s",
               cases[i].name, cases[i].goes ? "goes" : "stays");
    }
    ok(stat(in_bed("a/.muster-mpi-00000000000000ad"), &st) == 0,
       "and so does a new one");
}

static void test_two_launches(void)
{
    struct how one = {.launch = 10, .timeout_ms = LONG_MS, .dir = "a",
                      .world = 2, .n_local = 1};
    struct how two = {.launch = 11, .timeout_ms = LONG_MS, .dir = "a",
                      .world = 2, .n_local = 1};
    struct rank r[4];

    fresh("a");
    r[0] = start(&one, 0);
    r[1] = start(&two, 1);
    r[2] = start(&one, 1);
    r[3] = start(&two, 0);
    expect(&r[0], "0/2 10.0.0.1:10", "one launch");
    expect(&r[1], "1/2 10.0.0.1:11", "another one");
    expect(&r[2], "1/2 10.0.0.1:10", "the one again");
    expect(&r[3], "0/2 10.0.0.1:11", "and the other, in one directory");
    expect_empty("a");
}

/* Where mpirun was started is not shared, the home directory is. */
static void test_home(void)
{
    struct how a = {.launch = 12, .timeout_ms = LONG_MS, .dir = "a",
                    .home = "home", .world = 2, .n_local = 1};
    struct how b = a;
    struct rank r[2];

    b.dir = "b";
    fresh("a");
    fresh("b");
    fresh("home");
    r[0] = start(&a, 0);
    r[1] = start(&b, 1);
    expect(&r[1], "1/2 10.0.0.1:12", "two that share only the home directory");
    expect(&r[0], "0/2 10.0.0.1:12", "meet there");
    expect_empty("a");
    expect_empty("b");
    expect_empty("home");
}

static void test_nobody(void)
{
    struct how a = {.launch = 13, .timeout_ms = SHORT_MS, .dir = "a",
                    .world = 4, .n_local = 2};
    struct how b = a;
    struct rank r[3];

    b.dir = "b";
    fresh("a");
    fresh("b");
    r[0] = start(&a, 0);
    r[1] = start(&b, 2);
    r[2] = start(&b, 3);
    expect_part(&r[0], "2 of 4 ranks are seen in", "rank 0 waits no longer");
    expect_part(&r[1], "rank 0 is not seen in", "nor does the first of a node");
    expect_part(&r[2], "`muster run --hosts ... -- mpirun -n 4 PROGRAM`",
                "nor do others, with what to do");
    expect_empty("a");
    expect_empty("b");
}

/* Of rank 0 only what is left: who has not read yet will be ended with it. */
static void test_fails(void)
{
    struct how h = {.launch = 14, .timeout_ms = LONG_MS, .dir = "a", .world = 1,
                    .n_local = 1, .fails = true};
    struct rank r;

    fresh("a");
    r = start(&h, 0);
    expect(&r, "0/1 10.0.0.1:14", "one that fails");
    expect_empty("a");
}

static void test_hostile(void)
{
    struct how h = {.launch = 15, .timeout_ms = LONG_MS, .dir = "a", .world = 2,
                    .n_local = 1};
    char dir[PATH_MAX];

    fs_path(dir, sizeof(dir), NULL, "%s", in_bed("a/"
                                                 ".muster-mpi-000000000000000f"));
    for (int i = 0; i < 4; i++) {
        struct rank r;

        fresh("a");
        if (i == 3 && geteuid() != 0) {
            skip("only root can give a directory away");
            continue;
        }
        if (i == 0) {
            mkdir(dir, 0700);
            ok(chmod(dir, 0777) == 0, "open to all");
        } else if (i == 1) {
            ok(symlink("/tmp", dir) == 0, "a link");
        } else if (i == 2) {
            fs_write_replace(dir, "x", 1, NULL);
        } else {
            mkdir(dir, 0700);
            ok(chown(dir, 65534, (gid_t)-1) == 0, "somebody else's");
        }
        r = start(&h, 0);
        expect_part(&r, "is no private directory of this user", "rank 0");
        r = start(&h, 1);
        expect_part(&r, "is no private directory of this user", "and others");
    }
    fresh("a");
    expect_empty("a");
}

static void test_no_directory(void)
{
    struct how h = {.launch = 16, .timeout_ms = LONG_MS, .dir = "missing",
                    .world = 2, .n_local = 1};
    struct rank r = start(&h, 0);

    expect_part(&r, "make directory", "nowhere to meet is said at once");
}

int main(void)
{
    if (!mkdtemp(bed)) {
        bail_out("mkdtemp");
    }
    test_list();
    test_order();
    test_meet();
    test_swept();
    test_late();
    test_stale();
    test_old();
    test_two_launches();
    test_home();
    test_nobody();
    test_fails();
    test_hostile();
    test_no_directory();
    fs_remove_tree(bed, NULL);
    return tap_done();
}
