/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/unfinished.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/step_priv.h"

#include <errno.h>
#include <string.h>

static int list_name(void *arg, const char *name)
{
    strlist_add(arg, name);
    return 0;
}

static int list_names(struct io *io, int dir, struct strlist *ret)
{
    int rc = io->ops->list(io, dir, list_name, ret);

    return rc < 0 ? rc : ret->failed ? -ENOMEM : 0;
}

static int take_time(struct io *io, int fd, struct unfinished *u)
{
    int64_t changed_ns = 0;
    int rc = io->ops->changed(io, fd, &changed_ns);

    if (rc == 0 && changed_ns > u->changed_ns) {
        u->changed_ns = changed_ns;
    }
    return rc;
}

/* What is no file that can be opened is none of ours, and says nothing. */
static int take_file(struct io *io, int dir, const char *name, struct unfinished *u)
{
    uint64_t bytes = 0;
    int fd = io->ops->open_file(io, dir, name), rc;

    if (fd == -ENOENT || fd == -ELOOP || fd == -EINVAL) {
        return 0;
    }
    rc = fd < 0 ? fd : take_time(io, fd, u);
    rc = rc < 0 ? rc : io->ops->size(io, fd, &bytes);
    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    u->bytes += bytes;
    return rc;
}

static int look_inside(struct io *io, int dir, struct unfinished *u)
{
    _strlist_ struct strlist names = {0};
    int rc = step_look_for(io, dir, STEP_COMMIT);

    rc = rc > 0 ? -ENOENT : rc;
    rc = rc < 0 ? rc : take_time(io, dir, u);
    rc = rc < 0 ? rc : list_names(io, dir, &names);
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        rc = take_file(io, dir, names.items[i], u);
    }
    return rc;
}

int unfinished_look(struct io *io, int root, const char *name, struct unfinished *ret,
                    struct error *e)
{
    struct unfinished u = {.changed_ns = INT64_MIN};
    int dir = io->ops->open_dir(io, root, name);
    int rc = dir < 0 ? dir : look_inside(io, dir, &u);

    if (dir >= 0) {
        io->ops->close(io, dir);
    }
    if (rc < 0) {
        return error_set(e, -rc, "look at %s", name);
    }
    *ret = u;
    return 0;
}

int unfinished_clock(struct io *io, int root, int64_t *ret_ns)
{
    int rc = io->ops->touch(io, root);

    return rc < 0 ? rc : io->ops->changed(io, root, ret_ns);
}

/* Its run is over where it is not there any more. */
static int is_renewed(struct io *io, int root, const char *name, int64_t now_ns)
{
    struct unfinished u = {.changed_ns = INT64_MIN};
    int rc = take_file(io, root, name, &u);

    return rc < 0 ? rc : u.changed_ns > now_ns - INT64_C(1000000) * LEASE_STALE_MS;
}

int unfinished_has_run(struct io *io, int root, int64_t now_ns, char ret[LEASE_NAME_BYTES],
                       struct error *e)
{
    _strlist_ struct strlist names = {0};
    int rc = list_names(io, root, &names);

    if (rc < 0) {
        return error_set(e, -rc, "look for runs that save there");
    }
    for (size_t i = 0; i < names.n; i++) {
        const char *name = names.items[i];

        rc = str_starts(name, LEASE_PREFIX) ? is_renewed(io, root, name, now_ns) : 0;
        if (rc < 0) {
            return error_set(e, -rc, "read %s, by which a run saves there", name);
        }
        if (rc > 0) {
            str_copy(ret, LEASE_NAME_BYTES, name);
            return 1;
        }
    }
    return 0;
}
