/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/saver.h"

#include "base/cleanup.h"
#include "base/machine.h"
#include "ckpt/held.h"
#include "ckpt/step_priv.h"
#include "ckpt/unfinished.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { PLACE_BYTES = 128 };

/* Where a lock of `fd` is seen for sure: a host since it was started, and its mount. */
static int describe_place(int fd, char boot[SAVER_BOOT_BYTES], char to[PLACE_BYTES])
{
    struct stat st;
    int rc = boot[0] ? 0 : machine_boot_id(boot, SAVER_BOOT_BYTES, NULL);

    if (rc < 0 || !boot[0]) {
        return rc < 0 ? rc : -ENOENT;
    }
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    snprintf(to, PLACE_BYTES, "%s %u:%u\n", boot, major(st.st_dev), minor(st.st_dev));
    return 0;
}

void saver_mark(struct step_save *s, int held, char boot[SAVER_BOOT_BYTES])
{
    char place[PLACE_BYTES];

    if (held >= 0 && describe_place(held, boot, place) == 0) {
        (void)step_save_mark(s, place, strlen(place), NULL);
    }
}

/* What was not written to its end is of no place that there is. */
static bool is_here(struct io *io, int dir, int held)
{
    _free_ char *text = NULL;
    char boot[SAVER_BOOT_BYTES] = "", place[PLACE_BYTES];
    size_t len = 0;

    return io_read_file(io, dir, STEP_SAVER, PLACE_BYTES, &text, &len) == 0 &&
           describe_place(held, boot, place) == 0 && strcmp(text, place) == 0;
}

static bool is_still(struct io *io, int root, const char *name, int64_t now_ns)
{
    struct unfinished u = {0};

    return now_ns != SAVER_NO_TIME && unfinished_look(io, root, name, &u, NULL) == 0 &&
           u.changed_ns <= now_ns - SAVER_STILL_NS;
}

/* COMMIT comes before the lock goes, and before the mark does. */
static bool is_marked(struct io *io, int dir)
{
    return step_look_for(io, dir, STEP_SAVER) > 0 && step_look_for(io, dir, STEP_COMMIT) == 0;
}

/* The lock of one whose saver has ended. Less than 0: it is to stay; -EBUSY: for he is at it.
 * `clock`: ask for the time where that is needed, in place of `now_ns`. */
static int lock_ended(struct io *io, int root, const char *name, bool clock, int64_t now_ns)
{
    int dir = io->ops->open_dir(io, root, name), rc = dir < 0 ? dir : -ENOENT;
    _close_ int held = -1;

    if (dir >= 0 && is_marked(io, dir)) {
        held = held_take_all(root, name);
        rc = held < 0 ? held : is_marked(io, dir) ? 0 : -ENOENT; /* as it was all the time */
    }
    if (rc == 0 && !is_here(io, dir, held)) {
        if (clock && unfinished_clock(io, root, &now_ns) < 0) {
            now_ns = SAVER_NO_TIME;
        }
        rc = is_still(io, root, name, now_ns) ? 0 : -EAGAIN;
    }
    if (dir >= 0) {
        io->ops->close(io, dir);
    }
    return rc < 0 ? rc : take_fd(&held);
}

enum saver_state saver_look(struct io *io, int root, const char *name, int64_t now_ns)
{
    _close_ int held = lock_ended(io, root, name, false, now_ns);

    return held >= 0 ? SAVER_ENDED : held == -EBUSY ? SAVER_AT_IT : SAVER_UNKNOWN;
}

int saver_remove(struct io *io, int root, const char *name, struct error *e)
{
    _close_ int held = lock_ended(io, root, name, true, SAVER_NO_TIME);
    int rc = held < 0 ? 0 : step_remove_all(io, root, name, e);

    return rc < 0 ? rc : held >= 0;
}
