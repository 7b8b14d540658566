/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few calls by which checkpoints reach a filesystem. io_system() makes them;
 * tests put a filesystem of their own behind them, one that loses power.
 *
 * Directories are open descriptors, names have no slash, and no link is followed.
 * Each call returns 0 (or what it says) or -errno.
 */
#ifndef MUSTER_CKPT_IO_H
#define MUSTER_CKPT_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct io;

/* A file's bytes, written in blocks of `block_bytes`, the last one shorter. */
struct io_blocks {
    const void *data;
    uint64_t len;
    size_t block_bytes;
    /* Called for each block, in order, before it is written; less than 0 ends
     * it, and is returned. May be NULL. The thread is the caller's. */
    int (*before)(void *arg, uint64_t block);
    /* The same, once it was handed over: there is time while the disk has it. */
    int (*after)(void *arg, uint64_t block);
    /* How many of them may be under way just now. NULL: as many as the disk takes. */
    unsigned (*depth)(void *arg);
    void *arg;
};

struct io_ops {
    /* A descriptor of a directory; of a file for reading (-ELOOP: a link; -EINVAL:
     * a pipe, socket, device or directory); of one that is made, 0600, and was not
     * there (-EEXIST). */
    int (*open_dir)(struct io *io, int dir, const char *name);
    int (*open_file)(struct io *io, int dir, const char *name);
    int (*create)(struct io *io, int dir, const char *name);
    int (*make_dir)(struct io *io, int dir, const char *name); /* 0700 */
    int (*close)(struct io *io, int fd);

    /* Space for a file's first `len` bytes, or -ENOSPC; nothing where the
     * filesystem cannot tell. -EFBIG where this process may write no such file (and
     * no SIGXFSZ). */
    int (*allocate)(struct io *io, int fd, uint64_t len);
    /* How many bytes: at least 1, or 0 at the end of a file that is read. */
    ssize_t (*write)(struct io *io, int fd, const void *data, size_t len,
                     uint64_t at);
    ssize_t (*read)(struct io *io, int fd, void *to, size_t len, uint64_t at);
    int (*size)(struct io *io, int fd, uint64_t *ret);
    /* What tells it from all other files that there were in its directory: of an open
     * one (`name` NULL), or of that name in the directory `fd`. NULL: nobody saves. */
    int (*identity)(struct io *io, int fd, const char *name, uint64_t *ret);
    /* When a file was changed last, in ns, by the filesystem's clock, not ours; and that
     * it is changed just now. */
    int (*changed)(struct io *io, int fd, int64_t *ret_ns);
    int (*touch)(struct io *io, int fd);
    /* What was written to a file, or the names in a directory, is on the disk. */
    int (*sync)(struct io *io, int fd);

    /* Over one that is there. */
    int (*rename)(struct io *io, int dir, const char *from, const char *to);
    int (*unlink)(struct io *io, int dir, const char *name);
    int (*remove_dir)(struct io *io, int dir, const char *name);
    /* Calls `each` for every name but "." and "..", until it returns less than
     * 0, which is returned then. */
    int (*list)(struct io *io, int dir, int (*each)(void *arg, const char *name),
                void *arg);
};

struct io {
    const struct io_ops *ops;
    /* From the start of a file, all of it. NULL: one block after the other. */
    int (*write_blocks)(struct io *io, int fd, const struct io_blocks *b);
    bool is_shared; /* several threads may call at once */
};

extern const struct io_ops io_system_ops;

/* The kernel's. */
struct io *io_system(void);

/* All of it, through short writes. */
int io_write_all(struct io *io, int fd, const void *data, size_t len,
                 uint64_t at);
int io_write_blocks(struct io *io, int fd, const struct io_blocks *b);
/* Just so many bytes: -ENODATA where the file ends before. */
int io_read_all(struct io *io, int fd, void *to, size_t len, uint64_t at);
/* A whole file of at most `max` bytes; the caller frees *ret, which is followed by
 * a zero byte. -EFBIG, -ENOMEM and others. */
int io_read_file(struct io *io, int dir, const char *name, size_t max,
                 char **ret, size_t *ret_len);

#endif
