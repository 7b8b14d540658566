/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/run_request.h"

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

/* The run's answer for people; the exit status. */
static int show_reply(const struct run_view *v, const json_t *reply,
                      const char *doing)
{
    const char *text = json_string_value(json_object_get(reply, "text"));

    if (!json_is_true(json_object_get(reply, "ok"))) {
        fprintf(stderr, "muster: run %s refused: %s\n", v->dir->id,
                text ? text : "no reason given");
        return EXIT_FAILED;
    }
    printf("run %s: %s\n", v->dir->id, text ? text : doing);
    return EXIT_OK;
}

/* Nobody of the run is on this host. */
static int ask_by_file(const struct run_view *v, const json_t *request)
{
    struct error e = {0};

    if (!run_view_is_alive(v)) {
        char state[512];

        run_view_state(v, state, sizeof(state));
        fprintf(stderr, "muster: run %s is not alive: %s\n", v->dir->id, state);
        return EXIT_FAILED;
    }
    if (control_drop(v->dir->path, request, NULL, &e) < 0) {
        return command_fail(&e);
    }
    printf("run %s: nobody of it is on this host; left a request in %s/control "
           "for its lead\n", v->dir->id, v->dir->path);
    return EXIT_OK;
}

static int ask(struct run_view *v, const json_t *request, const char *doing)
{
    json_t *reply = NULL;
    struct error e = {0};
    int rc = control_ask(v->dir->id, request, ASK_MS, &reply, &e);

    if (rc == 0) {
        rc = show_reply(v, reply, doing);
        json_decref(reply);
        return rc;
    }
    if (v->is_silent) {
        return command_fail(&e);
    }
    /* It may have ended since its status was read. */
    if (run_view_refresh(v, &e) < 0) {
        return command_fail(&e);
    }
    if (status_run_is_over(v->status->state)) {
        return RUN_REQUEST_IS_OVER;
    }
    return rc == -ENOENT ? ask_by_file(v, request) : command_fail(&e);
}

int run_request_json(struct run_view *v, const json_t *request,
                     const char *doing)
{
    return status_run_is_over(v->status->state) ? RUN_REQUEST_IS_OVER
                                                : ask(v, request, doing);
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
