/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/run_request.h"

#include "base/buf.h"
#include "launcher/commands.h"
#include "launcher/control.h"

#include <errno.h>
#include <stdio.h>

enum { ASK_MS = 10000 };

struct request_options {
    bool force;
};

const struct option_def run_request_table[] = {
    {"force", NULL, "do not wait for a checkpoint: workers are killed at once",
     OPTION_FLAG, offsetof(struct request_options, force), NULL, 'f'},
    {0},
};

int run_request_start(const struct options *options, int argc, char **argv,
                      bool *ret_force, struct run_view *ret)
{
    _option_args_ struct option_args args = {0};
    struct request_options set = {0};
    struct error e = {0};
    int rc = options_start(options, argc, argv, &set, &args);

    if (rc < 0 && run_request_view(args.words.items[0], ret, &e) < 0) {
        return command_fail(&e);
    }
    *ret_force = set.force;
    return rc;
}

int run_request_view(const char *arg, struct run_view *ret, struct error *e)
{
    int rc = run_view_load_within(arg, RUN_VIEW_BRIEF_MS, ret, e);

    if (rc == -ETIMEDOUT && run_view_heard(arg, ret, NULL) == 0) {
        return 0;
    }
    return rc == -ETIMEDOUT ? run_view_load(arg, ret, e) : rc;
}

/* The run's answer for people. */
static int take_reply(const struct run_view *v, const json_t *reply, const char *doing,
                      struct buf *ret_text, struct error *e)
{
    const char *text = json_string_value(json_object_get(reply, "text"));

    if (!json_is_true(json_object_get(reply, "ok"))) {
        error_text(e, EPERM, "run %s refused: %s", v->dir->id,
                   text ? text : "no reason given");
        return RUN_REQUEST_FAILED;
    }
    buf_printf(ret_text, "run %s: %s", v->dir->id, text ? text : doing);
    return 0;
}

/* Nobody of the run is on this host. */
static int ask_by_file(const struct run_view *v, const json_t *request,
                       struct buf *ret_text, struct error *e)
{
    if (!run_view_is_alive(v)) {
        char state[512];

        run_view_state(v, state, sizeof(state));
        error_text(e, ERR_LOST, "run %s is not alive: %s", v->dir->id, state);
        return RUN_REQUEST_FAILED;
    }
    if (control_drop(v->dir->path, request, NULL, e) < 0) {
        return RUN_REQUEST_FAILED;
    }
    buf_printf(ret_text, "run %s: nobody of it is on this host; left a request in "
               "%s/control for its lead", v->dir->id, v->dir->path);
    return 0;
}

static int ask(struct run_view *v, const json_t *request, const char *doing,
               struct buf *ret_text, struct error *e)
{
    json_t *reply = NULL;
    int rc = control_ask(v->dir->id, request, ASK_MS, &reply, e);

    if (rc == 0) {
        rc = take_reply(v, reply, doing, ret_text, e);
        json_decref(reply);
        return rc;
    }
    /* It may have ended since its status was read. */
    if (v->is_silent || run_view_refresh(v, e) < 0) {
        return RUN_REQUEST_FAILED;
    }
    if (status_run_is_over(v->status->state)) {
        return RUN_REQUEST_IS_OVER;
    }
    return rc == -ENOENT ? ask_by_file(v, request, ret_text, e) : RUN_REQUEST_FAILED;
}

int run_request_ask(struct run_view *v, const json_t *request, const char *doing,
                    struct buf *ret_text, struct error *e)
{
    return status_run_is_over(v->status->state) ? RUN_REQUEST_IS_OVER
                                                : ask(v, request, doing, ret_text, e);
}

int run_request_json(struct run_view *v, const json_t *request,
                     const char *doing)
{
    _buf_ struct buf text = {0};
    struct error e = {0};
    int rc = run_request_ask(v, request, doing, &text, &e);

    if (rc == 0) {
        printf("%s\n", buf_str(&text));
        return EXIT_OK;
    }
    return rc == RUN_REQUEST_FAILED ? command_fail(&e) : rc;
}

int run_request(struct run_view *v, const char *op, bool force,
                const char *doing)
{
    json_t *request = json_pack("{s:i,s:s,s:b}", "v", 1, "op", op, "force",
                                force);
    int rc = run_request_json(v, request, doing);

    json_decref(request);
    return rc;
}
