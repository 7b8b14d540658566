/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/beside.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char header[] =
    "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";

static char dir[64];

/* A file of safetensors without its last `cut` bytes, as old as that. */
static void put(const char *name, size_t cut, int age_s)
{
    uint8_t bytes[8 + sizeof(header) - 1 + 16] = {sizeof(header) - 1};
    struct timespec times[2] = {{.tv_sec = 1000000 - age_s},
                                {.tv_sec = 1000000 - age_s}};
    char path[PATH_MAX], *slash;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    slash = strrchr(path, '/');
    *slash = '\0';
    if (fs_mkdirs(path, NULL) < 0) {
        bail_out("make %s", path);
    }
    *slash = '/';
    memcpy(bytes + 8, header, sizeof(header) - 1);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || fs_write_all(fd, bytes, sizeof(bytes) - cut) < 0 ||
        futimens(fd, times) < 0) {
        bail_out("write %s", path);
    }
    close(fd);
}

/* What is found of `name`; `want` is its name in the directory, or "". */
static struct beside find(const char *name, enum beside_state state,
                          const char *want, const char *what)
{
    struct error e = {0};
    struct beside b;
    char path[PATH_MAX], full[PATH_MAX] = "";

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (want[0]) {
        snprintf(full, sizeof(full), "%s/%s", dir, want);
    }
    is_int(beside_find(io_system(), path, &b, &e), 0, "%s: looked%s", what, e.text);
    is_str(beside_state_name(b.state), beside_state_name(state), "%s", what);
    is_str(b.path, full, "%s: which", what);
    return b;
}

static void test_names(void)
{
    static const struct {
        const char *a, *b;
        bool is_like;
    } cases[] = {
        {"step-20.pt", "step-400.pt", true},
        {"step-20.pt", "step-20.pt", true},
        {"20", "7", true},
        {"a1b2", "a10b20", true},
        {"step-20", "step-", false},
        {"step-20.pt", "step-20.pt.new", false},
        {"step-20.pt.new", "step-20.pt", false},
        {"step-20.pt", ".step-20.pt", false},
        {"step-20.pt", "best-20.pt", false},
        {"last.pt", "last.pt", false},
        {"step-000000000020-0f3a9c2e",
         "step-000000000040-9c2e0f3a", true},
        {"step-000000000020-0f3a9c2e", "step-40", false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_int(beside_is_like(cases[i].a, cases[i].b), cases[i].is_like,
               "%s and %s", cases[i].a, cases[i].b);
    }
}

static void test_files(void)
{
    struct beside b;

    put("own/at-20", 0, 9);
    find("own/at-20", BESIDE_ITSELF, "own/at-20", "it is there");
    find("own/at-10", BESIDE_OTHER, "own/at-20", "it is not, another is");
    put("own/at-9000", 0, 99);
    put("own/at-40", 0, 5);
    put("own/at-60.new", 0, 1);
    put("own/other", 0, 1);
    put("own/at-50", sizeof(header) - 1 + 8 + 16, 1);
    b = find("own/at-10", BESIDE_OTHER, "own/at-40",
             "the newest by its time, not empty, named like it");
    ok(b.step == 40 && !b.is_whole && b.changed_ns == 999995000000000,
       "what is known of it");
    find("own/last", BESIDE_NONE, "", "a name without a number has none beside");
    find("own/by-10", BESIDE_NONE, "", "nor one unlike all others");
    put("own/net-10.ckpt", 0, 9);
    put("own/net-20.ckpt", 0, 5);
    find("own/net-5.ckpt", BESIDE_OTHER, "own/net-20.ckpt",
         "what ends as files of torch.save do may be of another format");
    find("away/at-10", BESIDE_NO_DIR, "", "its directory is not there");
    find("own/at-10/", BESIDE_OTHER, "own/at-40", "a slash behind it says nothing");
    find("own/at-20/model", BESIDE_NONE, "", "what is called as a file is no directory");
}

/* A directory of a script's own that lacks what others have is not the one before. */
static void test_plain(void)
{
    struct error e = {0};
    struct beside b;
    char path[PATH_MAX], want[PATH_MAX];

    put("plain/step_10/model.safetensors", 0, 9);
    put("plain/step_10/optim.safetensors", 0, 9);
    put("plain/step_20/model.safetensors", 0, 5);
    put("plain/step_30/model.safetensors", 0, 1);
    put("plain/step_30/optim.safetensors", 0, 1);
    snprintf(path, sizeof(path), "%s/plain/step_30", dir);
    snprintf(want, sizeof(want), "%s/plain/step_10", dir);
    is_int(beside_older(io_system(), path, "", &b, &e), 0, "an older one%s", e.text);
    is_str(b.path, want, "that is whole");
    ok(b.is_whole && b.step == 10, "as is known");
}

/* What may be read says more than what is newer. */
static void test_one_is_read(void)
{
    char path[PATH_MAX];
    int fd;

    put("mixed/net-10.ckpt", 0, 9);
    snprintf(path, sizeof(path), "%s/mixed/net-10.ckpt", dir);
    fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0 || fs_write_all(fd, "\x80\x02}.", 4) < 0 ||
        futimens(fd, (struct timespec[]){{.tv_sec = 10}, {.tv_sec = 10}}) < 0) {
        bail_out("write %s", path);
    }
    close(fd);
    put("mixed/net-20.ckpt", 0, 5);
    ok(find("mixed/net-5.ckpt", BESIDE_OTHER, "mixed/net-10.ckpt",
            "one that is whole, though another one of which nobody knows is newer").is_whole,
       "which is told");
}

