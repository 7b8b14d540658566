/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of torchrun's options that are languages of their own. Private to
 * command_torch*.c.
 */
#ifndef MUSTER_SPEC_COMMAND_TORCH_H
#define MUSTER_SPEC_COMMAND_TORCH_H

#include "spec/command.h"

#include <stdbool.h>

/* "join_timeout=30,...": becomes gang.timeout, or has no effect. */
void torch_read_rdzv_conf(struct command *cmd, const struct launcher_hit *hit);

/* "SIGTERM,SIGUSR1": those that muster answers, anyway. */
void torch_read_signals(struct command *cmd, const struct launcher_hit *hit);

/* What --redirects and --tee ("3", "0:1,1:2"; 1 is standard output, 2 standard
 * error) and --local-ranks-filter ("0,2") leave on the screen becomes
 * logs.streams. A hit without an option was not given. */
void torch_settle_streams(struct command *cmd,
                          const struct launcher_hit *redirects,
                          const struct launcher_hit *tee,
                          const struct launcher_hit *filter);

/* "[${role_name}${local_rank}]:" becomes logs.prefix. */
void torch_read_prefix(struct command *cmd, const struct launcher_hit *hit);

/* What torchrun puts before lines where nothing says it: only what it tees has
 * anything, that is "[default0]:". */
void torch_default_prefix(struct command *cmd, bool is_teed);

/* Variables by which torchrun's agent is asked for what muster does not do: who
 * relies on that is told. */
void torch_note_variables(struct command *cmd);

/* An error that names the option, its value, and what was expected. */
void torch_refuse(struct command *cmd, const struct launcher_hit *hit,
                  const char *expected);

#endif
