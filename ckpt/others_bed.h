/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a directory of checkpoints of other programs, each of files that are as small
 * as they can be. */
#ifndef MUSTER_CKPT_OTHERS_BED_H
#define MUSTER_CKPT_OTHERS_BED_H

#include "ckpt/found.h"
#include "ckpt/found_bed.h"

/* Names for others_bed_put_all(): of the Trainer, without its state and random numbers; of
 * diffusers, without the latter; and of DeepSpeed beside the Trainer, step 5. */
#define OTHERS_TRAINER "model.safetensors optimizer.pt scheduler.pt training_args.bin "
#define OTHERS_DIFFUSERS "unet/diffusion_pytorch_model.safetensors unet/config.json " \
                         "optimizer.bin scheduler.bin "
#define OTHERS_ZERO "global_step5/mp_rank_00_model_states.pt " \
                    "global_step5/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt "

struct others_bed {
    char path[FOUND_BED_PATH_BYTES];
    int dir;
};

void others_bed_open(struct others_bed *b);
void others_bed_close(struct others_bed *b);

void others_bed_put_bytes(const struct others_bed *b, const char *name, const void *bytes,
                          size_t len);
/* A file that is right for its name, with its folders: a pickle, a safetensors file, or
 * text; the Trainer's state is of step 5. */
void others_bed_put(const struct others_bed *b, const char *name);
/* Such files in a folder of that name; theirs are separated by blanks. */
void others_bed_put_all(const struct others_bed *b, const char *dir, const char *names);

/* All bytes of one, by its name. */
int others_bed_check(const struct others_bed *b, const char *name, struct found_facts *ret,
                     struct error *e);

#endif
