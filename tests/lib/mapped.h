/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: how much this process has mapped. */
#ifndef MUSTER_TESTS_LIB_MAPPED_H
#define MUSTER_TESTS_LIB_MAPPED_H

/* Bytes, in whole pages. Nothing is allocated to find it out. */
unsigned long long mapped_bytes(void);

#endif
