/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which build this is. A version alone does not tell: every commit between two
 * releases has the same one, and so have two ways to configure it. So make takes a
 * digest of the sources, of config.h and of the flags (build-aux/build-id), which
 * is the same wherever the same is built, and different programs of one build
 * agree on it. The parts of a run show it to one another when they meet.
 *
 * Only the programs of a run are linked with it (base/build_linked.c): each change
 * of a source changes it, and hundreds of tests would have to be linked anew.
 */
#ifndef MUSTER_BASE_BUILD_H
#define MUSTER_BASE_BUILD_H

/* "0.1.0 (build 0123456789ab)", below 64 bytes; the version alone in a program
 * that is linked without. */
const char *build_name(void);

/* "0123456789ab", or "". */
const char *build_id(void);

/* What the programs are linked with. */
extern const char build_linked_name[] __attribute__((weak));
extern const char build_linked_id[] __attribute__((weak));

#endif