/* Whoever reads a pipe waits. */
static void test_pipe(void)
{
    char path[PATH_MAX];

    put("odd/at-20", 0, 9);
    snprintf(path, sizeof(path), "%s/odd/at-30", dir);
    ok(mkfifo(path, 0600) == 0, "a pipe");
    find("odd/at-10", BESIDE_OTHER, "odd/at-20", "it is none");
}

static void test_known_formats(void)
{
    struct beside b;

    put("st/m-10.safetensors", 0, 9);
    put("st/m-30.safetensors", 3, 1);
    b = find("st/m-5.safetensors", BESIDE_OTHER, "st/m-10.safetensors",
             "one that is cut is none");
    ok(b.is_whole && b.step == 10, "the one before is whole");
    put("st/step=40-loss=0.32.safetensors", 0, 1);
    b = find("st/step=9-loss=0.50.safetensors", BESIDE_OTHER,
             "st/step=40-loss=0.32.safetensors", "one with other numbers, too");
    ok(b.step == 40, "of which one is the step");
    put("st/m-10.safetensors", 3, 9);
    find("st/m-5.safetensors", BESIDE_NONE, "", "all are cut");
}

static void test_directories(void)
{
    put("tree/step-10/model", 0, 9);
    put("tree/step-20/model", 0, 5);
    put("tree/step-30/other", 0, 1);
    put("tree/best/model", 0, 1);
    find("tree/step-5/model", BESIDE_OTHER, "tree/step-20/model",
         "each has a directory of its own");
    find("tree/step-5", BESIDE_OTHER, "tree/step-30", "or is one");
    find("tree/none/model", BESIDE_NO_DIR, "", "without a number it is another's");
    find("tree/away-3/step-5/model", BESIDE_NO_DIR, "", "two levels up is too far");
}

static void older(const char *name, const char *avoided, enum beside_state state,
                  const char *want, const char *what)
{
    struct error e = {0};
    struct beside b;
    char path[PATH_MAX], lines[2 * PATH_MAX] = "", full[PATH_MAX] = "";

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(lines, sizeof(lines), "%s\n%s/%s\n", path, dir, avoided);
    if (want[0]) {
        snprintf(full, sizeof(full), "%s/%s", dir, want);
    }
    is_int(beside_older(io_system(), path, lines, &b, &e), 0, "%s: looked%s", what,
           e.text);
    is_str(beside_state_name(b.state), beside_state_name(state), "%s", what);
    is_str(b.path, full, "%s: which", what);
}

/* From one that is there nobody is to start. */
static void test_older(void)
{
    put("old/at-40", 0, 5);
    older("old/at-40", "", BESIDE_NONE, "", "there is only that one");
    put("old/at-9", 0, 1);
    put("old/at-30", 0, 99);
    put("old/at-50", 0, 1);
    put("old/at-20.new", 0, 1);
    put("old/other", 0, 1);
    older("old/at-40", "", BESIDE_OTHER, "old/at-30", "the one below, however old");
    older("old/at-40", "old/at-30", BESIDE_OTHER, "old/at-9", "but not from that");
    older("old/at-9", "old/at-30", BESIDE_NONE, "", "of the lowest there is none");
    older("old/other", "", BESIDE_NONE, "", "nor of one without a number");
    put("oldst/m-10.safetensors", 0, 9);
    put("oldst/m-20.safetensors", 3, 9);
    put("oldst/m-30.safetensors", 0, 9);
    older("oldst/m-30.safetensors", "", BESIDE_OTHER, "oldst/m-10.safetensors",
          "one that is cut is none");
    put("oldtree/step-10/model", 0, 9);
    put("oldtree/step-20/model", 0, 9);
    put("oldtree/step-20/model-7", 0, 9);
    older("oldtree/step-20/model", "", BESIDE_OTHER, "oldtree/step-10/model",
          "each has a directory of its own");
    older("oldtree/step-20", "", BESIDE_OTHER, "oldtree/step-10", "or is one");
    put("oldodd/m-40.x", 0, 9);
    put("oldodd/m-040.x", 0, 1);
    put("oldodd/m-99999999999999999999.x", 0, 1);
    older("oldodd/m-40.x", "", BESIDE_NONE, "", "one of the same number is no older one, "
          "and one that is too large is none");
    put("oldodd/m-7.x", 0, 9);
    put("oldodd/m-07.x", 0, 2);
    put("oldodd/m-007.x", 0, 5);
    older("oldodd/m-40.x", "", BESIDE_OTHER, "oldodd/m-07.x", "of one number the newest");
    for (int i = 0; i <= 16; i++) {
        char name[64];

        snprintf(name, sizeof(name), "oldmany/m-%d.safetensors", 100 + i);
        put(name, 3, 9);
    }
    put("oldmany/m-50.safetensors", 0, 9);
    older("oldmany/m-115.safetensors", "", BESIDE_OTHER, "oldmany/m-50.safetensors",
          "behind fifteen that are cut there may be one");
    older("oldmany/m-116.safetensors", "", BESIDE_NONE, "", "but no more are read");
    older("oldaway/at-10", "", BESIDE_NO_DIR, "", "its directory is not there");
}

