/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts at which mpirun hangs, or fails, though their agents are well. Each MPI world with one of
 * them would be late, and the next one as well. Whom a world was late for is in mpirun's
 * log: of the others a word of muster-mpi came. Where none came, because a daemon of MPI
 * hangs before any process is started, or where mpirun fails (front_failed.c), each host
 * of the world is asked through an mpirun of its own, all of them at once, under a
 * deadline.
 *
 * Whom MAX_HUNG worlds in a row were late for is told to the lead, which excludes the
 * node if there are enough others (agent_lead_hung.c): then it is in no world any more.
 * It is asked again after a pause that doubles, by an mpirun as well, as soon as a node
 * is wanted; and when a command wants more nodes. Once it is in a world the lead may use
 * it again.
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "launcher/hung.h"
#include "launcher/jsonw.h"
#include "rendezvous/tree_msg.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_HUNG = 3,
    PAUSE_MS = 600000, /* of one that a world may have hung by ... */
    MAX_DOUBLED = 3,   /* ... that often twice as long */
    REPEAT_MS = 1000,
    TELL_MS = 10000,   /* again, while nothing comes of it */
    MAX_STEPS = 64,    /* of Slurm's, at once */
};

/* --- what the lead makes of it --- */

static void tell(struct front *f, const char *kind, size_t host)
{
    const struct run_status *s = screen_last(f->screen);
    const char *name = s ? front_host_name(f, s, host) : NULL;
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", kind);
    jsonw_str(&w, "host", name ? name : "");
    jsonw_int(&w, "worlds", f->reach->hosts[host].n_hung);
    jsonw_bool(&w, "fails", f->reach->hosts[host].fails);
    jsonw_end_object(&w);
    if (name && f->lead && !b.failed) {
        link_send_buf(f->lead, TREE_REQUEST, &b);
    }
}

/* The node there that the lead has excluded for it, though it may take part until the
 * next generation; NULL: there is none. */
static const struct status_node *find_hung(const struct front *f, size_t host)
{
    const struct run_status *s = screen_last(f->screen);
    const char *name = s ? front_host_name(f, s, host) : NULL;

    for (size_t i = 0; name && i < s->n_nodes; i++) {
        if (strcmp(s->nodes[i].host, name) == 0 && hung_is_why(&s->nodes[i])) {
            return &s->nodes[i];
        }
    }
    return NULL;
}

bool front_host_hangs(const struct front *f, size_t host)
{
    return find_hung(f, host) != NULL;
}

/* A world without a node that takes part is of no use to it, nor is another one with
 * it: the next generation is waited for. Should its workers come to wait for one
 * another meanwhile, the lead hears of it again, and stops them. */
bool front_awaits_exclusion(struct front *f)
{
    bool waits = false;

    for (size_t i = 0; i < f->config->plan.hosts->n; i++) {
        const struct status_node *n = find_hung(f, i);
        struct reach_host *h = &f->reach->hosts[i];

        if (!n || n->state == STATUS_NODE_EXCLUDED || n->state == STATUS_NODE_SPARE) {
            continue;
        }
        waits = true;
        if (front_now_ms(f) - h->told_ms > TELL_MS) {
            h->told_ms = front_now_ms(f);
            tell(f, "mpi_hung", i);
        }
    }
    return waits;
}

/* --- who it was --- */

static void set_pause(struct front *f, struct reach_host *h)
{
    unsigned n = h->n_blamed < MAX_DOUBLED ? h->n_blamed : MAX_DOUBLED;

    h->n_blamed++;
    h->answered_ms = 0;
    h->again_ms = front_now_ms(f) + ((uint64_t)PAUSE_MS << n);
}

/* Those that the world was made for are tried without them first. */
bool front_blame_newcomers(struct front *f, unsigned times)
{
    bool any = false;

    for (size_t i = 0; i < f->config->plan.hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        if (!h->is_out && front_is_newcomer(f, i)) {
            any = true;
            if (++h->n_failed >= times) {
                set_pause(f, h);
            }
        }
    }
    return any;
}

