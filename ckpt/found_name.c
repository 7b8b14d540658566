/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What names say, and nothing else: which number is a step, what is a part of a
 * checkpoint and not one itself, and which of two is the later one.
 *
 * Names have many numbers (epoch=02-val_loss=0.32.ckpt). The one behind a word that
 * means a step counts before one behind another word, and of two alike the last.
 * Without such a word it is the last that can be one: neither a decimal number nor of
 * a version, a rank, a type as in bf16, a size as in 7b, or a count of files.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_DIGITS = 19 };

/* What stands before a number makes of it: the more, the better. */
enum says {
    SAYS_RANK,  /* which of several that save together */
    SAYS_OTHER, /* something else */
    SAYS_NOTHING,
    SAYS_EPOCH,
    SAYS_CHECKPOINT,
    SAYS_ITERATION,
    SAYS_STEP,
};

static const struct word {
    const char *text;
    enum says says;
} words[] = {
    {"step", SAYS_STEP},           {"steps", SAYS_STEP},
    {"iter", SAYS_ITERATION},      {"iters", SAYS_ITERATION},
    {"iteration", SAYS_ITERATION}, {"iterations", SAYS_ITERATION},
    {"checkpoint", SAYS_CHECKPOINT}, {"ckpt", SAYS_CHECKPOINT},
    {"epoch", SAYS_EPOCH},         {"epochs", SAYS_EPOCH},
    {"rank", SAYS_RANK},           {"shard", SAYS_RANK},
    {"part", SAYS_RANK},           {"worker", SAYS_RANK},
    {"seed", SAYS_OTHER},          {"fold", SAYS_OTHER},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return isalpha((unsigned char)c);
}

static const char *const endings[] = {".safetensors", ".pt", ".pth", ".bin",
                                      ".ckpt"};

size_t found_stem(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        if (str_ends(name, endings[i])) {
            return strlen(name) - strlen(endings[i]);
        }
    }
    return strlen(name);
}

/* --- numbers --- */

struct number {
    const char *name; /* all of it */
    size_t len;       /* of its stem */
    size_t begin, end;
};

static char at(const struct number *n, size_t place)
{
    return place < n->len ? n->name[place] : '\0';
}

/* The word before it, through what may stand between the two. */
static enum says word_before(const struct number *n)
{
    size_t end = n->begin;

    while (end > 0 && strchr("-_=. ", n->name[end - 1])) {
        end--;
    }
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t len = strlen(words[i].text);

        if (end >= len &&
            strncasecmp(n->name + end - len, words[i].text, len) == 0) {
            return words[i].says;
        }
    }
    return SAYS_NOTHING;
}

static bool is_decimal(const struct number *n)
{
    size_t b = n->begin;

    return (at(n, n->end) == '.' && is_digit(at(n, n->end + 1))) ||
           (b >= 2 && n->name[b - 1] == '.' && is_digit(n->name[b - 2]));
}

/* 1e-05: both of its numbers. */
static bool is_exponent(const struct number *n)
{
    size_t b = n->begin, after = n->end + 1;

    after += at(n, after) == '-' || at(n, after) == '+';
    if (tolower((unsigned char)at(n, n->end)) == 'e' && is_digit(at(n, after))) {
        return true;
    }
    b -= b > 0 && (n->name[b - 1] == '-' || n->name[b - 1] == '+');
    return b >= 2 && tolower((unsigned char)n->name[b - 1]) == 'e' &&
           is_digit(n->name[b - 2]);
}

static bool is_version(const struct number *n)
{
    size_t b = n->begin;

    return b >= 1 && tolower((unsigned char)n->name[b - 1]) == 'v' &&
           (b == 1 || !is_letter(n->name[b - 2]));
}

/* bf16, int8 */
static bool is_type(const struct number *n)
{
    static const char *const types[] = {"bf", "fp", "f", "nf", "mxfp", "int", "uint",
                                        "float", "bfloat"};

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        size_t len = strlen(types[i]);

        if (n->end - n->begin <= 2 && n->begin >= len &&
            strncasecmp(n->name + n->begin - len, types[i], len) == 0 &&
            (n->begin == len || !is_letter(n->name[n->begin - len - 1]))) {
            return true;
        }
    }
    return false;
}

