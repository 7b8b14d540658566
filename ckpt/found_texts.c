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

/* A link, or a directory of that name, is somebody's choice. */
static bool is_no_file(int code)
{
    return code == -ELOOP || code == -EINVAL || code == -ENOENT;
}

int found_check_text(struct io *io, int dir, const char *name, struct error *e)
{
    bool is_words = is_words_name(name);
    uint64_t bytes = 0;
    int fd, rc;

    if (!is_words && !is_json_name(name)) {
        return 0;
    }
    fd = io->ops->open_file(io, dir, name);
    if (fd < 0) {
        return is_no_file(fd) ? 0 : found_fail_to_open(fd, name, e);
    }
    rc = io->ops->size(io, fd, &bytes);
    if (rc < 0) {
        error_set(e, -rc, "look at %s", name);
    } else if (bytes == 0) {
        rc = error_text(e, ERR_FORMAT, "%s is empty", name);
    } else if (!is_words && bytes <= MAX_TEXT_BYTES) {
        rc = check_json(io, fd, bytes, name, e);
    }
    io->ops->close(io, fd);
    return rc;
}
