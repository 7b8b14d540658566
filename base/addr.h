/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses as numeric strings: what a host is reachable at, and whether two
 * are the same host. Names are resolved nowhere but at the user's own host list.
 */
#ifndef MUSTER_BASE_ADDR_H
#define MUSTER_BASE_ADDR_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    ADDR_MAX = 64,    /* bytes of a numeric address with its zero */
    ADDR_MAX_WAYS = 8, /* addresses of one host */
};

/* Addresses at which other hosts may reach this one, best first: real
 * interfaces before those that containers and virtual machines make, IPv4
 * before IPv6, no link-local ones. With nothing else, or `loopback`, it is
 * 127.0.0.1. At most ADDR_MAX_WAYS. */
int addr_local(bool loopback, struct strlist *ret, struct error *e);

/* A choice among them: names of interfaces and networks, such as
 * "ib0,10.1.0.0/16", first choice first; an address stands for the network in which
 * each host sees it. What it lacks otherwise goes to `why`. */
bool addr_choice_is_valid(const char *text, struct buf *why);

/* The addresses that such a choice means on this host, as addr_local(). -ENODEV
 * where there is none, with those that there are. */
int addr_chosen(const char *choice, struct strlist *ret, struct error *e);

/* The interface that has this address, or -ENODEV. */
int addr_interface(const char *addr, char *to, size_t size);

/* "1.2.3.4" or "::1" and a port into a socket address. -EINVAL. */
int addr_parse(const char *text, uint16_t port, struct sockaddr_storage *ret,
               struct error *e);

/* Where somebody listens, in one word: "addr,addr,...:port", best first. An
 * allocation failure is remembered in `to`. */
void addr_ways_print(const struct strlist *addrs, uint16_t port,
                     struct buf *to);
/* And back, appended to `ret`. -EINVAL unless it is 1 to ADDR_MAX_WAYS numeric
 * addresses and a port. */
int addr_ways_parse(const char *text, struct strlist *ret, uint16_t *ret_port,
                    struct error *e);

/* Whether a server could listen at that port on all addresses, now. */
bool addr_port_is_free(uint16_t port);

/* The numeric text of an address (v4-mapped IPv6 as IPv4) and its port. */
void addr_format(const struct sockaddr *sa, char to[ADDR_MAX],
                 uint16_t *ret_port);

#endif
