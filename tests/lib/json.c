/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json PATH [FILE]: the value at a dotted path ("workers.0.pid"); a string is
 * printed as it is, anything else as JSON. Fails where there is none. Scripts that
 * wait ask twenty times a second: an interpreter each time would be the load that
 * they wait for.
 */
#include <config.h>

#include "base/cleanup.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *element(json_t *list, const char *key)
{
    char *end;
    long i;

    errno = 0;
    i = strtol(key, &end, 10);
    if (errno || end == key || *end) {
        return NULL;
    }
    i += i < 0 ? (long)json_array_size(list) : 0;
    return i < 0 ? NULL : json_array_get(list, (size_t)i);
}

/* Borrowed from v. The path is cut into its keys. */
static json_t *look_up(json_t *v, char *path)
{
    char *rest = NULL;

    for (char *key = strtok_r(path, ".", &rest); key && v;
         key = strtok_r(NULL, ".", &rest)) {
        v = json_is_array(v) ? element(v, key) : json_object_get(v, key);
    }
    return v;
}

/* Numbers with no more digits than say which they are. */
static char *print(const json_t *v)
{
    char *text = NULL;

    for (unsigned digits = 15; digits <= 17; digits++) {
        json_t *again;
        bool is_same;

        free(text);
        text = json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII |
                                 JSON_REAL_PRECISION(digits));
        again = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        is_same = again && json_equal(v, again);
        json_decref(again);
        if (is_same) {
            break;
        }
    }
    return text;
}

static int tell(json_t *v)
{
    _free_ char *text = json_is_string(v) ? NULL : print(v);

    return puts(text ? text : json_string_value(v)) < 0 || fflush(stdout) < 0;
}

int main(int argc, char **argv)
{
    _free_ char *path = strdup(argc > 1 ? argv[1] : "");
    json_t *whole, *v;
    json_error_t e;
    int rc = 1;

    if (!path || argc < 2 || argc > 3) {
        fprintf(stderr, "usage: json PATH [FILE]\n");
        return 2;
    }
    whole = argc > 2 ? json_load_file(argv[2], JSON_DECODE_ANY, &e)
                     : json_loadf(stdin, JSON_DECODE_ANY, &e);
    v = whole ? look_up(whole, path) : NULL;
    if (!whole) {
        fprintf(stderr, "json: %s:%d:%d: %s\n", argc > 2 ? argv[2] : "input",
                e.line, e.column, e.text);
    } else if (!v) {
        fprintf(stderr, "no such value: %s\n", argv[1]);
    } else {
        rc = tell(v);
    }
    json_decref(whole);
    return rc;
}
