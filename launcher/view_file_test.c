/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims of a view: who wins, what a filesystem may answer, and what others may
 * put there. link() is the test's own, so that it can lie as NFS does.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/rundir.h"
#include "launcher/view_file.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN "20261122-101500-abcdef"

static char dir[] = "/tmp/muster-view-test-XXXXXX";
static const struct view_place place = {dir, RUN, 1, NULL};

/* How link() answers. */
static int fake_error;  /* instead of, or ... */
static bool fake_works; /* ... after what it did */

int __wrap_link(const char *from, const char *to);
int __real_link(const char *from, const char *to);

int __wrap_link(const char *from, const char *to)
{
    int rc = fake_error && !fake_works ? 0 : __real_link(from, to);

    if (fake_error) {
        errno = fake_error;
        return -1;
    }
    return rc;
}

static struct view view_of(uint32_t number, uint32_t lead, uint32_t last)
{
    struct view v = {.number = number, .lead = lead};
    bool in[16] = {0};

    for (uint32_t i = lead; i <= last; i++) {
        in[i] = true;
    }
    if (view_set(&v, in, last + 1) < 0) {
        bail_out("out of memory");
    }
    return v;
}

static int claim(const struct view *v, struct view *found, struct error *e)
{
    view_release(found);
    return view_file_claim(&place, v, found, e);
}

/* Files that are there, drafts as well. */
static int n_files(void)
{
    char path[64];
    struct dirent *d;
    DIR *views;
    int n = 0;

    snprintf(path, sizeof(path), "%s/views", dir);
    views = opendir(path);
    while (views && (d = readdir(views))) {
        n += strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
    }
    if (views) {
        closedir(views);
    }
    return n;
}

static void clear(void)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/views", dir);
    fs_remove_tree(path, NULL);
    fake_error = 0;
}

static void test_claim(void)
{
    _view_ struct view a = view_of(2, 1, 3), b = view_of(2, 2, 3), found = {0};
    struct error e = {0};

    is_int(view_file_read(&place, 2, &found, &e), -ENOENT, "there is no view yet");
    is_int(claim(&a, &found, &e), 1, "the first to claim it wins");
    is_int(claim(&b, &found, &e), 0, "the next does not");
    is_int(found.lead, 1, "and is told who leads");
    ok(view_has(&found, 1) && view_has(&found, 2) && !view_has(&found, 0),
       "and whom");
    is_int(claim(&a, &found, &e), 1, "the same claim, made again, still wins");
    is_int(n_files(), 1, "nothing but the view is left there");
    is_int(view_file_read(&place, 2, &found, &e), 0, "all can read it");
    ok(found.lead == 1 && found.shared, "whose it is");
    clear();
}

static void test_verdict(void)
{
    _view_ struct view v = view_of(3, 0, 1), found = {0};

    v.has_verdict = true;
    v.status = 75;
    str_copy(v.reason, sizeof(v.reason), "lost");
    is_int(claim(&v, &found, NULL), 1, "a verdict is claimed");
    is_int(view_file_read(&place, 3, &found, NULL), 0, "and read");
    ok(found.has_verdict && found.status == 75 &&
       strcmp(found.reason, "lost") == 0, "as it was");
    clear();
}

/* What NFS may answer to a request that it repeats, or that it lost. */
static void test_lies(void)
{
    _view_ struct view a = view_of(2, 1, 3), b = view_of(2, 2, 3), found = {0};
    struct error e = {0};

    fake_works = true;
    fake_error = EEXIST;
    is_int(claim(&a, &found, &e), 1, "EEXIST for what was made just now is seen "
           "through");
    is_int(claim(&b, &found, &e), 0, "and believed where another was first");
    clear();
    fake_error = EIO;
    is_int(claim(&a, &found, &e), 1, "so is an error after the deed");
    clear();
    fake_works = false;
    fake_error = EIO;
    is_int(claim(&a, &found, &e), -EIO, "an error without the deed is one");
    like(e.text, "views/1.2", "which names the file");
    is_int(n_files(), 0, "nothing is left of it");
    fake_error = ENOSPC;
    is_int(claim(&a, &found, &e), -ENOSPC, "as is a full disk");
    fake_error = EEXIST;
    is_int(claim(&a, &found, &e), -ENOENT, "what exists and cannot be read is no "
           "answer");
    fake_error = 0;
    is_int(claim(&b, &found, &e), 1, "another can win then");
    is_int(claim(&a, &found, &e), 0, "and the first, coming again, has lost");
    clear();
}

static void put(const char *name, const char *text)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/views", dir);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/views/%s", dir, name);
    if (fs_write_replace(path, text, strlen(text), NULL) < 0) {
        bail_out("write %s", path);
    }
}

#define HEAD "{\"v\":1,\"run\":\"" RUN "\",\"start\":1,\"view\":2,"
#define TAIL "\"more\":0}"

