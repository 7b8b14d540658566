/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Hugging Face libraries read besides the weights. They write it without bringing it
 * onto the disk: after a loss of power it may be empty, or cut, where the weights are
 * whole. Other files with such endings may be anybody's, and say nothing.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/found_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 256 << 20 };

static bool is_json_name(const char *name)
{
    static const char *const names[] = {
        "added_tokens.json", "chat_template.json", "model_index.json", "modules.json",
        "normalizer.json", "special_tokens_map.json", "tokenizer.json", "vocab.json"};
    bool is = str_ends(name, "config.json");

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        is = is || strcmp(name, names[i]) == 0;
    }
    return is;
}

/* Lists of words and pairs, and models of SentencePiece. */
static bool is_words_name(const char *name)
{
    static const char *const names[] = {
        "merges.txt", "sentencepiece.bpe.model", "source.spm", "spiece.model", "target.spm",
        "tokenizer.model", "vocab.txt"};
    bool is = false;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        is = is || strcmp(name, names[i]) == 0;
    }
    return is;
}

/* One that an editor has put a byte order mark before is cut by nobody. */
static bool is_json(const char *text, size_t len)
{
    size_t n = len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    return found_json_is_whole(text + n, len - n);
}

static int check_json(struct io *io, int fd, uint64_t bytes, const char *name, struct error *e)
{
    _free_ char *text = malloc(bytes + 1);
    int rc = text ? io_read_all(io, fd, text, bytes, 0) : -ENOMEM;

    if (rc < 0) {
        return error_set(e, -rc, "read %s", name);
    }
    text[bytes] = '\0';
    return is_json(text, bytes) ? 0
                                : error_text(e, ERR_FORMAT, "%s is cut or damaged: no JSON",
                                             name);
}

/* Zero bytes alone are what a loss of power leaves of a file. */
static bool is_lost(const char *text, size_t len)
{
    size_t n = 0;

    while (n < len && text[n] == '\0') {
        n++;
    }
    return n == len;
}

static int check_cut(struct io *io, int fd, uint64_t bytes, const char *name, struct error *e)
{
    _free_ char *text = malloc(bytes + 1);
    int rc = text ? io_read_all(io, fd, text, bytes, 0) : -ENOMEM;

    if (rc < 0) {
        return error_set(e, -rc, "read %s", name);
    }
    text[bytes] = '\0';
    return !is_lost(text, bytes) && !found_json_is_cut(text, bytes)
               ? 0 : error_text(e, ERR_FORMAT, "%s is cut or damaged: no JSON", name);
}

/* A link, or a directory of that name, is somebody's choice. */
static bool is_no_file(int code)
{
    return code == -ELOOP || code == -EINVAL || code == -ENOENT;
}

/* One of words is not looked into. */
static int check_file(struct io *io, int dir, const char *name,
                      int (*check)(struct io *io, int fd, uint64_t bytes, const char *name,
                                   struct error *e),
                      struct error *e)
{
    int fd = io->ops->open_file(io, dir, name);
    uint64_t bytes = 0;
    int rc;

    if (fd < 0) {
        return is_no_file(fd) ? 0 : found_fail_to_open(fd, name, e);
    }
    rc = io->ops->size(io, fd, &bytes);
    if (rc < 0) {
        error_set(e, -rc, "look at %s", name);
    } else if (bytes == 0) {
        rc = error_text(e, ERR_FORMAT, "%s is empty", name);
    } else if (check && bytes <= MAX_TEXT_BYTES) {
        rc = check(io, fd, bytes, name, e);
    }
    io->ops->close(io, fd);
    return rc;
}

int found_check_text(struct io *io, int dir, const char *name, struct error *e)
{
    bool is_words = is_words_name(name);

    return is_words || is_json_name(name)
               ? check_file(io, dir, name, is_words ? NULL : check_json, e) : 0;
}

int found_check_json(struct io *io, int dir, const char *name, struct error *e)
{
    return check_file(io, dir, name, check_cut, e);
}
