/* SPDX-License-Identifier: Apache-2.0 */
/* muster scale: gives a run more nodes, or fewer. */
#include <config.h>

#include "launcher/commands.h"

#include "base/str.h"
#include "launcher/front_record.h"
#include "launcher/options.h"
#include "launcher/run_request.h"

#include <stdio.h>

enum { MAX_NODES = 65536 }; /* as in a spec */

static const struct options options = {
    .command = "scale",
    .usage = "RUN NODES",
    .about = "Asks a run to go on with so many nodes, within the range of its "
             "job: workers are told to save and are started again. RUN is a run "
             "directory, a run id or a name.",
    .min_args = 2,
    .max_args = 2,
    .takes_numbers = true,
};

/* Nodes that live, or whose hosts muster run was given. */
static size_t count_hosts(const struct run_view *v)
{
    _front_record_ struct front_record r = {0};
    size_t n = 0;

    if (front_record_read(v->dir, &r, NULL) == 0 && !r.by_hand) {
        return r.agent_is_node ? r.n_agents : r.hosts.n;
    }
    for (size_t i = 0; i < v->status->n_nodes; i++) {
        n += v->status->nodes[i].state != STATUS_NODE_LOST &&
             v->status->nodes[i].state != STATUS_NODE_LEFT;
    }
    return n;
}

/* What can be said without asking: by file nobody answers. */
static int check(const struct run_view *v, int64_t n, struct error *e)
{
    const struct run_status *s = v->status;
    size_t n_hosts;

    if (!s->want_nodes) {
        return 0; /* it is only being put together, or its state is not known */
    }
    if (s->min_nodes == s->max_nodes) {
        return error_text(e, ERR_USAGE, "run %s has %d node%s, no more and no "
                          "fewer; a range, as in nodes: 2..8, lets a job be "
                          "scaled", v->dir->id, s->max_nodes,
                          s->max_nodes == 1 ? "" : "s");
    }
    if (n < s->min_nodes || n > s->max_nodes) {
        return error_text(e, ERR_USAGE, "run %s may have %d to %d nodes, not "
                          "%lld", v->dir->id, s->min_nodes, s->max_nodes,
                          (long long)n);
    }
    n_hosts = count_hosts(v);
    if ((uint64_t)n > n_hosts) {
        return error_text(e, ERR_USAGE, "run %s has %zu host%s, and %lld nodes "
                          "are wanted: muster resume can be given others",
                          v->dir->id, n_hosts, n_hosts == 1 ? "" : "s",
                          (long long)n);
    }
    return 0;
}

static int scale(struct run_view *v, int64_t n)
{
    char doing[64];
    json_t *request = json_pack("{s:i,s:s,s:I}", "v", 1, "op", "scale",
                                "nodes", (json_int_t)n);
    int rc;

    snprintf(doing, sizeof(doing), "%lld node%s wanted", (long long)n,
             n == 1 ? " is" : "s are");
    rc = run_request_json(v, request, doing);
    json_decref(request);
    if (rc == RUN_REQUEST_IS_OVER) {
        fprintf(stderr, "muster: run %s is over: %s\n", v->dir->id,
                status_run_name(v->status->state));
        return EXIT_FAILED;
    }
    return rc;
}

/* What no job may have, whatever its range. */
static int take_number(const char *word, int64_t *ret, struct error *e)
{
    int rc = str_to_i64(word, ret);

    if (rc == 0 && *ret == 0) {
        return error_text(e, ERR_USAGE, "0 is no number of nodes to go on with, from 1 to "
                          "%d: muster suspend stops a run that is to go on later",
                          MAX_NODES);
    }
    if (rc < 0 || *ret < 1 || *ret > MAX_NODES) {
        return error_text(e, ERR_USAGE, "'%.40s' is not a number of nodes: one from 1 to "
                          "%d is wanted, in the range of the job (nodes: 2..8)", word,
                          MAX_NODES);
    }
    return 0;
}

int cmd_scale(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    _run_view_ struct run_view v = {0};
    struct error e = {0};
    int64_t n;
    int rc = options_start(&options, argc, argv, NULL, &args);

    if (rc >= 0) {
        return rc;
    }
    if (take_number(args.words.items[1], &n, &e) < 0) {
        return command_fail(&e);
    }
    if (run_request_view(args.words.items[0], &v, &e) < 0 ||
        (!status_run_is_over(v.status->state) && check(&v, n, &e) < 0)) {
        return command_fail(&e);
    }
    return scale(&v, n);
}