/* 00001-of-00003 */
static bool is_of_several(const struct number *n)
{
    static const char of[] = "-of-";
    size_t len = strlen(of);

    return (n->len - n->end > len && strncmp(n->name + n->end, of, len) == 0 &&
            is_digit(n->name[n->end + len])) ||
           (n->begin > len && strncmp(n->name + n->begin - len, of, len) == 0 &&
            is_digit(n->name[n->begin - len - 1]));
}

/* So many digits always fit into 64 bits; and a step has to fit into 63. */
static bool is_too_large(const struct number *n)
{
    return n->end - n->begin > MAX_DIGITS ||
           strtoull(n->name + n->begin, NULL, 10) > INT64_MAX;
}

static enum says what_is(const struct number *n)
{
    enum says says = word_before(n);

    if (is_too_large(n) || is_of_several(n)) {
        return SAYS_OTHER;
    }
    if (says == SAYS_NOTHING &&
        (is_decimal(n) || is_exponent(n) || is_version(n) || is_type(n) ||
         is_letter(at(n, n->end)))) {
        return SAYS_OTHER;
    }
    /* Of step=12.5 the 5 has the 12 before it, no word. */
    return says;
}

static enum says best_number(const char *name, uint64_t *ret)
{
    struct number n = {.name = name, .len = found_stem(name)};
    enum says best = SAYS_OTHER;

    for (; n.begin < n.len; n.begin = n.end > n.begin ? n.end : n.begin + 1) {
        enum says says;

        n.end = n.begin;
        while (is_digit(at(&n, n.end))) {
            n.end++;
        }
        says = n.end > n.begin ? what_is(&n) : SAYS_OTHER;
        if (says > SAYS_OTHER && says >= best) {
            best = says;
            *ret = strtoull(name + n.begin, NULL, 10);
        }
    }
    return best;
}

bool found_number(const char *name, uint64_t *ret, bool *ret_is_step)
{
    enum says best = best_number(name, ret);

    *ret_is_step = best > SAYS_EPOCH;
    return best != SAYS_OTHER;
}

bool found_says_time(const char *name, uint64_t *ret)
{
    uint64_t n = 0;
    bool is = best_number(name, &n) >= SAYS_EPOCH;

    *ret = is ? n : *ret;
    return is;
}

/* --- parts --- */

/* Whether it is that word, or begins with it and goes on with no letter. */
static bool begins_with_word(const char *name, const char *word)
{
    size_t n = strlen(word);

    return strncasecmp(name, word, n) == 0 && !is_letter(name[n]);
}

bool found_is_of_several_name(const char *name)
{
    struct number n = {.name = name, .len = found_stem(name)};

    for (; n.begin < n.len; n.begin++) {
        n.end = n.begin + 1;
        if (is_digit(name[n.begin]) && is_of_several(&n)) {
            return true;
        }
    }
    return false;
}

bool found_is_rank_name(const char *name)
{
    struct number n = {.name = name, .len = found_stem(name)};

    for (; n.begin < n.len; n.begin++) {
        if (is_digit(name[n.begin]) && word_before(&n) == SAYS_RANK) {
            return true;
        }
    }
    return false;
}

bool found_rank(const char *name, uint64_t *ret)
{
    struct number n = {.name = name, .len = found_stem(name)};
    unsigned n_ranks = 0;

    for (; n.begin < n.len; n.begin = n.end > n.begin ? n.end : n.begin + 1) {
        n.end = n.begin;
        while (is_digit(at(&n, n.end))) {
            n.end++;
        }
        if (n.end > n.begin && word_before(&n) == SAYS_RANK) {
            *ret = strtoull(name + n.begin, NULL, 10);
            n_ranks++;
        }
    }
    return n_ranks == 1;
}

