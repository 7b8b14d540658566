/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ctrl-C, and SIGTERM and SIGHUP, while something is made that is to be there whole, or
 * not at all: whoever makes it looks now and then, gives it up, and takes away what is
 * there of it. Then this process ends by that signal, as it would have. A second one ends
 * it at once, whatever is left.
 *
 * One thread, and one at a time; signals that are ignored (nohup) stay so.
 */
#ifndef MUSTER_LAUNCHER_CKPT_STOP_H
#define MUSTER_LAUNCHER_CKPT_STOP_H

#include <stdbool.h>

void ckpt_stop_begin(void);
/* Any thread. */
bool ckpt_stop_came(void);
/* Does not return where one came; what is in stdout is written before. */
void ckpt_stop_end(void);

#endif
