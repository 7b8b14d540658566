/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that nobody is to start from for now (MUSTER_AVOID_PATHS), by one rank. */
#include <config.h>

#include "ckpt/api_bed.h"

#include "base/cleanup.h"
#include "ckpt/io.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char root[API_BED_ROOT_BYTES];

/* The path of the newest that is there, and a newline. */
static void newest_line(const char *name, char *to, size_t size)
{
    _free_ struct step_entry *entries = NULL;
    char path[5000];
    _close_ int dir = -1;
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (step_list(io_system(), dir, &entries, &n, NULL) < 0 || n == 0) {
        bail_out("nothing in %s", path);
    }
    snprintf(to, size, "%s/%s\n", path, entries[0].name);
}

/* From some of them nobody is to start for now. */
static void test_avoided(void)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 1};
    struct muster_ckpt *ck = api_bed_open(root, "avoided", NULL, NULL);
    int32_t v = 0;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32,
                                   .data = &v};
    char lines[3][16384], both[32768];
    int64_t step = -1;

    is_int(muster_ckpt_tensor(ck, &t), 0, "a number");
    for (v = 1; v <= 3; v++) {
        is_int(muster_ckpt_save(ck, v * 10, MUSTER_CKPT_WAIT, NULL), 0,
               "step %d", v * 10);
        newest_line("avoided", lines[v - 1], sizeof(lines[0]));
    }
    muster_ckpt_close(ck);
    setenv("MUSTER_AVOID_PATHS", lines[2], 1);
    ck = api_bed_open(root, "avoided", NULL, &o);
    is_int(muster_ckpt_tensor(ck, &t), 0, "again");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "the newest");
    is_int(step, 20, "of the others");
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0,
           "nothing is passed over for it");
    ok(step == 20 && v == 2, "it is loaded");
    is_int(muster_ckpt_load(ck, 30, 0, NULL), 0, "who asks for that one has it");
    is_int(v, 3, "loaded");
    v = 4;
    is_int(muster_ckpt_save(ck, 25, MUSTER_CKPT_WAIT, NULL), 0, "one is saved");
    is_int(muster_ckpt_load(ck, 30, 0, NULL), 0, "it is not removed");
    is_int(muster_ckpt_load(ck, 20, 0, NULL), -ENOENT, "but what is not kept is");
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "and the newest");
    is_int(step, 25, "is that");
    muster_ckpt_close(ck);
    snprintf(both, sizeof(both), "%s%s", lines[2], lines[1]);
    setenv("MUSTER_AVOID_PATHS", both, 1);
    ck = api_bed_open(root, "avoided", NULL, &o);
    is_int(muster_ckpt_tensor(ck, &t), 0, "once more");
    v = 5;
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "there is one");
    is_int(step, 25, "that");
    is_int(muster_ckpt_latest(ck, 25, &step), -ENOENT, "below it there is none");
    is_int(muster_ckpt_latest(ck, 31, &step), 0, "however many are avoided");
    is_int(step, 25, "as far as there is another");
    muster_ckpt_close(ck);
    unsetenv("MUSTER_AVOID_PATHS");
}

/* There is no other one. */
static void test_avoided_all(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "avoided-all", NULL, NULL);
    int32_t v = 1;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32,
                                   .data = &v};
    char line[16384];
    int64_t step = -1;

    is_int(muster_ckpt_tensor(ck, &t), 0, "a number");
    is_int(muster_ckpt_save(ck, 10, MUSTER_CKPT_WAIT, NULL), 0, "saved");
    newest_line("avoided-all", line, sizeof(line));
    muster_ckpt_close(ck);
    setenv("MUSTER_AVOID_PATHS", line, 1);
    ck = api_bed_open(root, "avoided-all", NULL, NULL);
    is_int(muster_ckpt_tensor(ck, &t), 0, "again");
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0,
           "it is better than none");
    is_int(step, 10, "its step");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "likewise");
    is_int(muster_ckpt_latest(ck, 10, &step), -ENOENT, "below it there is none");
    muster_ckpt_close(ck);
    unsetenv("MUSTER_AVOID_PATHS");
}

/* One that is avoided, and newer than all others that turn out to be damaged. */
static void test_avoided_newer(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "avoided-newer", NULL, NULL);
    int32_t v = 1;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32, .data = &v};
    char line[16384], path[PATH_MAX];
    int64_t step = -1;

    is_int(muster_ckpt_tensor(ck, &t), 0, "a number");
    is_int(muster_ckpt_save(ck, 10, MUSTER_CKPT_WAIT, NULL), 0, "saved");
    api_bed_find_file(root, "avoided-newer", NULL, path, sizeof(path));
    v = 2;
    is_int(muster_ckpt_save(ck, 20, MUSTER_CKPT_WAIT, NULL), 0, "and another one");
    newest_line("avoided-newer", line, sizeof(line));
    muster_ckpt_close(ck);
    ok(api_bed_flip(path, api_bed_length(path) - 1, 3), "the older one is damaged");
    setenv("MUSTER_AVOID_PATHS", line, 1);
    ck = api_bed_open(root, "avoided-newer", NULL, NULL);
    is_int(muster_ckpt_tensor(ck, &t), 0, "again");
    v = 0;
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 1, "one is passed over");
    ok(step == 20 && v == 2, "and the newer one, which was avoided, is better than none");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "as far as can be seen");
    is_int(step, 10, "the other one is not avoided");
    v = 0;
    is_int(muster_ckpt_read(ck, 20, &t), 0, "who asks for the avoided one then has it");
    is_int(v, 2, "read");
    muster_ckpt_close(ck);
    unsetenv("MUSTER_AVOID_PATHS");
}

int main(void)
{
    api_bed_begin(root);
    test_avoided();
    test_avoided_all();
    test_avoided_newer();
    return api_bed_end(root);
}
