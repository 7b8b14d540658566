/* SPDX-License-Identifier: Apache-2.0 */
/* What programs name as their last checkpoint: whatever is in such a file, and links. */
#include <config.h>

#include "ckpt/tracker.h"

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

#define MEGATRON "latest_checkpointed_iteration.txt"

static const struct {
    const char *file, *text, *want; /* NULL: nothing */
} cases[] = {
    {MEGATRON, "100", "iter_0000100"},
    {MEGATRON, "100\n", "iter_0000100"},
    {MEGATRON, "  7\r\n", "iter_0000007"},
    {MEGATRON, "0", "iter_0000000"},
    {MEGATRON, "12345678", "iter_12345678"},
    {MEGATRON, "release", "release"},
    {MEGATRON, "", NULL}, /* as after a crash */
    {MEGATRON, "\n\n", NULL},
    {MEGATRON, "-1", NULL},
    {MEGATRON, "1.5", NULL},
    {MEGATRON, "1 2", NULL},
    {MEGATRON, "0x10", NULL},
    {MEGATRON, "99999999999999999999", NULL},
    {MEGATRON, "../100", NULL},
    {MEGATRON, "iter_0000100", NULL},
    {"latest", "global_step100", "global_step100"},
    {"latest", "global_step100\n", "global_step100"},
    {"latest", "my tag", "my tag"},
    {"latest_universal", "global_step7_universal", "global_step7_universal"},
    {"latest", "", NULL},
    {"latest", "..", NULL},
    {"latest", ".", NULL},
    {"latest", ".hidden", NULL},
    {"latest", "a/b", NULL},
    {"latest", "/etc/passwd", NULL},
    {"latest", "../global_step100", NULL},
};

static void test_text(void)
{
    char name[FOUND_NAME_BYTES], large[FOUND_NAME_BYTES + 16];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool is = tracker_parse(cases[i].file, cases[i].text, strlen(cases[i].text),
                                name);

        is_str(is ? name : "nothing", cases[i].want ? cases[i].want : "nothing",
               "case %zu", i);
    }
    memset(large, 'a', sizeof(large));
    ok(!tracker_parse("latest", large, FOUND_NAME_BYTES, name), "a name that is too long");
    ok(tracker_parse("latest", large, FOUND_NAME_BYTES - 1, name) &&
           strlen(name) == FOUND_NAME_BYTES - 1, "the longest that there is");
    ok(!tracker_parse("latest", "a\0b", 3, name), "one with a zero byte");
}

static void put(int dir, const char *name, const char *text)
{
    _close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || fs_write_all(fd, text, strlen(text)) < 0) {
        bail_out("write %s", name);
    }
}

/* All names, in the order in which they were found, a blank behind each. */
static const char *named(int dir)
{
    static char text[1024];
    _strlist_ struct strlist names = {0};
    int rc = tracker_read(dir, &names);

    snprintf(text, sizeof(text), "%s", rc < 0 ? "failed" : "");
    for (size_t i = 0; i < names.n; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ",
                 names.items[i]);
        ok(tracker_has(&names, names.items[i]), "and it has what it lists");
    }
    ok(!tracker_has(&names, "iter_"), "and nothing else");
    return text;
}

static void test_directory(void)
{
    char path[] = "/tmp/tracker.XXXXXX", absolute[64];
    int dir;

    if (!mkdtemp(path)) {
        bail_out("mkdtemp");
    }
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_str(named(dir), "", "an empty directory");
    put(dir, MEGATRON, "20\n");
    put(dir, "latest", "global_step10");
    is_str(named(dir), "iter_0000020 global_step10 ", "two programs");
    put(dir, MEGATRON, "");
    unlinkat(dir, "latest", 0);
    mkdirat(dir, "latest", 0700);
    is_str(named(dir), "", "one that was cut, and a directory of that name");
    unlinkat(dir, "latest", AT_REMOVEDIR);
    mkfifoat(dir, "latest", 0600);
    is_str(named(dir), "", "a FIFO, which nobody waits for");
    unlinkat(dir, "latest", 0);

    put(dir, "epoch=1.ckpt", "x");
    put(dir, "epoch=2.ckpt", "x");
    mkdirat(dir, "iter_0000005", 0700);
    symlinkat("nowhere", dir, "gone.ckpt");
    symlinkat("/etc", dir, "away");
    is_str(named(dir), "", "links that lead elsewhere");
    symlinkat("epoch=1.ckpt", dir, "last.ckpt");
    is_str(named(dir), "epoch=1.ckpt ", "a link to one of them");
    unlinkat(dir, "last.ckpt", 0);
    snprintf(absolute, sizeof(absolute), "%s/epoch=2.ckpt", path);
    symlinkat(absolute, dir, "last.ckpt");
    is_str(named(dir), "epoch=2.ckpt ", "by its whole path");
    unlinkat(dir, "last.ckpt", 0);
    symlinkat("latest", dir, "last");
    symlinkat("iter_0000005/", dir, "latest");
    is_str(named(dir), "iter_0000005 ", "and by way of another one, under a name of "
           "DeepSpeed's");
    close(dir);
    fs_remove_tree(path, NULL);
    is_int(tracker_read(-1, &(struct strlist){0}), -EBADF, "a directory that cannot be read");
}

int main(void)
{
    test_text();
    test_directory();
    return tap_done();
}
