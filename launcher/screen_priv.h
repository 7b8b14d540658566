/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the screen. Private to screen*.c.
 *
 *   screen.c         what happens to the run, and how it ended
 *   screen_output.c  what workers print: as text, folded, or as JSON
 */
#ifndef MUSTER_LAUNCHER_SCREEN_PRIV_H
#define MUSTER_LAUNCHER_SCREEN_PRIV_H

#include "launcher/fold.h"
#include "launcher/json_output.h"
#include "launcher/line_join.h"
#include "launcher/progress.h"
#include "launcher/screen.h"

#include <stdbool.h>

struct screen {
    const struct front_config *config;
    struct writer *writer;
    struct progress *progress;
    struct json_output *json;  /* where that is asked for, else NULL */
    struct fold *fold;         /* likewise, with what joins lines for it */
    struct line_join *lines;
    struct run_status *status; /* the newest, or NULL */
    char *shown;               /* the lines of the last failure shown */
    char *told;                /* the text of the last event shown */
    bool color_out, color_err;
    bool has_noted_ranks; /* that none of those which are to be shown is there */
};

/* Makes what the job's form of output needs. False without memory. */
bool screen_output_start(struct screen *s);
void screen_output_release(struct screen *s);

/* There is a newer status. */
void screen_output_status(struct screen *s);
/* Shows what waits for more of its like. */
void screen_output_unfold(struct screen *s);
/* All that is left. */
void screen_output_flush(struct screen *s);

#endif