static bool has_whole(const char *in, const char *name)
{
    char path[PATH_MAX];
    _close_ int fd = -1;

    snprintf(path, sizeof(path), "%s/%s", dir, in);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return beside_has_whole(io_system(), fd, name);
}

/* Whether its format is one of those that are known. */
static void test_has_whole(void)
{
    put("has/m-10.safetensors", 0, 9);
    ok(!has_whole("has", "m-10.safetensors"), "none but itself");
    put("has/m-20.safetensors", 3, 9);
    ok(!has_whole("has", "m-10.safetensors"), "nor one that is cut");
    put("has/n-30.safetensors", 0, 9);
    put("has/m-40.ckpt", 0, 9);
    put("has/m-50.safetensors.new", 0, 9);
    ok(!has_whole("has", "m-10.safetensors"), "nor what is named otherwise");
    ok(!has_whole("has", "m-50.ckpt"), "nor one of an own format");
    ok(has_whole("has", "m-20.safetensors"), "one that is whole, of the same name");
    for (int i = 0; i < 16; i++) {
        char name[64];

        snprintf(name, sizeof(name), "hasmany/m-%d.safetensors", 100 + i);
        put(name, i == 15 ? 0 : 3, 9);
    }
    ok(has_whole("hasmany", "m-5.safetensors"), "behind fifteen that are cut");
    put("hasmany/m-099.safetensors", 3, 9);
    ok(!has_whole("hasmany", "m-5.safetensors"), "but no more are read");
    ok(!has_whole("hasnone", "m-5.safetensors"), "nor where there is no directory");
}

static void test_wrong(void)
{
    struct error e = {0};
    struct beside b;
    char path[PATH_MAX + 1];

    is_int(beside_find(io_system(), "rel/at-10", &b, &e), -EINVAL, "a relative path");
    like(e.text, "absolute", "is named");
    is_int(beside_find(io_system(), "", &b, NULL), -EINVAL, "none");
    memset(path, 'a', sizeof(path));
    path[0] = '/';
    path[PATH_MAX] = '\0';
    is_int(beside_find(io_system(), path, &b, NULL), -EINVAL, "one that is too long");
    is_int(beside_find(io_system(), "/muster-beside_test-10", &b, NULL), 0, "in the root");
    is_int(b.state, BESIDE_NONE, "there is none");
    is_int(beside_find(io_system(), "/", &b, NULL), 0, "the root");
    is_int(b.state, BESIDE_ITSELF, "is there");
}

static int no_list(struct io *io, int at, int (*each)(void *arg, const char *name), void *arg)
{
    (void)io, (void)at, (void)each, (void)arg;
    return -EIO;
}

/* What cannot be looked at is not gone, nor is there nothing beside it. */
static void test_unreadable(void)
{
    struct io_ops ops = *io_system()->ops;
    struct io io = {.ops = &ops};
    struct error e = {0};
    struct beside b;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/own/loop-10", dir);
    ok(symlink("loop-10", path) == 0, "a link to itself");
    is_int(beside_find(io_system(), path, &b, &e), -ELOOP, "cannot be looked at");
    like(e.text, path, "which is told");
    ops.list = no_list;
    snprintf(path, sizeof(path), "%s/own/at-10", dir);
    is_int(beside_find(&io, path, &b, &e), -EIO, "a directory that cannot be read");
    snprintf(path, sizeof(path), "%s/own/at-40", dir);
    is_int(beside_older(&io, path, "", &b, &e), -EIO, "nor for an older one");
}

int main(void)
{
    snprintf(dir, sizeof(dir), "/tmp/beside.XXXXXX");
    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    test_names();
    test_files();
    test_one_is_read();
    test_pipe();
    test_plain();
    test_known_formats();
    test_directories();
    test_older();
    test_has_whole();
    test_wrong();
    test_unreadable();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
