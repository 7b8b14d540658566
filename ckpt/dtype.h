/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types of tensors, those of the safetensors format with its names. An
 * element may be smaller than a byte; then it has no address of its own.
 *
 * The numbers are in files (ckpt/index.h): new ones go to the end.
 */
#ifndef MUSTER_CKPT_DTYPE_H
#define MUSTER_CKPT_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

enum dtype {
    DTYPE_BOOL,
    DTYPE_F4,
    DTYPE_F6_E2M3,
    DTYPE_F6_E3M2,
    DTYPE_U8,
    DTYPE_I8,
    DTYPE_F8_E5M2,
    DTYPE_F8_E4M3,
    DTYPE_F8_E8M0,
    DTYPE_F8_E4M3FNUZ,
    DTYPE_F8_E5M2FNUZ,
    DTYPE_I16,
    DTYPE_U16,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_I32,
    DTYPE_U32,
    DTYPE_F32,
    DTYPE_C64,
    DTYPE_F64,
    DTYPE_I64,
    DTYPE_U64,
    N_DTYPES,
};

const char *dtype_name(enum dtype t);

/* False for a name that is none. Exact: case counts. */
bool dtype_parse(const char *name, enum dtype *ret);

uint32_t dtype_bits(enum dtype t);

/* The bytes of `n` elements; false where they are no whole bytes, or more than
 * UINT64_MAX. */
bool dtype_bytes(enum dtype t, uint64_t n, uint64_t *ret);

#endif
