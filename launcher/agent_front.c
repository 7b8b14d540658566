/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the front end of the run is. Each agent is told by its companion of the one that
 * started the run; of another one that takes the run over only the lead hears. It tells
 * all others, for any of them may lead next, and then has to find it. Who was cut off
 * meanwhile, or comes later, is told when it is there; and as that one may lead before
 * anybody could tell it, those that know of a newer place than the start's tell each lead
 * that they follow. Places have serials that rise, from lead to lead, too, so that an
 * older one never takes the place of a newer one.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/jsonw.h"

#include <stdlib.h>
#include <string.h>

enum { VIEW_SHIFT = 31 }; /* what is said in JSON is an int64_t */

bool agent_front_learn(struct agent *a, const char *ways, int64_t serial)
{
    _strlist_ struct strlist addrs = {0};
    _free_ char *copy = NULL;
    uint16_t port = 0;
    struct error e = {0};

    if (serial <= a->front_serial) {
        return false;
    }
    copy = strdup(ways);
    if (!copy || addr_ways_parse(ways, &addrs, &port, &e) < 0 ||
        tree_set_front(a->tree, addrs.items, port) < 0) {
        agent_log(a, "where the front end is: %s", copy ? e.text : "no memory");
        return false;
    }
    free(a->front_ways);
    a->front_ways = take_ptr(&copy);
    a->front_serial = serial;
    a->run.has_front = true;
    return true;
}

int64_t agent_front_next(const struct agent *a)
{
    int64_t first = ((int64_t)a->view << VIEW_SHIFT) + 1;

    return a->front_serial < first ? first : a->front_serial + 1;
}

static void put(const struct agent *a, struct jsonw *w)
{
    jsonw_str(w, "front", a->front_ways);
    jsonw_int(w, "serial", a->front_serial);
}

void agent_front_tell_all(struct agent *a)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    if (!a->front_ways) {
        return;
    }
    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "front");
    put(a, &w);
    jsonw_end_object(&w);
    if (!b.failed) {
        tree_ask(a->tree, b.data, b.len);
    }
}

void agent_front_tell_lead(struct agent *a)
{
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "front");

    if (a->front_ways) {
        put(a, &w);
        agent_fact_send(a, &w);
    }
}
