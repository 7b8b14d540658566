/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t bits;
} types[N_DTYPES] = {
    [DTYPE_BOOL] = {"BOOL", 8},
    [DTYPE_F4] = {"F4", 4},
    [DTYPE_F6_E2M3] = {"F6_E2M3", 6},
    [DTYPE_F6_E3M2] = {"F6_E3M2", 6},
    [DTYPE_U8] = {"U8", 8},
    [DTYPE_I8] = {"I8", 8},
    [DTYPE_F8_E5M2] = {"F8_E5M2", 8},
    [DTYPE_F8_E4M3] = {"F8_E4M3", 8},
    [DTYPE_F8_E8M0] = {"F8_E8M0", 8},
    [DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [DTYPE_I16] = {"I16", 16},
    [DTYPE_U16] = {"U16", 16},
    [DTYPE_F16] = {"F16", 16},
    [DTYPE_BF16] = {"BF16", 16},
    [DTYPE_I32] = {"I32", 32},
    [DTYPE_U32] = {"U32", 32},
    [DTYPE_F32] = {"F32", 32},
    [DTYPE_C64] = {"C64", 64},
    [DTYPE_F64] = {"F64", 64},
    [DTYPE_I64] = {"I64", 64},
    [DTYPE_U64] = {"U64", 64},
};

const char *dtype_name(enum dtype t)
{
    return types[t].name;
}

uint32_t dtype_bits(enum dtype t)
{
    return types[t].bits;
}

bool dtype_parse(const char *name, enum dtype *ret)
{
    for (int i = 0; i < N_DTYPES; i++) {
        if (strcmp(name, types[i].name) == 0) {
            *ret = (enum dtype)i;
            return true;
        }
    }
    return false;
}

bool dtype_bytes(enum dtype t, uint64_t n, uint64_t *ret)
{
    unsigned __int128 bits = (unsigned __int128)n * types[t].bits;

    if (bits % 8 != 0 || bits / 8 > UINT64_MAX) {
        return false;
    }
    *ret = (uint64_t)(bits / 8);
    return true;
}
