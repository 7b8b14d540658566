/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the relays (store_relay.h) of a store keep of its keys, so that the workers
 * of a node read a value over the trunk once. On both ends of a trunk: where the
 * keys are this knows which trunks keep what (store_share.c), at the relay it is
 * what is kept (store_kept.c). Pure, as store_core.h.
 *
 * A client of a trunk that reads a key or has waited for it gets its answer, and the
 * trunk the word KEEP{key, value}: the trunk reads the key from then on. A request
 * that would change the value (or take it away) of a key that a trunk reads is not
 * done yet: DROP{key} goes to each of them, its connection waits, with what comes
 * behind it, and the request is done when all have answered with the same word, or
 * are gone. Nobody is told to keep a key meanwhile. A relay that has no room for a
 * value forgets it and says FORGOT{key}. The words are a stream of requests on a
 * channel of their own (STORE_CONTROL_CHANNEL): KEEP looks like a SET, DROP like a
 * DELETE_KEY, FORGOT like a GET.
 *
 * That nobody can tell it from one store: what a relay keeps of a key is, at each
 * moment, the value that the key has. For it is kept from a KEEP on, which says the
 * value of that time; the value changes only while no trunk reads the key; a trunk
 * reads it at least from KEEP until its DROP or FORGOT has come back, which a relay
 * says when it has forgotten; and trunks are in order, so that each of these words
 * is about the KEEP before it. No answer to a read is ever kept, so that none can
 * be late. A read that is answered from what is kept, of several keys too, is
 * therefore answered as the store would have answered it at that moment. The
 * client's own order holds as well, because only a client without a request under
 * way, an unanswered SET included, is answered so. Existence is the same: who has a
 * value is there, and a DELETE_KEY is a change.
 *
 * A trunk that is gone keeps its node's relay from nothing: until that sees the end
 * of the trunk, or its node's lease is over (lead.h), it may answer its own workers,
 * which have lost their store and end with the generation, with what was true.
 *
 * Who writes on and on behind a DROP without an answer has to wait at its own node
 * (MORE, store_frame.h); who does not answer is cut off (store_patience.h).
 *
 * Bounds: a relay keeps `kept_bytes`, what was read longest ago is forgotten. Where
 * the keys are it is a bit a trunk for each key that is kept, which counts as the
 * store's memory. A key that has changed SHARE_MAX_CHANGES times while it was kept
 * is asked for each time from then on, so that what changes often costs no words.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_SHARE_H
#define MUSTER_RENDEZVOUS_STORE_SHARE_H

#include "rendezvous/store_wire.h"

enum {
    SHARE_MAX_BYTES = 64 * 1024, /* of a value */
    SHARE_MAX_CHANGES = 2,
};

struct slot;
struct store;
struct store_conn;

/* --- where the keys are --- */

struct share;

/* A trunk, by its number. */
struct reader {
    struct store_conn *control; /* NULL: no trunk has this number */
    uint32_t n_told;            /* to DROP something */
    uint32_t n_dropped;         /* of them, as it has said */
};

struct shares {
    struct share *first;
    struct reader *readers;
    uint32_t n_readers; /* room for so many */
    bool is_changing;   /* within one request, of several keys */
};

/* The control channel of a trunk that has come, and of one that goes: what had to
 * wait for that one alone is due. False without memory. */
bool share_add_reader(struct store *s, struct store_conn *control);
void share_remove_reader(struct store *s, struct store_conn *control);

/* A client has been told what this key's value is, or that it is there. */
void share_key(struct store *s, const struct store_conn *c, struct slot *slot);

/* False: a request of `c` would change what is kept, and is to be done later. */
bool share_may_run(struct store *s, struct store_conn *c,
                   const struct store_request *r);

/* A connection that has to wait is closed. */
void share_unblock(struct store_conn *c);

/* A word that a trunk says. -EPROTO: it makes no sense. */
int share_word(struct store *s, const struct store_conn *control,
               struct store_request *r, struct error *e);

/* Before all keys go, when no trunk is left. */
void share_clear(struct store *s);

/* --- at a relay --- */

struct kept;

struct kept_keys {
    struct kept *first; /* read last */
    struct kept *last;
};

/* All that a request wants to know is kept: it can be answered here. */
bool kept_answers(struct store *s, const struct store_request *r);

/* KEEP. False without room. */
bool kept_put(struct store *s, const char *key, size_t key_len,
              const char *value, size_t len);
void kept_drop(struct store *s, const char *key, size_t len);

/* While more is kept than may be: the key that goes next, or NULL. */
const char *kept_excess(const struct store *s, size_t *ret_len);
void kept_clear(struct store *s);

#endif
