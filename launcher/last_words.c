/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/last_words.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <ctype.h>
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

    return memmem(from, (size_t)(next - from), chained, sizeof(chained) - 1);
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

/* The last one that begins before `end`. */
static const char *find_before(const char *text, const char *end, const char *part)
{
    size_t len = strlen(part);

    for (const char *at = end; at-- > text;) {
        if (*at == *part && strncmp(at, part, len) == 0) {
            return at;
        }
    }
    return NULL;
}

static const char *find_last(const char *text, const char *part)
{
    return find_before(text, text + strlen(text), part);
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
    const char *start = find_traceback(text), *before;

    if (!start) {
        return last_lines(text, n_lines);
    }
    while ((before = find_before(text, start, header)) && is_chained(before, start)) {
        start = before;
    }
    return line_start(text, start);
}

void last_words_line(const char *text, char *to, size_t size)
{
    const char *from = text + strspn(text, " \t\r\n");
    size_t left = strcspn(from, "\r\n"), at = 0;

    while (left) {
        uint32_t c;
        size_t n = utf8_next_of(from, left, &c);
        bool shown = n && utf8_is_printable(c);

        n = n ? n : 1;
        if (at + (shown ? n : 1) >= size) {
            break;
        }
        memcpy(to + at, shown ? from : "?", shown ? n : 1);
        at += shown ? n : 1;
        from += n;
        left -= n;
    }
    to[at] = '\0';
}

/* What muster itself says to who waits for a peer (segment_say_left()). */
static const char peer_left[] = "has ended, and others wait for it in a collective";

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
    if (!line) {
        at = find_last(text, peer_left);
        line = at ? line_start(text, at) : NULL;
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
        "MPI_ERR_PROC_FAILED", "MPI_ERR_PROC_ABORTED", "MPI_ERR_REVOKED", peer_left,
    };

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        if (strcasestr(line, parts[i])) {
            return true;
        }
    }
    return false;
}

/* --- in error files --- */

static int read_file(const char *path, struct error_file *f, size_t *ret_len,
                     struct error *e)
{
    /* Not to be held up, or led elsewhere, by what a worker puts there. */
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK |
                                O_NOFOLLOW);
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0) {
        return error_set(e, errno, "open %s", path);
    }
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE_BYTES) {
        return error_text(e, EINVAL, "%s: expected a file of at most %d bytes",
                          path, MAX_FILE_BYTES);
    }
    f->json = malloc((size_t)st.st_size + 1);
    if (!f->json) {
        return error_set(e, ENOMEM, "read %s", path);
    }
    n = pread(fd, f->json, (size_t)st.st_size, 0);
    if (n < 0) {
        return error_set(e, errno, "read %s", path);
    }
    f->json[n] = '\0';
    f->written_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000 +
                    (uint64_t)st.st_mtim.tv_nsec;
    *ret_len = (size_t)n;
    return 0;
}

static bool is_surrogate(const char *at, char from, char to)
{
    return at[0] == '\\' && at[1] == 'u' && tolower((unsigned char)at[2]) == 'd' &&
           tolower((unsigned char)at[3]) >= from &&
           tolower((unsigned char)at[3]) <= to &&
           isxdigit((unsigned char)at[4]) && isxdigit((unsigned char)at[5]);
}

/* Python writes what is no character, as in names that are not UTF-8, as half of a
 * pair of \uXXXX, which no JSON is; and the program may have printed a zero. Each
 * becomes the mark for that, which is as long. */
static void mark_no_characters(char *json)
{
    static const char zero[] = "\\u0000", mark[] = "\\ufffd";

    for (char *at = json; (at = strchr(at, '\\')) && at[1];) {
        if (is_surrogate(at, '8', 'b') && is_surrogate(at + 6, 'c', 'f')) {
            at += 12;
        } else if (is_surrogate(at, '8', 'f') || str_starts(at, zero)) {
            memcpy(at, mark, sizeof(mark) - 1);
            at += 6;
        } else {
            at += 2;
        }
    }
}

static char *copy_string(const json_t *v)
{
    const char *s = json_string_value(v);

    return s && s[0] ? strdup(s) : NULL;
}

/* {"message": {"message": "...", "extraInfo": {"py_callstack": "..."}}}, or
 * {"message": "..."}. */
static void take_words(struct error_file *f, const json_t *o)
{
    const json_t *message = json_object_get(o, "message");
    const json_t *extra = json_object_get(message, "extraInfo");
    const json_t *inner = json_object_get(message, "message");

    f->stack = copy_string(json_object_get(extra, "py_callstack"));
    f->message = copy_string(inner ? inner : message);
    if (!f->message && f->stack) {
        f->message = strdup(f->stack);
    }
}

void error_file_release(struct error_file *f)
{
    free(f->json);
    free(f->message);
    free(f->stack);
    *f = (struct error_file){0};
}

int error_file_read(const char *path, struct error_file *ret, struct error *e)
{
    struct error_file f = {0};
    size_t len = 0;
    int rc = read_file(path, &f, &len, e);

    if (rc == 0) {
        json_t *o;

        mark_no_characters(f.json);
        o = json_loadb(f.json, len, 0, NULL);
        take_words(&f, o);
        json_decref(o);
        rc = f.message ? 0 : error_text(e, ERR_FORMAT, "%s: expected an object "
                                        "with \"message\"", path);
    }
    if (rc < 0) {
        error_file_release(&f);
        return rc;
    }
    *ret = f;
    return 0;
}
