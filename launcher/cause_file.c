/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/cause_file.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/jsonw.h"
#include "launcher/last_words.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

bool cause_file_is_due(const struct run_status *s)
{
    return s && s->state == STATUS_FAILED && s->failure.is_set;
}

/* As subprocess has it: what a signal ended is negative. */
static int exit_code(const struct run_status *s)
{
    return s->failure.signal ? -s->failure.signal : s->failure.exit_code;
}

/* The worker's own, with its end in it; NULL where it is no such file. */
static char *add_code(const char *child, int code)
{
    json_t *file = child ? json_loads(child, 0, NULL) : NULL;
    json_t *message = json_object_get(file, "message");
    char *text = NULL;

    if (message && (!json_is_object(message) ||
                    json_object_set_new(message, "errorCode",
                                        json_integer(code)) == 0)) {
        text = json_dumps(file, JSON_COMPACT);
    }
    json_decref(file);
    return text;
}

static void make_own(const struct run_status *s, struct buf *to)
{
    struct jsonw w = jsonw_start(to);
    char seconds[24];

    snprintf(seconds, sizeof(seconds), "%" PRIu64,
             s->failure.at_ns / NS_PER_S);
    jsonw_object(&w, NULL);
    jsonw_object(&w, "message");
    jsonw_str(&w, "message", s->failure.reason);
    jsonw_object(&w, "extraInfo");
    jsonw_str(&w, "py_callstack", s->failure.lines ? s->failure.lines : "");
    jsonw_str(&w, "timestamp", seconds);
    jsonw_end_object(&w);
    jsonw_int(&w, "errorCode", exit_code(s));
    jsonw_end_object(&w);
    jsonw_end_object(&w);
}

int cause_file_make(const struct run_status *s, const char *child,
                    struct buf *to, struct error *e)
{
    _free_ char *text = add_code(child, exit_code(s));

    if (text) {
        buf_puts(to, text);
    } else {
        make_own(s, to);
    }
    return to->failed ? error_set(e, ENOMEM, "say why the job failed") : 0;
}

int cause_file_write(const struct run_status *s, const char *run_dir,
                     const char *path, struct error *e)
{
    struct error_file child = {0};
    _buf_ struct buf text = {0};
    char from[PATH_MAX];
    int rc;

    if (s->failure.error_file[0] &&
        fs_path(from, sizeof(from), NULL, "%s/%s", run_dir,
                s->failure.error_file) == 0) {
        error_file_read(from, &child, NULL);
    }
    rc = cause_file_make(s, child.json, &text, e);
    error_file_release(&child);
    return rc < 0 ? rc : fs_write_replace(path, text.data, text.len, e);
}
