/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of saves into memory of an agent's share: an agent and a kernel that are the
 * linker's hand (see --wrap in Makefile.am.inc), and an image that is saved there, by one
 * thread, or by one that writes and one that helps.
 */
#ifndef MUSTER_CKPT_SAVE_AGENT_BED_H
#define MUSTER_CKPT_SAVE_AGENT_BED_H

#include "ckpt/digest.h"
#include "ckpt/save_priv.h"

#include <pthread.h>
#include <semaphore.h>

/* A block for each of the two threads. */
#define SAVE_AGENT_BYTES (2 * DIGEST_BLOCK_BYTES)

enum save_agent_fault {
    SAVE_AGENT_NO_FAULT,
    SAVE_AGENT_WRITER_FAILS, /* while the helper fills its block */
    SAVE_AGENT_HELPER_FAILS, /* when the writer has done its own */
    SAVE_AGENT_PART_FAILS,   /* what is written behind the image */
};

struct save_agent_bed {
    /* The agent: what it does ... */
    int memory;
    size_t too_short;   /* so many bytes of what was asked for are not there */
    bool is_mapped;     /* what is handed out has its memory */
    int refusal;        /* what is answered instead; 0: that it may */
    bool is_far_behind; /* it answers what was asked before */
    int cannot_tell;    /* that it is being filled: what comes of it */
    long n_processors;
    struct client_place place; /* with nothing in it */
    /* ... and hears, each time last. */
    int n_asked, n_done, n_filled;
    struct worker_snap_begin asked;
    struct worker_snap_fill filled;
    uint64_t filled_at; /* how far it was then */
    char first_at;      /* the first byte of the image then */
    struct worker_snap_done done;
    struct worker_snap_want wanted; /* with it; of no level: nothing was */
    /* The kernel. */
    enum save_agent_fault fault;
    pthread_t writer;
    sem_t is_writing, may_write;
    bool is_held; /* the writer's first write waits */
    /* What is saved. */
    struct save_way way;
    struct image image;
    struct part part;
    struct save_job job;
    struct error error;
    int rc; /* of save_agent_bed_put() */
};

/* Of the test, which defines it: the linker's hand knows no other one. */
extern struct save_agent_bed save_agent_bed;

void save_agent_bed_open(struct save_agent_bed *b);
void save_agent_bed_close(struct save_agent_bed *b);

int save_agent_bed_reserve(struct save_agent_bed *b);
/* For a thread, of that bed; what came of it is in its rc. */
void *save_agent_bed_put(void *bed);
/* As at a fence: a thread of the save's own puts, and the caller helps. */
int save_agent_bed_save(struct save_agent_bed *b, enum save_agent_fault f);
/* The same by one thread, without anything in its way. */
int save_agent_bed_save_alone(struct save_agent_bed *b);
int save_agent_bed_hand(struct save_agent_bed *b);

/* How long the memory is, and how much of the image is there, by the page before it. */
uint64_t save_agent_bed_bytes(const struct save_agent_bed *b);
uint64_t save_agent_bed_count(const struct save_agent_bed *b);
/* Whether the memory has the image, and a part behind it. */
bool save_agent_bed_is_right(const struct save_agent_bed *b);
/* Behind the image is the part that would be made now, and nothing of one before it. */
bool save_agent_bed_is_part_right(const struct save_agent_bed *b);

#endif