bool found_is_part_name(const char *name)
{
    static const char *const beside[] = {
        "optimizer", "optim", "scheduler", "lr_scheduler", "scaler", "sampler",
        "rng_state", "random_states", "training_args", "trainer_state",
        "tokenizer", "vocab", "dl_state_dict", "custom_checkpoint",
    };
    static const char *const weights[] = {
        "model.safetensors", "pytorch_model.bin", "adapter_model.safetensors",
        "adapter_model.bin", "diffusion_pytorch_model.safetensors",
        "diffusion_pytorch_model.bin", "pytorch_lora_weights.safetensors",
        "pytorch_lora_weights.bin", "pytorch_model_fsdp.bin",
    };

    for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
        if (begins_with_word(name, beside[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(weights); i++) {
        if (strcmp(name, weights[i]) == 0) {
            return true;
        }
    }
    return found_is_of_several_name(name);
}

bool found_is_shard_name(const char *name)
{
    return found_matches(name, "shard-", ".safetensors") && strstr(name, "-model-") &&
           found_is_of_several_name(name);
}

bool found_is_weights_name(const char *name)
{
    bool has_format = found_is_safetensors_name(name) || found_is_torch_name(name);

    return (str_starts(name, "model") && found_is_safetensors_name(name)) ||
           found_is_shard_name(name) ||
           (has_format && (str_starts(name, "pytorch_model") ||
                           str_starts(name, "adapter_model") ||
                           str_starts(name, "pytorch_lora_weights") ||
                           str_starts(name, "diffusion_pytorch_model"))) ||
           str_ends(name, "_model_states.pt") ||
           str_starts(name, "model_optim_rng") || str_starts(name, "model_rng");
}

bool found_is_known_name(const char *name)
{
    return found_is_weights_name(name) ||
           (found_is_part_name(name) && !str_starts(name, "tokenizer") &&
            !str_starts(name, "vocab")) ||
           str_ends(name, "_states.pt") || strcmp(name, "common.pt") == 0 ||
           strcmp(name, "distrib_optim.pt") == 0;
}

bool found_is_aside_name(const char *name)
{
    const char *last = NULL, *next = name;
    size_t n = strlen(FOUND_ASIDE);

    while ((next = strstr(next, FOUND_ASIDE))) {
        last = next;
        next += n;
    }
    return last && (last[n] == '\0' ||
                    (last[n] == '-' &&
                     last[n + 1 + strspn(last + n + 1, "0123456789")] == '\0'));
}

bool found_is_unfinished_name(const char *name)
{
    return strstr(name, ".dirty.") || str_ends(name, ".dirty") ||
           str_starts(name, "tmp-checkpoint-");
}

/* --- order --- */

/* Numbers by their value, all else by its bytes; what is cut comes first. */
static int compare_parts(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t i = 0, k = 0;

    while (i < n_a && k < n_b) {
        size_t from_i = i, from_k = k;

        if (!is_digit(a[i]) || !is_digit(b[k])) {
            if (a[i] != b[k]) {
                return (unsigned char)a[i] < (unsigned char)b[k] ? -1 : 1;
            }
            i++;
            k++;
            continue;
        }
        while (i < n_a && is_digit(a[i])) {
            from_i += a[i] == '0' && from_i == i;
            i++;
        }
        while (k < n_b && is_digit(b[k])) {
            from_k += b[k] == '0' && from_k == k;
            k++;
        }
        if (i - from_i != k - from_k) {
            return i - from_i < k - from_k ? -1 : 1;
        }
        if (memcmp(a + from_i, b + from_k, i - from_i) != 0) {
            return memcmp(a + from_i, b + from_k, i - from_i);
        }
    }
    return i < n_a ? 1 : k < n_b ? -1 : 0;
}

bool found_is_last_name(const char *name)
{
    return begins_with_word(name, "last") || begins_with_word(name, "latest");
}

int found_compare_names(const char *a, const char *b)
{
    int rc;

    if (found_is_last_name(a) != found_is_last_name(b)) {
        return found_is_last_name(a) ? -1 : 1;
    }
    rc = compare_parts(b, found_stem(b), a, found_stem(a));
    return rc ? rc : strcmp(a, b);
}
