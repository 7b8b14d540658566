/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of command_accelerate_options.c, for command_accelerate.c. */
#ifndef MUSTER_SPEC_COMMAND_ACCELERATE_H
#define MUSTER_SPEC_COMMAND_ACCELERATE_H

#include "spec/command.h"

#include <stdbool.h>

/* Parts of accelerate's library, which variables are for. */
enum accelerate_part {
    ALWAYS,
    ON_CPU,
    ON_GPUS,
    DEEPSPEED,
    FSDP,
    MEGATRON_LM,
    FP8_PART,
    PARALLELISM,
    COMPILED, /* dynamo, which accelerate leaves out with DeepSpeed */
    N_PARTS,
};

enum accelerate_meaning {
    ACCELERATE_CONFIG = LAUNCHER_OWN,
    ACCELERATE_GPUS,
    ACCELERATE_PART,                               /* + enum accelerate_part */
    ACCELERATE_VARIABLE = ACCELERATE_PART + N_PARTS, /* + index of a variable */
};

/* An option that becomes a variable where its part is in use. */
struct accelerate_variable {
    const char *option;
    enum accelerate_part part;
    const char *name;         /* NULL: three of them, see set_fp8_override() */
    const char *def;          /* NULL: unset */
    const char *const *words; /* its values; NULL: any */
    bool upper;               /* words are written in capitals */
    bool flag;                /* takes no value */
    const char *on;           /* a flag that was given; NULL: True */
};

extern const struct launcher_option accelerate_options[];
extern const struct accelerate_variable accelerate_variables[];

#endif
