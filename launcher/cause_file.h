/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a job failed, for whoever started muster: where TORCHELASTIC_ERROR_FILE is
 * set in the environment of the front end, the error file of the worker that
 * failed first is copied there, as torchrun does, with its exit status in
 * message.errorCode. Where that worker left none, one is made of what is known.
 */
#ifndef MUSTER_LAUNCHER_CAUSE_FILE_H
#define MUSTER_LAUNCHER_CAUSE_FILE_H

#include "base/buf.h"
#include "base/error.h"
#include "launcher/status.h"

/* Whether the status is that of a job which a failure has ended. */
bool cause_file_is_due(const struct run_status *s);

/* The text. `child` is the worker's own error file, or NULL; one that has no
 * object as its message is taken as it is. -ENOMEM only. */
int cause_file_make(const struct run_status *s, const char *child,
                    struct buf *to, struct error *e);

/* Makes it from the run directory and the status, and replaces `path` by it. */
int cause_file_write(const struct run_status *s, const char *run_dir,
                     const char *path, struct error *e);

#endif
