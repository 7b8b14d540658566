/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls to a filesystem (ckpt/io.h) of one who may change it only while an office
 * lasts: each one that changes a name or a file asks first, and is -ESTALE once it is
 * over. So whatever is made of these calls ends there, wherever it was stopped.
 */
#ifndef MUSTER_LAUNCHER_OFFICE_IO_H
#define MUSTER_LAUNCHER_OFFICE_IO_H

#include "ckpt/io.h"
#include "launcher/office.h"

#include <stdbool.h>

struct office_io {
    struct io io; /* for who makes them */
    struct io *below;
    const struct office *office;
    bool was_over; /* something was not done for that: nothing more is, though it may
                      hold again by now */
};

/* Both are borrowed. A copy does not work: it has to stay where it is. */
void office_io_begin(struct office_io *o, struct io *below, const struct office *office);

#endif
