/* SPDX-License-Identifier: Apache-2.0 */
/* What cannot be read is told as that: it is no damage, and nobody is to call whole what
 * was not looked at. */
#include <config.h>

#include "ckpt/found.h"

#include "base/cleanup.h"
#include "ckpt/found_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opening that name, as a directory or as a file, fails so many times. */
static const char *bad_name;
static int bad_code, bad_times;
static bool is_bad_file;

static bool is_bad(const char *name)
{
    return strcmp(name, bad_name) == 0 && bad_times-- > 0;
}

static int bad_open_dir(struct io *io, int dir, const char *name)
{
    return !is_bad_file && is_bad(name) ? bad_code
                                        : io_system_ops.open_dir(io, dir, name);
}

static int bad_open_file(struct io *io, int dir, const char *name)
{
    return is_bad_file && is_bad(name) ? bad_code
                                       : io_system_ops.open_file(io, dir, name);
}

static struct io_ops ops;
static struct io io = {.ops = &ops};

/* Diffusers' step 5: weights in one directory, their index in another. */
static void put_step(int top, const char *name)
{
    static const char st[] = "\2\0\0\0\0\0\0\0{}", pickle[] = "\x80\2}.";
    static const char index[] = "{\"weight_map\":{\"a\":\"weights.other\"}}";
    static const struct {
        const char *name, *bytes;
        size_t len;
    } files[] = {
        {"model.safetensors", st, sizeof(st) - 1},
        {"optimizer.bin", pickle, sizeof(pickle) - 1},
        {"random_states_0.pkl", pickle, sizeof(pickle) - 1},
        {"unet/x.index.json", index, sizeof(index) - 1},
        {"unet/weights.other", st, sizeof(st) - 1},
    };
    char path[FOUND_NAME_BYTES];

    mkdirat(top, name, 0700);
    snprintf(path, sizeof(path), "%s/unet", name);
    mkdirat(top, path, 0700);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        snprintf(path, sizeof(path), "%s/%s", name, files[i].name);
        found_bed_put(top, path, files[i].bytes, files[i].len);
    }
}

static void test_check(void)
{
    static const struct {
        const char *name;
        int code, want;
        bool is_file;
    } cases[] = {
        {"", 0, 0, false},
        {"unet", -EIO, -EIO, false},
        {"unet", -EMFILE, -EMFILE, false},
        {"unet", -ENOENT, 0, false},  /* it went meanwhile */
        {"unet", -ENOTDIR, 0, false}, /* a file, or a link */
        {"unet", -ELOOP, 0, false},
        {"weights.other", -ENOENT, -ERR_FORMAT, true},
        {"weights.other", -EINVAL, -ERR_FORMAT, true},
        {"weights.other", -EMFILE, -EMFILE, true},
        {"weights.other", -EIO, -EIO, true},
        {"model.safetensors", -EIO, -EIO, true},
    };
    char path[FOUND_BED_PATH_BYTES];
    int top = found_bed_open(path);

    put_step(top, "checkpoint-5");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct found f;

        bad_name = "";
        ok(found_one(&io, top, "checkpoint-5", &f), "a checkpoint");
        bad_name = cases[i].name;
        bad_code = cases[i].code;
        bad_times = 1;
        is_bad_file = cases[i].is_file;
        is_int(found_check(&io, top, &f, true, &facts, &e), cases[i].want,
               "'%s' is opened with %d: %s", cases[i].name, cases[i].code, e.text);
    }
    found_bed_close(top, path);
}

/* What cannot be looked into is there: nobody knows what it is. */
static void test_unread(void)
{
    static const struct {
        const char *name;
        int code;
        bool is_found;
    } cases[] = {
        {"checkpoint-5", -EACCES, true},
        {"checkpoint-5", -EIO, true},
        {"global_step5", -EACCES, true},
        {"step-5", -EACCES, true},
        {"checkpoint-5", -ENOENT, false},
        {"checkpoint-5", -ENOTDIR, false}, /* a file, or a link */
        {"private-5", -EACCES, false},     /* nothing says that it is one */
    };
    char path[FOUND_BED_PATH_BYTES];
    int top = found_bed_open(path);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        _free_ struct found *all = NULL;
        struct error e = {0};
        size_t n = 0;

        mkdirat(top, cases[i].name, 0700);
        bad_name = cases[i].name;
        bad_code = cases[i].code;
        bad_times = 2;
        is_bad_file = false;
        is_int(found_list(&io, top, &all, &n, &e), 0, "a list with %s", cases[i].name);
        is_int((int)n, cases[i].is_found, "whose opening ends with %d", cases[i].code);
        if (n == 1) {
            is_int(found_check(&io, top, &all[0], false, &facts, &e), cases[i].code,
                   "which is what is wrong: %s", e.text);
            is_str(found_state_name(cases[i].code), "unreadable", "it is called so");
        }
        unlinkat(top, cases[i].name, AT_REMOVEDIR);
    }
    found_bed_close(top, path);
}

/* Where not all could be listed, nothing is known to be missing. */
static void test_lacks(void)
{
    struct found f = {.name = "checkpoint-6"}, whole = {.name = "checkpoint-5"};
    char path[FOUND_BED_PATH_BYTES], what[64];
    int top = found_bed_open(path);

    put_step(top, "checkpoint-5");
    put_step(top, "checkpoint-6");
    bad_name = "unet";
    bad_code = -EIO;
    is_bad_file = false;
    for (int times = 0; times < 2; times++) {
        bad_times = times;
        ok(!found_lacks(&io, top, &f, &whole, what, sizeof(what)),
           times ? "nobody knows what it has" : "it has all");
    }
    found_bed_put(top, "checkpoint-5/unet/more", "", 0);
    bad_times = 0;
    ok(found_lacks(&io, top, &f, &whole, what, sizeof(what)), "it lacks");
    is_str(what, "unet/more", "a file");
    found_bed_close(top, path);
}

int main(void)
{
    ops = io_system_ops;
    ops.open_dir = bad_open_dir;
    ops.open_file = bad_open_file;
    test_check();
    test_lacks();
    test_unread();
    return tap_done();
}
