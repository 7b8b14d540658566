/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/last_bed.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put(struct buf *b, uint64_t n, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        buf_putc(b, i < 8 ? (char)(n >> 8 * i) : 0);
    }
}

/* One stored file, and its line in the directory. */
static void add(struct buf *b, struct buf *directory, const char *name, const void *data,
                size_t len)
{
    uint32_t crc = crc32_gzip_refl(0, data, len);
    size_t at = b->len, n = strlen(name);

    put(b, 0x04034b50, 4);
    put(b, 0, 2);
    put(b, 0x808, 2); /* sizes come behind the bytes, as torch.save has it */
    put(b, 0, 18);
    put(b, n, 2);
    put(b, 0, 2);
    buf_puts(b, name);
    buf_append(b, data, len);
    put(b, 0x08074b50, 4);
    put(b, crc, 4);
    put(b, len, 4);
    put(b, len, 4);
    put(directory, 0x02014b50, 4);
    put(directory, 0, 4);
    put(directory, 0x808, 2);
    put(directory, 0, 6);
    put(directory, crc, 4);
    put(directory, len, 4);
    put(directory, len, 4);
    put(directory, n, 2);
    put(directory, 0, 12);
    put(directory, at, 4);
    buf_puts(directory, name);
}

/* `change` and `is_wrong` as last_bed_put() says. */
static void put_file(int dir, const char *name, const struct buf *pickle, off_t change,
                     bool is_wrong)
{
    static const char weights[] = "weights";
    _buf_ struct buf b = {0}, directory = {0};
    _close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    size_t at;

    add(&b, &directory, "x/data.pkl", pickle->data, pickle->len);
    at = b.len;
    add(&b, &directory, "x/data/0", weights, sizeof(weights) - 1);
    add(&b, &directory, "x/version", "3\n", 2);
    if (is_wrong) {
        *(char *)memmem(b.data + at, b.len - at, weights, sizeof(weights) - 1) ^= 1;
    }
    at = b.len;
    buf_append(&b, directory.data, directory.len);
    put(&b, 0x06054b50, 4);
    put(&b, 0, 4);
    put(&b, 3, 2);
    put(&b, 3, 2);
    put(&b, directory.len, 4);
    put(&b, at, 4);
    put(&b, 0, 2);
    if (fd < 0 || b.failed || fs_write_all(fd, b.data, b.len) < 0 ||
        ftruncate(fd, (off_t)b.len + change) < 0) {
        bail_out("write %s", name);
    }
}

void last_bed_put(int dir, const char *name, uint64_t global_step, off_t change,
                  bool is_wrong)
{
    static const char before[] = "\x80\x02}(X\5\0\0\0epochK\1X\x0b\0\0\0global_step\x8a\x08",
                      after[] = "u.";
    _buf_ struct buf pickle = {0};

    buf_append(&pickle, before, sizeof(before) - 1);
    put(&pickle, global_step, 8);
    buf_append(&pickle, after, sizeof(after) - 1);
    put_file(dir, name, &pickle, change, is_wrong);
}

/* "key=12", "key=None", "key={", or "}". */
static void put_word(struct buf *pickle, const char *word)
{
    const char *value = strchr(word, '=');

    if (!value) {
        buf_putc(pickle, 'u');
        return;
    }
    buf_putc(pickle, 'X');
    put(pickle, (uint64_t)(value - word), 4);
    buf_append(pickle, word, (size_t)(value - word));
    value++;
    if (*value == 'N') {
        buf_putc(pickle, 'N');
    } else if (*value == '{') {
        buf_puts(pickle, "}(");
    } else {
        uint64_t n = strtoull(value, NULL, 10);

        buf_putc(pickle, n <= UINT16_MAX ? 'M' : 'J');
        put(pickle, n, n <= UINT16_MAX ? 2 : 4);
    }
}

void last_bed_put_dict(int dir, const char *name, const char *words)
{
    _free_ char *copy = strdup(words);
    _buf_ struct buf pickle = {0};
    char *rest = copy;

    buf_puts(&pickle, "\x80\x02}(");
    for (char *word; (word = strsep(&rest, " "));) {
        if (*word) {
            put_word(&pickle, word);
        }
    }
    buf_puts(&pickle, "u.");
    put_file(dir, name, &pickle, 0, false);
}