static void blame(struct front *f, size_t host, bool fails)
{
    struct reach_host *h = &f->reach->hosts[host];

    h->fails = fails;
    if (++h->n_hung >= MAX_HUNG) {
        h->told_ms = front_now_ms(f);
        set_pause(f, h);
        tell(f, "mpi_hung", host);
    }
}

static bool was_in_world(const struct front *f, size_t host)
{
    const struct host_list *world = &f->reach->world;
    const char *name = f->config->plan.hosts->items[host].name;

    for (size_t i = 0; i < world->n; i++) {
        if (strcmp(world->items[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

void front_blame_late(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    _free_ bool *unheard = calloc(hosts->n + 1, sizeof(*unheard));
    size_t n;

    if (!unheard || hosts_all_local(hosts) || front_blame_newcomers(f, 1)) {
        return;
    }
    n = front_find_unheard(f, unheard);
    f->reach->is_suspect = n == f->reach->world.n;
    f->reach->has_failed = false;
    for (size_t i = 0; n < f->reach->world.n && i < hosts->n; i++) {
        if (unheard[i]) {
            blame(f, i, false);
        }
    }
}

/* --- each by an mpirun of its own --- */

/* All of the last world that are on this machine, or that are not; how many. */
static size_t try_all(struct front *f, bool are_local)
{
    const struct host_list *hosts = f->config->plan.hosts;
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        if (hosts->items[i].is_local == are_local) {
            h->is_asked = h->is_tried = was_in_world(f, i) && !h->is_out;
            n += h->is_tried;
        }
    }
    return n;
}

/* Of one alone nothing could be said: this machine is tried beside it, for where mpirun
 * does not get through to that either it is not the other's fault. In Slurm that would
 * tell nothing: what fails there, too, is its controller, which mpirun does not need for
 * this machine. Nor is that asked for very many steps at once. */
bool front_choose_suspects(struct front *f)
{
    bool is_slurm = f->config->plan.hosts->source == HOSTS_SLURM;
    size_t n;

    if (!f->reach->is_suspect) {
        return false;
    }
    f->reach->is_suspect = false;
    n = try_all(f, false);
    n += n == 1 && !is_slurm ? try_all(f, true) : 0;
    f->reach->is_trial = n > 1 && (!is_slurm || n <= MAX_STEPS);
    for (size_t i = 0; !f->reach->is_trial && i < f->config->plan.hosts->n; i++) {
        f->reach->hosts[i].is_asked = f->reach->hosts[i].is_tried = false;
    }
    return f->reach->is_trial;
}

/* Where most do not answer it is not they that hang, or fail. This machine is never left
 * out for it. */
void front_judge_trial(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    size_t n = 0, n_silent = 0;

    f->reach->is_trial = false;
    for (size_t i = 0; i < hosts->n; i++) {
        n += f->reach->hosts[i].is_tried;
        n_silent += f->reach->hosts[i].is_asked;
    }
    for (size_t i = 0; i < hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        if (h->is_asked && 2 * n_silent <= n && !hosts->items[i].is_local) {
            blame(f, i, f->reach->has_failed);
        }
        h->is_asked = h->is_tried = false;
    }
    f->repeat_at_ms = front_now_ms(f) + REPEAT_MS;
}

/* --- all is well --- */

static size_t count_hosts(const struct front *f)
{
    return f->reach && f->config->plan.hosts ? f->config->plan.hosts->n : 0;
}

void front_clear_hung(struct front *f)
{
    if (f->reach) {
        f->reach->is_suspect = false;
        f->n_failed = 0;
        f->failed_ms = 0;
    }
    for (size_t i = 0; i < count_hosts(f); i++) {
        struct reach_host *h = &f->reach->hosts[i];

        if (was_in_world(f, i)) {
            h->n_hung = h->n_blamed = h->n_failed = 0;
            if (front_host_hangs(f, i)) {
                tell(f, "mpi_well", i);
            }
        }
    }
}

void front_ask_at_once(struct front *f)
{
    for (size_t i = 0; i < count_hosts(f); i++) {
        f->reach->hosts[i].again_ms = 0;
    }
}
