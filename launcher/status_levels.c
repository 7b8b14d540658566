/* SPDX-License-Identifier: Apache-2.0 */
/* How often saves are to reach each level, by what the status has of the run. */
#include <config.h>

#include "launcher/status.h"

#include "spec/job.h"

#include <string.h>

/* Of several measurements the newest counts for so much. */
#define NEWEST_WEIGHT 0.3

void run_status_took(struct run_status *s, enum interval_level_id level,
                     double seconds)
{
    double *took = &s->took_s[level];

    if (seconds > 0) {
        *took = *took > 0 ? NEWEST_WEIGHT * seconds + (1 - NEWEST_WEIGHT) * *took
                          : seconds;
    }
}

/* Hosts are what fails: a partner is on another one. */
bool run_status_has_partner(const struct run_status *s)
{
    const char *first = NULL;

    if (!(s->levels & 1u << INTERVAL_PARTNER)) {
        return false;
    }
    for (size_t i = 0; s->nodes && i < s->n_nodes; i++) {
        const struct status_node *n = &s->nodes[i];

        if (n->n_procs > 0 && first && strcmp(first, n->host) != 0) {
            return true;
        }
        first = n->n_procs > 0 ? n->host : first;
    }
    return false;
}

void run_status_levels(const struct run_status *s, struct interval_levels_facts *f,
                       struct interval_level ret[INTERVAL_N_LEVELS])
{
    const struct status_plan *p = &s->save_plan;
    uint64_t n_nodes = s->node_failures > 0 ? (uint64_t)s->node_failures : 0;

    *f = (struct interval_levels_facts){
        .first = {p->every_s, p->cost_s, p->mtbf_s},
        .n_failures = p->n_failures > n_nodes ? p->n_failures : n_nodes,
        .n_nodes = n_nodes,
        .n_runs = s->starts > 1 ? (uint64_t)s->starts - 1 : 0,
        .ran_s = p->ran_s,
        .n_workers = (uint32_t)s->n_workers,
        .there = p->is_set ? s->levels : 0,
    };
    if (!run_status_has_partner(s)) {
        f->there &= ~(1u << INTERVAL_PARTNER);
    }
    memcpy(f->took_s, s->took_s, sizeof(f->took_s));
    memcpy(f->slower, s->slower, sizeof(f->slower));
    f->slower_known = s->slower_known;
    interval_levels(f, ret);
}

static uint64_t to_ms(double seconds)
{
    return seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds * 1e3) : 0;
}

uint64_t run_status_save_ms(const struct run_status *s, enum interval_level_id level,
                            uint64_t every_ms)
{
    struct interval_level l[INTERVAL_N_LEVELS];
    struct interval_levels_facts f;

    if (every_ms != JOB_AUTO) {
        return every_ms;
    }
    run_status_levels(s, &f, l);
    return l[level].is_there ? to_ms(l[level].seconds - f.first.seconds / 2) : 0;
}

uint64_t run_status_store_ms(const struct run_status *s, uint64_t every_ms)
{
    struct interval_level l[INTERVAL_N_LEVELS];
    struct interval_levels_facts f;

    if (every_ms != JOB_AUTO) {
        return every_ms;
    }
    run_status_levels(s, &f, l);
    return l[INTERVAL_STORE].is_there ? to_ms(l[INTERVAL_STORE].seconds) : 0;
}

void status_put_levels(struct jsonw *w, const struct run_status *s)
{
    struct interval_level l[INTERVAL_N_LEVELS];
    struct interval_levels_facts f;

    run_status_levels(s, &f, l);
    if (!f.there) {
        return;
    }
    jsonw_array(w, "save_levels");
    for (size_t i = 0; i < INTERVAL_N_LEVELS; i++) {
        if (!l[i].is_there) {
            continue;
        }
        jsonw_object(w, NULL);
        jsonw_str(w, "level", interval_level_name(i));
        jsonw_int(w, "saves", (int64_t)l[i].saves);
        jsonw_num(w, "every", l[i].seconds);
        jsonw_num(w, "best", l[i].best_s);
        jsonw_num(w, "cost", l[i].cost_s);
        jsonw_bool(w, "assumed", l[i].is_assumed);
        jsonw_num(w, "took", f.took_s[i]);
        if (s->slower_known & 1u << i) {
            jsonw_num(w, "slower", s->slower[i]);
        }
        jsonw_num(w, "mtbf", l[i].mtbf_s);
        jsonw_int(w, "failures", (int64_t)l[i].n_failures);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

/* What it is made of; all else follows. What makes no sense is left out. */
void status_read_levels(const json_t *array, struct run_status *s)
{
    const json_t *o;
    size_t i;

    json_array_foreach(array, i, o) {
        const char *name = json_string_value(json_object_get(o, "level"));
        size_t at = 0;

        while (name && at < INTERVAL_N_LEVELS &&
               strcmp(name, interval_level_name(at)) != 0) {
            at++;
        }
        if (name && at < INTERVAL_N_LEVELS) {
            s->levels |= 1u << at;
            jsonw_read_num(json_object_get(o, "took"), &s->took_s[at]);
            if (jsonw_read_num(json_object_get(o, "slower"), &s->slower[at])) {
                s->slower_known |= 1u << at;
            }
        }
    }
}
