/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients in a world of stores (store_world_bed.h): what they ask and are answered
 * goes into its history, in the order in which it happens.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_PLAYER_BED_H
#define MUSTER_RENDEZVOUS_STORE_PLAYER_BED_H

#include "rendezvous/store_world_bed.h"

/* All of them, before the world ends. */
void players_begin(struct world *w);
void players_end(struct world *w);

/* Asks something that is drawn, or gives up waiting; or nothing, with `n_asked` in the
 * history already, or too many under way. */
void player_act(struct world *w, struct player *p, unsigned n_asked);
/* Asks that of a key. */
struct history_op *player_ask(struct world *w, struct player *p,
                              enum store_command command, unsigned key);
void player_cancel(struct world *w, struct player *p);

/* All that has been answered. */
void players_read(struct world *w);
/* Those of a node lose it, and come back as others. What they have asked for may have
 * been done. */
void players_lose(struct world *w, int node);

#endif
