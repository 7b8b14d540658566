/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines that a program writes over again: a progress bar begins, or ends, each of its
 * updates with a carriage return.
 */
#ifndef MUSTER_LAUNCHER_REDRAWN_H
#define MUSTER_LAUNCHER_REDRAWN_H

#include "base/buf.h"

/* Leaves of each line what was drawn last, which a terminal shows, and no returns at its end.
 * A last line without a newline may go on, and keeps those: with what comes behind it, the
 * text can be given again. */
void redrawn_drop(struct buf *text);

#endif
