/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/control_bed.h"

#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

int bed_on_request(void *arg, const char *op, const json_t *body,
                      struct jsonw *reply, struct error *e)
{
    struct seen *s = arg;

    s->n++;
    s->force = json_is_true(json_object_get(body, "force"));
    str_copy(s->last, sizeof(s->last), op);
    if (reply) {
        jsonw_str(reply, "text", "as you say");
    }
    return strcmp(op, "fail") == 0 ? error_text(e, EINVAL, "cannot do that")
                                   : 0;
}

void bed_close_loop(uv_loop_t *loop)
{
    uv_run(loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(loop), 0, "nothing is left in the loop");
}
