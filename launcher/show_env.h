/* SPDX-License-Identifier: Apache-2.0 */
/* What `muster run --dry-run --show-env` prints. */
#ifndef MUSTER_LAUNCHER_SHOW_ENV_H
#define MUSTER_LAUNCHER_SHOW_ENV_H

#include "launcher/env_plan.h"
#include "launcher/run_config.h"
#include "launcher/show.h"
#include "spec/spec.h"

struct show_env {
    const struct env_plan *plan;
    const struct spec_result *spec;  /* for the places of the job's own values */
    const struct run_config *config; /* directory and umask */
    enum show_format format;
};

/* To stdout; returns the exit status. */
int show_env(const struct show_env *s);

#endif
