/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: how many descriptors this process has open. */
#ifndef MUSTER_TESTS_LIB_FDS_H
#define MUSTER_TESTS_LIB_FDS_H

/* Those of the main thread, where another one has a table of its own (base/thread.h). The
 * one by which they are counted is among them. Gives up where nobody can tell. */
int fds_n_open(void);

#endif
