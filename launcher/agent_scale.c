/* SPDX-License-Identifier: Apache-2.0 */
/* How many nodes a run has, and is to have: what commands want, and what the lead
 * asks of workers before it changes that. */
#include <config.h>

#include "launcher/agent_record.h"

#include "base/buf.h"
#include "base/clock.h"
#include "launcher/asked.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <stdio.h>

void agent_ask_checkpoint(struct agent *a, uint32_t generation, const char *id)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "checkpoint");
    jsonw_int(&w, "generation", generation);
    jsonw_opt_str(&w, "id", id);
    jsonw_end_object(&w);
    if (!b.failed) {
        tree_ask(a->tree, b.data, b.len);
        agent_asked(a, b.data, b.len);
    }
}

/* Only those that run hear of it: a question to none would be lost. Who asks again by
 * the same id has not heard that it came. */
int record_ask_checkpoint(struct record *r, struct agent *a,
                          const struct lead *core, const char *who,
                          const char *id, struct error *e)
{
    enum status_run_state state = record_status(r)->state;
    struct error why = {0};
    char text[320];

    if (state != STATUS_RUNNING) {
        error_text(&why, EAGAIN, "its workers cannot be asked to save: the run is %s",
                   status_run_name(state));
    }
    if (id && asked_id_is_valid(id)) {
        bool is_new = asked_add(record_status(r), id, clock_wall_ns(),
                                why.code ? why.text : NULL);

        record_touch(r);
        if (!is_new) {
            return 0;
        }
    } else {
        id = "";
    }
    if (why.code) {
        return error_text(e, why.code, "%s", why.text);
    }
    snprintf(text, sizeof(text), "%s asks for a checkpoint", who);
    record_event(r, "note", lead_generation(core), text, NULL, 0);
    agent_ask_checkpoint(a, lead_generation(core), id);
    return 0;
}

void record_size(struct record *r, const struct lead *core)
{
    struct run_status *s = record_status(r);
    struct lead_size size = lead_size(core);

    s->min_nodes = (int)size.min;
    s->max_nodes = (int)size.max;
    s->want_nodes = (int)size.want;
    record_touch(r);
}

static int check(const struct agent *a, const struct lead *core, int64_t n,
                 struct error *e)
{
    struct lead_size size = lead_size(core);

    if (lead_verdict(core)) {
        return error_text(e, ERR_USAGE, "the run is ending");
    }
    if (size.min == size.max) {
        return error_text(e, ERR_USAGE, "the job has %u node%s, no more and no "
                          "fewer; a range, as in nodes: 2..8, lets it be scaled",
                          size.min, size.min == 1 ? "" : "s");
    }
    if (n < size.min || n > size.max) {
        return error_text(e, ERR_USAGE, "the job may have %u to %u nodes, not "
                          "%lld", size.min, size.max, (long long)n);
    }
    if (a->config.job->restart.policy == JOB_RESTART_NEVER) {
        return error_text(e, ERR_USAGE, "restart.policy is Never, and other "
                          "nodes mean a restart");
    }
    return 0;
}

int record_scale(struct record *r, const struct agent *a,
                 const struct lead *core, const json_t *body, const char *who,
                 uint32_t *ret_n, struct error *e)
{
    int64_t n = json_integer_value(json_object_get(body, "nodes"));
    struct error why = {0};
    char text[sizeof(why.text) + 320];
    int rc = check(a, core, n, &why);

    if (rc < 0) {
        /* Who asked another node, or by file, gets no answer. */
        snprintf(text, sizeof(text), "%s wants %lld nodes: refused: %s", who,
                 (long long)n, why.text);
        record_event(r, "note", lead_generation(core), text, NULL, 0);
        return error_text(e, why.code, "%s", why.text);
    }
    *ret_n = (uint32_t)n;
    return 0;
}
