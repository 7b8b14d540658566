/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/json_output.h"

#include "launcher/jsonw.h"
#include "launcher/line_join.h"

#include <stdbool.h>
#include <stdlib.h>

struct json_output {
    struct line_join *lines;
    uint64_t wall_ns; /* of the call that is under way, as is `to` */
    struct buf *to;
};

static void add_object(void *arg, const struct tree_output *o, const char *line,
                       size_t len, bool is_part)
{
    struct json_output *j = arg;
    struct jsonw w = jsonw_start(j->to);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", 1);
    jsonw_time(&w, "t", j->wall_ns);
    jsonw_int(&w, "generation", o->generation);
    jsonw_int(&w, "rank", o->rank);
    jsonw_int(&w, "node", o->node);
    jsonw_str(&w, "stream", o->which ? "stderr" : "stdout");
    jsonw_bytes(&w, "line", line, len);
    if (is_part) {
        jsonw_bool(&w, "part", true);
    }
    jsonw_end_object(&w);
    buf_putc(j->to, '\n');
}

struct json_output *json_output_create(void)
{
    struct json_output *j = calloc(1, sizeof(*j));

    if (j) {
        j->lines = line_join_create(add_object, j);
    }
    if (j && !j->lines) {
        free(j);
        j = NULL;
    }
    return j;
}

void json_output_destroy(struct json_output *j)
{
    if (j) {
        line_join_destroy(j->lines);
        free(j);
    }
}

void json_output_put(struct json_output *j, const struct tree_output *o,
                     uint64_t wall_ns, struct buf *to)
{
    j->wall_ns = wall_ns;
    j->to = to;
    line_join_put(j->lines, o);
}

void json_output_flush(struct json_output *j, uint64_t wall_ns, struct buf *to)
{
    j->wall_ns = wall_ns;
    j->to = to;
    line_join_flush(j->lines);
}
