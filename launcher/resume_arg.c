/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/resume_arg.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

static const char hole[] = "{path}";

static int split(const char *arg, struct strlist *words)
{
    _free_ char *copy = strdup(arg);
    char *rest = copy, *word;

    while (rest && (word = strsep(&rest, " \t"))) {
        if (word[0]) {
            strlist_add(words, word);
        }
    }
    return !copy || words->failed ? -ENOMEM : 0;
}

/* The word with each {path} filled in; true if there was one. */
static bool fill(const char *word, const char *path, struct buf *to)
{
    const char *at;
    bool is_filled = false;

    while ((at = strstr(word, hole))) {
        buf_append(to, word, (size_t)(at - word));
        buf_puts(to, path);
        word = at + strlen(hole);
        is_filled = true;
    }
    buf_puts(to, word);
    return is_filled;
}

static void add_words(const struct strlist *words, const char *path,
                      struct strlist *argv)
{
    bool is_filled = false;

    for (size_t i = 0; i < words->n; i++) {
        _buf_ struct buf b = {0};
        bool is_last = i + 1 == words->n;

        is_filled |= fill(words->items[i], path, &b);
        if (is_last && !is_filled && str_ends(words->items[i], "=")) {
            buf_puts(&b, path);
            is_filled = true;
        }
        if (b.failed) {
            argv->failed = true;
            return;
        }
        strlist_add(argv, buf_str(&b));
    }
    if (!is_filled) {
        strlist_add(argv, path);
    }
}

/* How many words from `i` on give the option that `word` begins with: 0 for none. */
static size_t count_given(const struct strlist *argv, size_t i,
                          const char *word)
{
    size_t n = strcspn(word, "=");
    const char *at = argv->items[i];

    if (word[0] != '-' || strncmp(at, word, n) != 0) {
        return 0;
    }
    if (at[n] == '=') {
        return 1;
    }
    return at[n]                                                ? 0
           : i + 1 < argv->n && argv->items[i + 1][0] != '-' ? 2 : 1;
}

int resume_arg_apply(const char *arg, const char *path, struct strlist *argv,
                     struct error *e)
{
    _strlist_ struct strlist words = {0}, all = {0};
    size_t i = 0, n;
    int rc = split(arg, &words);

    while (rc == 0 && i < argv->n) {
        n = i > 0 && words.n ? count_given(argv, i, words.items[0]) : 0;
        if (n == 0) {
            strlist_add(&all, argv->items[i++]);
        }
        i += n;
    }
    if (rc == 0) {
        add_words(&words, path, &all);
    }
    if (rc < 0 || all.failed) {
        return error_set(e, ENOMEM, "name the checkpoint to a worker");
    }
    strlist_release(argv);
    *argv = all;
    all = (struct strlist){0};
    return 0;
}
