/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What words in names say where nothing else tells what a file is for: scripts call their
 * files as they like, and a directory with a number may as well have the data of a year in
 * it. Words are runs of letters, whatever their case.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What training goes on from: a word is one of these, or goes on behind it ("modelstate"),
 * but for those that are short, which are the whole word, or have an s behind them. */
static const char *const state_begins[] = {
    "model", "optim", "state", "checkpoint", "weight", "sched", "network", "trainer",
    "discriminator", "encoder", "decoder", "extractor", "backbone", "transformer", "adapter",
};
static const char *const state_words[] = {
    "ckpt", "opt", "param", "parameter", "scaler", "rng", "random", "training", "net", "unet",
    "ema", "generator", "policy", "actor", "critic", "agent", "lora", "module", "rank", "head",
    "vae", "lr", "amp", "snapshot", "resume",
};

static const char *const data_words[] = {
    "dataset", "data", "sample", "prediction", "pred", "embedding", "feature", "feat", "image",
    "output", "result", "metric", "loss", "losses", "log", "eval", "evaluation", "val",
    "validation", "test", "batch", "batches", "label", "input", "cache", "grad", "gradient",
    "activation", "logit", "token", "tokenizer", "vocab", "generation", "generated", "latent",
    "plot", "profile", "trace",
};

static const char *const away_words[] = {
    "tmp", "temp", "partial", "incomplete", "unfinished", "writing", "bak", "backup", "old",
    "trash", "deleted", "broken", "corrupt", "corrupted",
};

static bool is_letter(char c)
{
    return isalpha((unsigned char)c);
}

/* The next word from *at on, which then is behind it; 0: there is none. */
static size_t next_word(const char **at, const char *end, const char **ret)
{
    while (*at < end && !is_letter(**at)) {
        (*at)++;
    }
    *ret = *at;
    while (*at < end && is_letter(**at)) {
        (*at)++;
    }
    return (size_t)(*at - *ret);
}

static bool is_word(const char *word, size_t len, const char *text)
{
    size_t n = strlen(text);

    return strncasecmp(word, text, n < len ? n : len) == 0 &&
           (len == n || (len == n + 1 && tolower((unsigned char)word[n]) == 's'));
}

static bool is_one_of(const char *word, size_t len, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is_word(word, len, words[i])) {
            return true;
        }
    }
    return false;
}

static bool says_state(const char *word, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(state_begins); i++) {
        size_t n = strlen(state_begins[i]);

        if (len >= n && strncasecmp(word, state_begins[i], n) == 0) {
            return true;
        }
    }
    return is_one_of(word, len, state_words, ARRAY_SIZE(state_words));
}

static bool is_data(const char *word, size_t len)
{
    return is_one_of(word, len, data_words, ARRAY_SIZE(data_words));
}

/* Of "image_encoder.pt" the encoder counts, of "training_data.pt" the data. */
enum found_word found_word_of(const char *name)
{
    const char *at = name, *end = name + found_stem(name), *word;
    bool has_state = false, has_data = false;

    for (size_t len; (len = next_word(&at, end, &word)) > 0;) {
        if (is_word(word, len, "data") || is_word(word, len, "dataset")) {
            return FOUND_WORD_DATA;
        }
        has_state = has_state || says_state(word, len);
        has_data = has_data || is_data(word, len);
    }
    return has_state ? FOUND_WORD_STATE : has_data ? FOUND_WORD_DATA : FOUND_WORD_NONE;
}

/* A number behind it makes a value of it, as of loss=0.32. */
static bool has_value(const char *at)
{
    while (*at && !is_letter(*at)) {
        if (isdigit((unsigned char)*at++)) {
            return true;
        }
    }
    return false;
}

/* The words that come first, or last, say what it is; others what it was saved for. */
bool found_is_data_name(const char *name)
{
    const char *at = name, *end = name + strlen(name), *word;
    bool is_first = true;

    for (size_t len; (len = next_word(&at, end, &word)) > 0;) {
        const char *next = at, *other;
        bool is_last = next_word(&next, end, &other) == 0;

        if ((is_first || is_last) && is_data(word, len) && !has_value(at)) {
            return is_last || !is_data(other, (size_t)(next - other)) ||
                   !has_value(next);
        }
        is_first = false;
    }
    return false;
}

bool found_is_put_away_name(const char *name)
{
    const char *at = name, *end = name + strlen(name), *word;

    for (size_t len; (len = next_word(&at, end, &word)) > 0;) {
        if (is_one_of(word, len, away_words, ARRAY_SIZE(away_words))) {
            return true;
        }
    }
    return found_is_unfinished_name(name);
}

/* Where what is put behind a name begins; NULL: nothing is. A number may follow .tmp. */
static const char *find_ending(const char *name)
{
    static const char *const endings[] = {".part", ".partial", ".incomplete", ".temp"};
    const char *at = strstr(name, ".tmp");

    if (at && !is_letter(at[strlen(".tmp")])) {
        return at;
    }
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        if (str_ends(name, endings[i])) {
            return name + strlen(name) - strlen(endings[i]);
        }
    }
    return NULL;
}

bool found_final_name(const char *name, char ret[FOUND_NAME_BYTES])
{
    const char *from = name + (name[0] == '.'), *end = find_ending(from);

    if (!end && (str_starts(from, "tmp_") || str_starts(from, "tmp-") ||
                 str_starts(from, "tmp."))) {
        from += strlen("tmp_");
        end = from + strlen(from);
    }
    if (!end || end - from >= FOUND_NAME_BYTES) {
        return false;
    }
    snprintf(ret, FOUND_NAME_BYTES, "%.*s", (int)(end - from), from);
    return found_is_torch_name(ret) || found_is_safetensors_name(ret) || str_ends(ret, ".json");
}
