/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/last_words.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_FILE_BYTES = 1 << 20,
    MAX_PREFIX_BYTES = 64, /* "[rank1]: ", as newer PyTorch puts it */
    MAX_CHAIN_BYTES = 256, /* from its words to the next traceback */
    MAX_LINES_AFTER = 12,  /* what libraries say when a process ends */
};

static const char header[] = "Traceback (most recent call last):";
static const char chained[] = " above exception";

/* --- in output --- */

static const char *line_start(const char *text, const char *at)
{
    while (at > text && at[-1] != '\n') {
        at--;
    }
    return at;
}

static const char *next_line(const char *at)
{
    at += strcspn(at, "\n");
    return *at ? at + 1 : at;
}

static const char *last_lines(const char *text, unsigned n_lines)
{
    const char *at = text + strlen(text);

    at -= at > text && at[-1] == '\n';
    while (at > text && !(at[-1] == '\n' && --n_lines == 0)) {
        at--;
    }
    return at;
}

/* The traceback at `next` explains the one before it. */
static bool is_chained(const char *before, const char *next)
{
    const char *from = next - before > MAX_CHAIN_BYTES ? next - MAX_CHAIN_BYTES
                                                       : before;
    const char *found = strstr(from, chained);

    return found && found < next;
}

/* The exception: the first line behind `at` that is not indented, by the same
 * process (the same prefix) as the line of `at`. */
static const char *find_exception(const char *text, const char *at)
{
    const char *prefix = line_start(text, at);
    size_t len = (size_t)(at - prefix);

    if (len > MAX_PREFIX_BYTES) {
        return NULL;
    }
    for (at = next_line(at); *at; at = next_line(at)) {
        if (strncmp(at, prefix, len) == 0 && at[len] && at[len] != ' ' &&
            at[len] != '\n') {
            return at + len;
        }
    }
    return NULL;
}

static bool is_near_end(const char *at)
{
    unsigned n = 0;

    while (*at && n <= MAX_LINES_AFTER) {
        at = next_line(at);
        n++;
    }
    return n <= MAX_LINES_AFTER;
}

static const char *find_last(const char *text, const char *part)
{
    const char *last = NULL;

    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) {
        last = at;
    }
    return last;
}

/* The last traceback, unless the program went on after it. */
static const char *find_traceback(const char *text)
{
    const char *at = find_last(text, header);
    const char *exception = at ? find_exception(text, at) : NULL;

    return exception && !is_near_end(exception) ? NULL : at;
}

const char *last_words_start(const char *text, unsigned n_lines)
{
    const char *end = find_traceback(text);
    const char *start = end, *last = NULL;

    if (!end) {
        return last_lines(text, n_lines);
    }
    for (const char *at = strstr(text, header); at && at <= end;
         at = strstr(at + 1, header)) {
        if (!last || !is_chained(last, at)) {
            start = at;
        }
        last = at;
    }
    return line_start(text, start);
}

void last_words_line(const char *from, char *to, size_t size)
{
    size_t len = strcspn(from, "\r\n");

    if (len >= size) {
        len = size - 1;
        while (len > 0 && ((unsigned char)from[len] & 0xc0) == 0x80) {
            len--;
        }
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)from[i];

        to[i] = c < 0x20 || c == 0x7f ? '?' : from[i];
    }
    to[len] = '\0';
}

void last_words_summary(const char *text, char *to, size_t size)
{
    static const struct {
        const char *part;
        bool whole; /* `part` is itself to be shown */
    } others[] = {{"Fatal Python error: ", true}, {"  what():  ", false}};
    const char *at = find_traceback(text);
    const char *line = at ? find_exception(text, at) : NULL;

    to[0] = '\0';
    for (size_t i = 0; !line && i < ARRAY_SIZE(others); i++) {
        at = find_last(text, others[i].part);
        line = at && !others[i].whole ? at + strlen(others[i].part) : at;
    }
    if (!line) {
        /* A traceback whose beginning did not fit into what is kept. */
        at = find_last(text, "  File \"");
        line = at ? find_exception(text, at) : NULL;
    }
    if (line && is_near_end(line)) {
        last_words_line(line, to, size);
    }
}

/* In the words of gloo, NCCL, sockets and Open MPI. */
bool last_words_is_echo(const char *line)
{
    static const char *const parts[] = {
        "Connection closed by peer", "Connection reset by peer",
        "connection was closed by remote", "Broken pipe", "ncclRemoteError",
        "remote process exited", "Application timeout caused pair closure",
    };

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        if (strcasestr(line, parts[i])) {
            return true;
        }
    }
    return false;
}

/* --- in error files --- */

static int read_file(const char *path, char **ret, size_t *ret_len,
                     struct error *e)
{
    /* Not to be held up, or led elsewhere, by what a worker puts there. */
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK |
                                O_NOFOLLOW);
    _free_ char *data = NULL;
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0) {
        return error_set(e, errno, "open %s", path);
    }
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE_BYTES) {
        return error_text(e, EINVAL, "%s: expected a file of at most %d bytes",
                          path, MAX_FILE_BYTES);
    }
    data = malloc((size_t)st.st_size + 1);
    if (!data) {
        return error_set(e, ENOMEM, "read %s", path);
    }
    n = pread(fd, data, (size_t)st.st_size, 0);
    if (n < 0) {
        return error_set(e, errno, "read %s", path);
    }
    data[n] = '\0';
    *ret = take_ptr(&data);
    *ret_len = (size_t)n;
    return 0;
}

/* {"message": {"message": "...", "extraInfo": {"py_callstack": "..."}}}, or
 * {"message": "..."}. */
static const char *words_of(const json_t *o)
{
    const json_t *message = json_object_get(o, "message");
    const json_t *extra = json_object_get(message, "extraInfo");
    const char *stack = json_string_value(json_object_get(extra,
                                                          "py_callstack"));
    const char *inner = json_string_value(json_object_get(message, "message"));

    if (stack && stack[0]) {
        return stack;
    }
    return inner ? inner : json_string_value(message);
}

int last_words_read(const char *path, char **ret, char **ret_json,
                    struct error *e)
{
    _free_ char *data = NULL;
    size_t len = 0;
    const char *words;
    char *copy;
    json_t *o;
    int rc = read_file(path, &data, &len, e);

    if (rc < 0) {
        return rc;
    }
    o = json_loadb(data, len, 0, NULL);
    words = words_of(o);
    copy = words ? strdup(words) : NULL;
    json_decref(o);
    if (!copy) {
        return error_text(e, ERR_FORMAT, "%s: expected an object with "
                          "\"message\"", path);
    }
    *ret = copy;
    *ret_json = take_ptr(&data);
    return 0;
}
