/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server, the client and the watch of launcher/control.h share: where
 * the sockets of a run are, and how a request is read.
 */
#ifndef MUSTER_LAUNCHER_CONTROL_PATH_H
#define MUSTER_LAUNCHER_CONTROL_PATH_H

#include "launcher/control.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/un.h>

enum {
    CONTROL_VERSION = 1,
    CONTROL_MAX_LINE = 65536,
    CONTROL_MAX_ANSWER = 16 * 1024 * 1024, /* an environment may be large */
    CONTROL_NAME_SIZE = 64, /* of a socket, with its suffix */
};

/* Tells control sockets from others in the directory of a run. */
#define CONTROL_SUFFIX ".ctl"

/* Opens <runtime dir>/<run_id>, made if missing where `make` says so. The caller
 * closes *ret_fd. -ENOENT without it. */
int control_open_dir(const char *run_id, bool make, int *ret_fd,
                     struct error *e);

/* Removes the directory, and what the dead left in it, if nobody lives there. */
void control_remove_dir(int dir_fd);

/* The address of a socket inside the directory, short whatever its path is;
 * valid while `dir_fd` is open. */
void control_address(int dir_fd, const char *name, struct sockaddr_un *to);

/* Parses one request and calls `on_request`. */
int control_dispatch(control_f *on_request, void *arg, const char *text,
                     size_t len, struct jsonw *reply, struct error *e);

#endif
