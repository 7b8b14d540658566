/* SPDX-License-Identifier: Apache-2.0 */
/* What is done for saves whose nodes are lost: who has copies of their parts writes them. */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/cleanup.h"
#include "launcher/jsonw.h"

/* Who has a copy of what they held is to write it; said again until it is there. */
void lead_save_rescue(struct lead_save *s)
{
    const struct snap_now now = lead_save_now(s);
    struct agent *a = s->lead->agent;
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);
    uint32_t n = 0, agent;

    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "snap_write");
    jsonw_str(&w, "uuid", s->uuid);
    jsonw_array(&w, "ranks");
    for (uint32_t at = 0; snap_tally_rescue(&s->tally, &now, &at, &agent); at++) {
        jsonw_array(&w, NULL);
        jsonw_int(&w, NULL, at);
        jsonw_int(&w, NULL, agent);
        jsonw_end_array(&w);
        n++;
    }
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    if (n > 0 && !b.failed && a->tree) {
        tree_ask(a->tree, b.data, b.len);
        agent_asked(a, b.data, b.len);
    }
}

void lead_snap_rescue(struct lead_snap *l)
{
    for (struct lead_save *s = l->saves, *next; s; s = next) {
        next = s->next;
        if (!s->is_settled && !s->is_working && !lead_save_is_parked(s)) {
            lead_save_rescue(s);
            lead_save_rebuild(s);
        }
    }
}
