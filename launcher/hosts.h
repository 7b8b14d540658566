/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hosts of a run: from the command line, a host file, Slurm's allocation, or
 * this machine alone. Pure text work except for reading the host file.
 */
#ifndef MUSTER_LAUNCHER_HOSTS_H
#define MUSTER_LAUNCHER_HOSTS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOSTS_NAME_BYTES = 256, HOSTS_MAX = 65536, HOSTS_MAX_SLOTS = 1024 };

struct host {
    char name[HOSTS_NAME_BYTES];
    bool is_local; /* this machine */
    uint32_t slots; /* as the list or Slurm has it; 0: nothing says */
};

enum hosts_source {
    HOSTS_LOCAL,
    HOSTS_GIVEN, /* --hosts, --hostfile */
    HOSTS_SLURM, /* Slurm's allocation, or some of it by name */
};

struct host_list {
    struct host *items; /* owned */
    size_t n;
    enum hosts_source source;
    uint32_t *places; /* a hash table of items by name, each index + 1; owned */
    size_t n_places;
};

void host_list_release(struct host_list *l);
#define _host_list_ __attribute__((cleanup(host_list_release)))

/* "a,b,node[1-3,07]", each with its slots behind a colon, or without. A name that
 * comes twice is an error, as is one that could be read as an option. */
int hosts_parse(const char *text, struct host_list *ret, struct error *e);

/* One "name [slots=N ...]" a line; # begins a comment. Errors name the line. */
int hosts_read_file(const char *path, struct host_list *ret, struct error *e);

/* Whether a host that its user calls `given` may be the one that calls itself `own`, which
 * may be without the domain. */
bool hosts_is_name_of(const char *given, const char *own);

/* The number of node `node` (from 0) in a list of Slurm such as "2(x3),1". False
 * where it has none. */
bool hosts_slurm_count(const char *text, uint32_t node, uint32_t *ret);

/* The place of a name in a list, or -1. */
int64_t hosts_place(const struct host_list *l, const char *name);

/* Where the list says no slots of a node of Slurm's allocation: the tasks that the
 * job was asked to have there, else its CPUs. */
void hosts_add_slurm_slots(struct host_list *l);

/* Whether Slurm was asked for tasks, or CPUs for each, by who made the job: then
 * tasks are how many processes it is to have on each node. Not where it was asked
 * for one task a node that has GPUs, as for launchers which start one a GPU; nor
 * in a step, which hides what its job was asked for. */
bool hosts_slurm_chose(void);

/* The CPUs that Slurm has granted on a host of the list; 0: not known. */
uint32_t hosts_slurm_cpus(const struct host_list *all, const char *name);

/* Whether any of them has. */
bool hosts_have_slots(const struct host_list *hosts);

/* The slots that all of them have; 0 where some have others, or none. */
uint32_t hosts_same_slots(const struct host_list *hosts);

/* What was asked for, else Slurm's allocation ($SLURM_JOB_NODELIST), else this
 * machine. Either of `text` and `file` may be NULL, not both be given. */
int hosts_find(const char *text, const char *file, struct host_list *ret,
               struct error *e);

/* Whether all of them are this machine. */
bool hosts_all_local(const struct host_list *hosts);

#endif
