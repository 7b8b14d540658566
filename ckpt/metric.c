/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/metric.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/found_json.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char *metric_file(enum found_kind kind)
{
    return kind == FOUND_TRAINER  ? "trainer_state.json"
           : kind == FOUND_MUSTER ? "manifest.json"
                                  : NULL;
}

static bool take_number(const json_t *value, double *ret)
{
    if (!json_is_number(value)) {
        return false;
    }
    *ret = json_number_value(value);
    return true;
}

/* "eval_loss", or "metrics.loss": names of values may have dots, too, so the longest
 * that there is goes first. */
static bool find(const json_t *in, const char *name, double *ret)
{
    char key[METRIC_NAME_BYTES];

    if (strlen(name) >= sizeof(key) || !json_is_object(in)) {
        return false;
    }
    if (take_number(json_object_get(in, name), ret)) {
        return true;
    }
    str_copy(key, sizeof(key), name);
    for (char *dot = strrchr(key, '.'); dot; dot = strrchr(key, '.')) {
        *dot = '\0';
        if (find(json_object_get(in, key), name + (dot - key) + 1, ret)) {
            return true;
        }
    }
    return false;
}

/* The last one: where that is none, the checkpoint has none, whatever was before. */
static bool find_in_log(const json_t *log, const char *name, double *ret)
{
    bool is_there = false;
    const json_t *line;
    size_t i;

    json_array_foreach(log, i, line) {
        const json_t *value = json_object_get(line, name);

        is_there = value ? take_number(value, ret) : is_there;
    }
    return is_there;
}

static int parse(enum found_kind kind, const char *data, size_t len, json_t **ret)
{
    _free_ char *text = kind == FOUND_TRAINER ? malloc(len + 1) : NULL;

    if (kind != FOUND_TRAINER) {
        *ret = json_loadb(data, len, 0, NULL);
    } else if (text) {
        memcpy(text, data, len);
        *ret = found_json_parse(text, len);
    } else {
        return -ENOMEM;
    }
    return *ret ? 0 : -ERR_FORMAT;
}

int metric_parse(enum found_kind kind, const char *data, size_t len,
                 const char *name, double *ret)
{
    json_t *json = NULL;
    int rc = metric_file(kind) ? parse(kind, data, len, &json) : 0;

    if (json) {
        rc = kind == FOUND_TRAINER
                 ? find_in_log(json_object_get(json, "log_history"), name, ret)
                 : find(json_object_get(json, "state"), name, ret);
    }
    json_decref(json);
    return rc;
}

int metric_fail(int rc, const char *checkpoint, const char *file, struct error *e)
{
    if (rc == -ERR_FORMAT) {
        return error_text(e, ERR_FORMAT, "%s/%s is no JSON", checkpoint, file);
    }
    return error_set(e, -rc, "read %s/%s", checkpoint, file);
}

bool metric_of_state(const char *state, const char *name, double *ret)
{
    json_t *json = state ? json_loads(state, 0, NULL) : NULL;
    bool is_there = find(json, name, ret);

    json_decref(json);
    return is_there;
}

int found_metric(struct io *io, int dir, const struct found *f, const char *name,
                 double *ret, struct error *e)
{
    const char *file = metric_file(f->kind);
    _free_ char *text = NULL;
    size_t len = 0;
    int fd, rc;

    if (!file) {
        return 0;
    }
    fd = io->ops->open_dir(io, dir, f->name);
    if (fd < 0) {
        return error_set(e, -fd, "open %s", f->name);
    }
    rc = io_read_file(io, fd, file, METRIC_MAX_FILE_BYTES, &text, &len);
    io->ops->close(io, fd);
    rc = rc < 0 ? rc : metric_parse(f->kind, text, len, name, ret);
    return rc < 0 ? metric_fail(rc, f->name, file, e) : rc;
}