/* By others, who have no business there, or by a disk that fails. */
static void test_bad_bytes(void)
{
    static const struct {
        const char *text, *what;
        int rc;
    } cases[] = {
        {HEAD "\"lead\":1,\"members\":[1,2]," TAIL, "a good one", 0},
        {"", "an empty file", -ERR_FORMAT},
        {HEAD, "half a view", -ERR_FORMAT},
        {"[1]", "no object", -ERR_FORMAT},
        {"{\"v\":2}", "one of a newer muster", -ERR_VERSION},
        {"{\"v\":1,\"run\":\"other\",\"start\":1,\"view\":2,\"lead\":1,\"members\":[1],"
         TAIL, "one of another run", -ERR_FORMAT},
        {HEAD "\"lead\":3,\"members\":[1,2]," TAIL, "a lead that is no member",
         -ERR_FORMAT},
        {HEAD "\"lead\":1,\"members\":[2,1]," TAIL, "members that fall",
         -ERR_FORMAT},
        {HEAD "\"lead\":1,\"members\":[1,1]," TAIL, "one that is there twice",
         -ERR_FORMAT},
        {HEAD "\"lead\":1,\"members\":[]," TAIL, "none at all", -ERR_FORMAT},
        {HEAD "\"lead\":1,\"members\":[1,70000]," TAIL, "one too many",
         -ERR_FORMAT},
        {HEAD "\"lead\":-1,\"members\":[1]," TAIL, "a negative lead",
         -ERR_FORMAT},
        {HEAD "\"lead\":1,\"members\":[1],\"exit_status\":256," TAIL,
         "a status that is none", -ERR_FORMAT},
        {"{\"v\":1,\"run\":\"" RUN "\",\"start\":2,\"view\":2,\"lead\":1,"
         "\"members\":[1]," TAIL, "one of another start", -ERR_FORMAT},
    };
    _view_ struct view a = view_of(2, 1, 3), found = {0};
    struct error e = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        view_release(&found);
        put("1.2", cases[i].text);
        is_int(view_file_read(&place, 2, &found, &e), cases[i].rc, "%s",
               cases[i].what);
    }
    put("1.2", "{}");
    is_int(claim(&a, &found, &e), -ERR_FORMAT, "what does not parse is not "
           "written over");
    like(e.text, "views/1.2", "and named");
    clear();
}

static void test_no_file(void)
{
    _view_ struct view a = view_of(2, 1, 3), found = {0};
    char path[64];

    put("other", "");
    snprintf(path, sizeof(path), "%s/views/1.2", dir);
    mkfifo(path, 0600);
    is_int(view_file_read(&place, 2, &found, NULL), -EINVAL, "a FIFO is not waited "
           "for");
    ok(claim(&a, &found, NULL) < 0, "nor taken for a view");
    clear();
    snprintf(path, sizeof(path), "%s/views", dir);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    ok(claim(&a, &found, NULL) < 0, "a file in the place of the directory is an "
       "error");
    unlink(path);
}

/* --- all at once --- */

enum { N_RIVALS = 8, N_ROUNDS = 20 };

static struct rival {
    pthread_t thread;
    uint32_t rank;
    uint32_t number;
    int rc;
    uint32_t lead;
} rivals[N_RIVALS];

static void *compete(void *arg)
{
    struct rival *r = arg;
    _view_ struct view v = view_of(r->number, r->rank, N_RIVALS), found = {0};

    r->rc = view_file_claim(&place, &v, &found, NULL);
    r->lead = r->rc == 1 ? r->rank : found.lead;
    return NULL;
}

static void test_rivals(void)
{
    int n_bad = 0;

    for (uint32_t number = 1; number <= N_ROUNDS; number++) {
        int n_won = 0;

        for (uint32_t i = 0; i < N_RIVALS; i++) {
            rivals[i] = (struct rival){.rank = i, .number = number};
            if (pthread_create(&rivals[i].thread, NULL, compete, &rivals[i])) {
                bail_out("pthread_create");
            }
        }
        for (int i = 0; i < N_RIVALS; i++) {
            pthread_join(rivals[i].thread, NULL);
            n_won += rivals[i].rc == 1;
            n_bad += rivals[i].rc < 0;
        }
        for (int i = 1; i < N_RIVALS; i++) {
            n_bad += rivals[i].lead != rivals[0].lead;
        }
        n_bad += n_won != 1;
    }
    is_int(n_bad, 0, "of %d at once one wins, and all know which", N_RIVALS);
    is_int(n_files(), N_ROUNDS, "no draft is left");
    clear();
}

/* A host that came later may have a directory of its own there. */
static void test_other_directory(void)
{
    const uint8_t nonce[RUNDIR_NONCE_BYTES] = {7}, other[RUNDIR_NONCE_BYTES] = {8};
    struct view_place at = {dir, RUN, 1, nonce};
    _view_ struct view v = view_of(40, 1, 1), found = {0};
    struct error e = {0};
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/nonce", dir);
    is_int(view_file_claim(&at, &v, &found, &e), -ESTALE, "without the run's nonce");
    ok(strstr(e.text, dir) != NULL, "is named");
    rundir_write_nonce(dir, other, NULL);
    is_int(view_file_claim(&at, &v, &found, NULL), -ESTALE, "or with another");
    is_int(view_file_read(&at, 40, &found, NULL), -ENOENT, "nothing is claimed");
    rundir_write_nonce(dir, nonce, NULL);
    is_int(view_file_claim(&at, &v, &found, NULL), 1, "in the run's own it is");
    unlink(path);
}

int main(void)
{
    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    test_claim();
    test_verdict();
    test_lies();
    test_bad_bytes();
    test_no_file();
    test_rivals();
    test_other_directory();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
