/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python pickles, looked at and never run: whether one is whole, from its first
 * instruction to STOP. Source: the protocol's description in the standard
 * library's pickletools, protocols 0 to 5.
 */
#ifndef MUSTER_CKPT_PICKLE_H
#define MUSTER_CKPT_PICKLE_H

#include "base/error.h"

#include <stddef.h>

/* 0, and how many bytes it takes; -ERR_FORMAT: cut, or an instruction that there
 * is not, at a byte that `e` names. */
int pickle_check(const void *data, size_t len, size_t *ret_len,
                 struct error *e);

#endif
