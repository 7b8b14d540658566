/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.resumeArg: how a program is told the checkpoint that it is to start
 * from. Pure.
 *
 *   --resume_from_checkpoint={path}   one word
 *   --resume_from_checkpoint=         the same
 *   --load {path}                     two words
 *   --load                            the same
 */
#ifndef MUSTER_LAUNCHER_RESUME_ARG_H
#define MUSTER_LAUNCHER_RESUME_ARG_H

#include "base/error.h"
#include "base/str.h"

/* Puts `arg`, with `path` in it, at the end of `argv`; where the command gives that
 * option already, that one goes. -ENOMEM. */
int resume_arg_apply(const char *arg, const char *path, struct strlist *argv,
                     struct error *e);

#endif
