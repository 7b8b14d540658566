/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/dm.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

/* What goes to the kernel and comes back. */
union request {
    struct dm_ioctl head;
    char bytes[4096];
};

static int call(unsigned long what, const char *name, union request *r,
                const char *doing, struct error *e)
{
    _close_ int fd = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);

    if (fd < 0) {
        return error_set(e, errno, "open /dev/mapper/control");
    }
    r->head.version[0] = DM_VERSION_MAJOR;
    r->head.data_size = sizeof(*r);
    r->head.data_start = sizeof(r->head);
    snprintf(r->head.name, sizeof(r->head.name), "%s", name);
    return ioctl(fd, what, r) < 0 ? error_set(e, errno, "%s %s", doing, name) : 0;
}

static int load_table(const char *name, uint64_t sectors, const char *target,
                      const char *params, struct error *e)
{
    union request r = {.head = {.target_count = 1}};
    struct dm_target_spec *spec = (void *)(r.bytes + sizeof(r.head));
    size_t room = sizeof(r) - sizeof(r.head) - sizeof(*spec);

    if (strlen(params) >= room) {
        return error_set(e, E2BIG, "the table of %s", name);
    }
    spec->length = sectors;
    snprintf(spec->target_type, sizeof(spec->target_type), "%s", target);
    memcpy(spec + 1, params, strlen(params) + 1);
    return call(DM_TABLE_LOAD, name, &r, "load the table of", e);
}

int dm_create(const char *name, uint64_t sectors, const char *target,
              const char *params, char *ret_path, size_t size, struct error *e)
{
    union request create = {0}, resume = {0};
    int rc = call(DM_DEV_CREATE, name, &create, "create the device", e);

    if (rc < 0) {
        return rc;
    }
    rc = load_table(name, sectors, target, params, e);
    /* Without DM_SUSPEND_FLAG it begins to work. */
    rc = rc < 0 ? rc : call(DM_DEV_SUSPEND, name, &resume, "start", e);
    if (rc < 0) {
        dm_remove(name, NULL);
        return rc;
    }
    snprintf(ret_path, size, "/dev/dm-%u", minor(create.head.dev));
    return 0;
}

int dm_remove(const char *name, struct error *e)
{
    union request r = {0};

    return call(DM_DEV_REMOVE, name, &r, "remove", e);
}

int dm_message(const char *name, const char *text, struct error *e)
{
    union request r = {0};
    struct dm_target_msg *msg = (void *)(r.bytes + sizeof(r.head));
    size_t room = sizeof(r) - sizeof(r.head) - sizeof(*msg);

    if (strlen(text) >= room) {
        return error_set(e, E2BIG, "a message to %s", name);
    }
    memcpy(msg->message, text, strlen(text) + 1);
    return call(DM_TARGET_MSG, name, &r, "tell", e);
}
