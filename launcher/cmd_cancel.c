/* SPDX-License-Identifier: Apache-2.0 */
/* muster cancel: asks a run to save its state and end. */
#include <config.h>

#include "launcher/commands.h"

#include "launcher/control.h"
#include "launcher/options.h"
#include "launcher/runview.h"

#include <errno.h>
#include <stdio.h>

enum { ASK_MS = 10000 };

struct cancel_options {
    bool force;
};

static const struct option_def table[] = {
    {"force", NULL, "do not wait for a checkpoint: workers are killed at once",
     OPTION_FLAG, offsetof(struct cancel_options, force), NULL, 'f'},
    {0},
};

static const struct options options = {
    .command = "cancel",
    .usage = "RUN [--force]",
    .about = "Asks a run to stop: its workers are told to save, get the grace "
             "time of the job, and the run ends with exit status 130, to be "
             "resumed by hand. RUN is a run directory, a run id or a name.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

/* The run's answer for people; the exit status. */
static int show_reply(const struct run_view *v, const json_t *reply)
{
    const char *text = json_string_value(json_object_get(reply, "text"));

    if (!json_is_true(json_object_get(reply, "ok"))) {
        fprintf(stderr, "muster: run %s refused: %s\n", v->dir->id,
                text ? text : "no reason given");
        return EXIT_FAILED;
    }
    printf("run %s: %s\n", v->dir->id, text ? text : "cancelling");
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

static int say_over(const struct run_view *v)
{
    printf("run %s is over already: %s\n", v->dir->id,
           status_run_name(v->status->state));
    return EXIT_OK;
}

static int cancel(struct run_view *v, const json_t *request)
{
    json_t *reply = NULL;
    struct error e = {0};
    int rc = control_ask(v->dir->id, request, ASK_MS, &reply, &e);

    if (rc == 0) {
        rc = show_reply(v, reply);
        json_decref(reply);
        return rc;
    }
    /* It may have ended since its status was read. */
    if (run_view_refresh(v, &e) < 0) {
        return command_fail(&e);
    }
    if (status_run_is_over(v->status->state)) {
        return say_over(v);
    }
    return rc == -ENOENT ? ask_by_file(v, request) : command_fail(&e);
}

int cmd_cancel(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct cancel_options set = {0};
    _run_view_ struct run_view v = {0};
    json_t *request;
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    if (run_view_load(args.words.items[0], &v, &e) < 0) {
        return command_fail(&e);
    }
    if (status_run_is_over(v.status->state)) {
        return say_over(&v);
    }
    request = json_pack("{s:i,s:s,s:b}", "v", 1, "op", "cancel", "force",
                        set.force);
    rc = cancel(&v, request);
    json_decref(request);
    return rc;
}
