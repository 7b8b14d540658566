/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the files of a checkpoint: damage of each of them, in words that say it, and what
 * is another program's, which says nothing of damage.
 */
#include <config.h>

#include "ckpt/others_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a file of each name does to a whole checkpoint. */
static void test_inside(void)
{
    static const struct {
        const char *name, *bytes;
        int rc;
    } cases[] = {
        {"optimizer.bin", "not one", -ERR_FORMAT},
        {"optimizer.bin", "", -ERR_FORMAT},
        {"vocab.bin", "not one", 0},
        {"tokens.bin", "not one", 0},
        {"unet/weights.bin", "not one", 0},
        {"unet/diffusion_pytorch_model.safetensors", "cut", -ERR_FORMAT},
        {"unet/x.safetensors.index.json", "{", -ERR_FORMAT},
        {"unet/x.safetensors.index.json", "{\"weight_map\":{\"a\":\"no.safetensors\"}}",
         -ERR_FORMAT},
        {"random_states_0.pkl", "\x80\x02}", -ERR_FORMAT},
        {"unet/config.json", "", -ERR_FORMAT},
        {"unet/config.json", "{\"a\": [1, 2", -ERR_FORMAT},
        {"unet/config.json", "{\"a\": \"\xff\"}", -ERR_FORMAT},
        {"unet/config.json", "{\"a\": NaN}", 0},
        {"unet/config.json", "\xef\xbb\xbf{\"a\": 1}", 0},
        {"scheduler/scheduler_config.json", "", -ERR_FORMAT},
        {"generation_config.json", "{", -ERR_FORMAT},
        {"model_index.json", "{", -ERR_FORMAT},
        {"tokenizer.json", "", -ERR_FORMAT},
        {"tokenizer.json", "{\"\\u0000\": \"\\ud83d\"}", 0},
        {"special_tokens_map.json", "{\"x\"", -ERR_FORMAT},
        {"tokenizer.model", "", -ERR_FORMAT},
        {"spiece.model", "", -ERR_FORMAT},
        {"spiece.model", "\n", 0},
        {"merges.txt", "", -ERR_FORMAT},
        {"tokenizer/vocab.txt", "", -ERR_FORMAT},
        {"tokenizer/vocab.txt", "a", 0},
        {"samples.json", "{}\n{}\n", 0},
        {"done.json", "", 0},
        {"README.md", "", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct others_bed b;
        char path[256];

        others_bed_open(&b);
        others_bed_put_all(&b, "checkpoint-5", OTHERS_DIFFUSERS "random_states_0.pkl");
        mkdirat(b.dir, "checkpoint-5/scheduler", 0700);
        mkdirat(b.dir, "checkpoint-5/tokenizer", 0700);
        snprintf(path, sizeof(path), "checkpoint-5/%s", cases[i].name);
        others_bed_put_bytes(&b, path, cases[i].bytes, strlen(cases[i].bytes));
        is_int(others_bed_check(&b, "checkpoint-5", &facts, &e), cases[i].rc,
               "%s of '%s' (%s)", cases[i].name, cases[i].bytes, e.text);
        others_bed_close(&b);
    }
}

/* A text that is a link is where somebody has put it, and one that is too large is not
 * looked at. */
static void test_texts(void)
{
    struct found_facts facts;
    struct error e = {0};
    struct others_bed b;
    int fd;

    others_bed_open(&b);
    others_bed_put_all(&b, "step-5", "model.safetensors config.json tokenizer.json");
    is_int(others_bed_check(&b, "step-5", &facts, &e), 0, "a model: %s", e.text);
    others_bed_put_bytes(&b, "step-5/config.json", "", 0);
    is_int(others_bed_check(&b, "step-5", &facts, &e), -ERR_FORMAT, "with an empty config.json");
    like(e.text, "step-5: config.json is empty", "which is said");
    others_bed_put_bytes(&b, "step-5/config.json", "\0\0", 2);
    is_int(others_bed_check(&b, "step-5", &facts, &e), -ERR_FORMAT, "with one of zeros");
    like(e.text, "step-5: config.json is cut or damaged: no JSON", "likewise");
    others_bed_put(&b, "step-5/config.json");
    unlinkat(b.dir, "step-5/tokenizer.json", 0);
    symlinkat("nowhere", b.dir, "step-5/tokenizer.json");
    is_int(others_bed_check(&b, "step-5", &facts, &e), 0, "with a link");
    unlinkat(b.dir, "step-5/tokenizer.json", 0);
    fd = openat(b.dir, "step-5/tokenizer.json", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    is_int(ftruncate(fd, (256 << 20) + 1), 0, "with one of zeros that is large");
    is_int(others_bed_check(&b, "step-5", &facts, &e), 0, "of which nobody knows");
    close(fd);
    others_bed_close(&b);
    others_bed_open(&b);
    others_bed_put_all(&b, "checkpoint-5", OTHERS_TRAINER "trainer_state.json");
    others_bed_put_bytes(&b, "checkpoint-5/tokenizer_config.json", "{\"a\"", 4);
    is_int(others_bed_check(&b, "checkpoint-5", &facts, &e), -ERR_FORMAT, "the Trainer's, cut");
    like(e.text, "checkpoint-5: tokenizer_config.json is cut", "is named");
    others_bed_close(&b);
}

/* What is wrong is said in words that say it. */
static void test_reasons(void)
{
    static const char *const states[] = {"{\"global_step\":5.0}", "{\"global_step\":\"5\"}",
                                         "{}"};
    struct found_facts facts;
    struct error e = {0};
    struct others_bed b;

    others_bed_open(&b);
    others_bed_put_all(&b, "checkpoint-5", OTHERS_TRAINER "trainer_state.json");
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        others_bed_put_bytes(&b, "checkpoint-5/trainer_state.json", states[i], strlen(states[i]));
        is_int(others_bed_check(&b, "checkpoint-5", &facts, &e), -ERR_FORMAT, "%s", states[i]);
        like(e.text, "no global_step that is a whole number", "is no other step");
    }
    others_bed_put(&b, "checkpoint-5/trainer_state.json");
    unlinkat(b.dir, "checkpoint-5/optimizer.pt", 0);
    symlinkat("model.safetensors", b.dir, "checkpoint-5/optimizer.pt");
    is_int(others_bed_check(&b, "checkpoint-5", &facts, &e), -ELOOP, "a link");
    like(e.text, "optimizer.pt is a link, and none is followed", "is called one");
    unlinkat(b.dir, "checkpoint-5/optimizer.pt", 0);
    mkfifoat(b.dir, "checkpoint-5/optimizer.pt", 0600);
    is_int(others_bed_check(&b, "checkpoint-5", &facts, &e), -EINVAL, "a pipe");
    like(e.text, "optimizer.pt is no file", "is no file");
    unlinkat(b.dir, "checkpoint-5/trainer_state.json", 0);
    mkfifoat(b.dir, "checkpoint-5/trainer_state.json", 0600);
    is_int(others_bed_check(&b, "checkpoint-5", &facts, &e), -EINVAL, "one in the place of JSON");
    like(e.text, "trainer_state.json is no file: a pipe", "likewise");
    others_bed_close(&b);
}

/* A file of another program says by its bytes that it is one, and nothing of damage. */
static void test_foreign(void)
{
    static const char zip[] =
        "PK\3\4\12\0\0\0\0\0\0\0\0\0\371\357\276\161\1\0\0\0\1\0\0\0\1\0\0\0ab"
        "PK\1\2\12\0\12\0\0\0\0\0\0\0\0\0\371\357\276\161\1\0\0\0\1\0\0\0\1\0\0\0"
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0a"
        "PK\5\6\0\0\0\0\1\0\1\0\57\0\0\0\40\0\0\0\0";
    static const struct {
        const char *name, *bytes;
        size_t len;
        bool is_foreign;
        const char *why;
    } cases[] = {
        {"step-1.ckpt", "of its own", 10, true, "not a format that muster knows: neither"},
        {"step-1.pt", "\0\0\0\0", 4, true, "not a format that muster knows"},
        {"vocab.bin", "words", 5, true, "not a format that muster knows"},
        {"step-1.pt", zip, sizeof(zip), true, "not a format that muster knows: an archive"},
        {"step-1.pt", zip, sizeof(zip) - 1, false, "the archive is cut"},
        {"optimizer.pt", zip, sizeof(zip), false, ""},
        {"optimizer.pt", "of its own", 10, false, ""},
        {"pytorch_model-7.bin", "of its own", 10, false, ""},
        {"step-1.pt", "", 0, false, "empty"},
        {"step-1.pt", "\x80\x02}", 3, false, "cut"},
        {"step-1.safetensors", "of its own", 10, false, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct others_bed b;

        others_bed_open(&b);
        others_bed_put_bytes(&b, cases[i].name, cases[i].bytes, cases[i].len);
        is_int(others_bed_check(&b, cases[i].name, &facts, &e), -ERR_FORMAT,
               "%s of %zu bytes is not whole", cases[i].name, cases[i].len);
        is_int(facts.is_foreign, cases[i].is_foreign, "and whether it is another's: %s",
               e.text);
        like(e.text, cases[i].why, "why");
        others_bed_close(&b);
    }
}

/* A shape of more lengths than there can be here is no damage. */
static void test_limit(void)
{
    static const char bytes[] =
        "\x58\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":"
        "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}   x";
    struct found_facts facts;
    struct error e = {0};
    struct others_bed b;

    others_bed_open(&b);
    others_bed_put_bytes(&b, "step-1.safetensors", bytes, sizeof(bytes) - 1);
    is_str(found_state_name(others_bed_check(&b, "step-1.safetensors", &facts, &e)), "unreadable",
           "of 17 lengths: %s", e.text);
    like(e.text, "at most 16 lengths", "and why");
    others_bed_close(&b);
}

/* What the Trainer says of itself: as Python writes it, which is not always JSON. */
static void test_state(void)
{
    static const struct {
        const char *bytes;
        int rc;
    } cases[] = {
        {"{\"global_step\":5,\"log_history\":[{\"grad_norm\":NaN,\"loss\":-Infinity}]}", 0},
        {"{\"total_flos\":36893488147419103232,\"best_metric\":Infinity,"
         "\"global_step\":5}", 0},
        {"{\"x\":\"\\\"NaN\", \"global_step\":5}", 0},
        {"{\"global_step\":6,\"x\":NaN}", -ERR_FORMAT},
        {"{\"global_step\":NaN}", -ERR_FORMAT},
        {"{\"global_step\":36893488147419103232}", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":NaN", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":nan}", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":NaNNaN}", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":\"", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":\"\\", -ERR_FORMAT},
        {"NaN", -ERR_FORMAT},
        {"-", -ERR_FORMAT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct others_bed b;

        others_bed_open(&b);
        others_bed_put_all(&b, "checkpoint-5", OTHERS_TRAINER);
        others_bed_put_bytes(&b, "checkpoint-5/trainer_state.json", cases[i].bytes,
                             strlen(cases[i].bytes));
        is_int(others_bed_check(&b, "checkpoint-5", &facts, &e), cases[i].rc,
               "its state is '%s' (%s)", cases[i].bytes, e.text);
        others_bed_close(&b);
    }
}

int main(void)
{
    test_inside();
    test_texts();
    test_reasons();
    test_foreign();
    test_limit();
    test_state();
    return tap_done();
}
