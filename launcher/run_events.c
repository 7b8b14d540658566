/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/run_events.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_end(const char *path, struct buf *to, struct error *e)
{
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    off_t from;

    if (fd < 0) {
        return errno == ENOENT ? 0 : error_set(e, errno, "open %s", path);
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return error_set(e, EINVAL, "%s is no file", path);
    }
    from = st.st_size > RUN_EVENTS_MAX_BYTES
               ? st.st_size - RUN_EVENTS_MAX_BYTES : 0;
    while (to->len < RUN_EVENTS_MAX_BYTES) {
        char *at = buf_reserve(to, 65536);
        ssize_t n = at ? pread(fd, at, 65536, from + (off_t)to->len) : -1;

        if (n < 0) {
            return error_set(e, at ? errno : ENOMEM, "read %s", path);
        }
        if (n == 0) {
            break;
        }
        to->len += (size_t)n;
    }
    return 0;
}

static json_t *parse_line(const char *line, size_t len)
{
    json_t *o = json_loadb(line, len, 0, NULL);

    if (json_is_number(json_object_get(o, "t")) &&
        json_is_string(json_object_get(o, "event"))) {
        return o;
    }
    json_decref(o);
    return NULL;
}

int run_events_read(const char *path, size_t max, json_t **ret,
                    struct error *e)
{
    _buf_ struct buf text = {0};
    json_t *all = json_array();
    int rc = read_end(path, &text, e);
    size_t at = 0;

    while (rc == 0 && all && at < text.len) {
        const char *line = text.data + at;
        const char *end = memchr(line, '\n', text.len - at);
        size_t len = end ? (size_t)(end - line) : text.len - at;
        json_t *one = parse_line(line, len);

        if (one) {
            json_array_append_new(all, one);
        }
        if (json_array_size(all) > max) {
            json_array_remove(all, 0);
        }
        at += len + 1;
    }
    if (rc < 0 || !all) {
        json_decref(all);
        return rc < 0 ? rc : error_set(e, ENOMEM, "read %s", path);
    }
    *ret = all;
    return 0;
}
