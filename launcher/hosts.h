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

enum { HOSTS_NAME_BYTES = 256, HOSTS_MAX = 65536 };

struct host {
    char name[HOSTS_NAME_BYTES];
    bool is_local; /* this machine */
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

/* "a,b,node[1-3,07]"; a ":slots" behind a name is allowed and ignored: muster
 * runs one agent a node. A name that comes twice is an error, as is one that
 * could be read as an option. */
int hosts_parse(const char *text, struct host_list *ret, struct error *e);

/* One "name [slots=N ...]" a line; # begins a comment. Errors name the line. */
int hosts_read_file(const char *path, struct host_list *ret, struct error *e);

/* What was asked for, else Slurm's allocation ($SLURM_JOB_NODELIST), else this
 * machine. Either of `text` and `file` may be NULL, not both be given. */
int hosts_find(const char *text, const char *file, struct host_list *ret,
               struct error *e);

/* Whether all of them are this machine. */
bool hosts_all_local(const struct host_list *hosts);

#endif
