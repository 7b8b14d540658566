/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/api_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/model_bed.h"
#include "tests/lib/tap.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void api_bed_begin(char root[API_BED_ROOT_BYTES])
{
    snprintf(root, API_BED_ROOT_BYTES, "%s/ckpt-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root)) {
        bail_out("no temporary directory");
    }
}

int api_bed_end(const char *root)
{
    fs_remove_tree(root, NULL);
    return tap_done();
}

struct muster_ckpt *api_bed_open(const char *root, const char *name,
                                 const struct muster_ckpt_group *group,
                                 const struct muster_ckpt_options *options)
{
    struct muster_ckpt *ck = NULL;
    char path[5000];

    snprintf(path, sizeof(path), "dir:%s/%s", root, name);
    if (muster_ckpt_open(NULL, group, path, options, &ck) < 0) {
        bail_out("open %s: %s", path, muster_ckpt_error_text(ck));
    }
    return ck;
}

void api_bed_find_file(const char *root, const char *name, const char *other, char *to,
                       size_t size)
{
    char pattern[5000];
    glob_t found = {0};

    snprintf(pattern, sizeof(pattern), "%s/%s/step-*/r00000.safetensors", root,
             name);
    is_int(glob(pattern, 0, NULL, &found), 0, "files of checkpoints");
    is_int((int)found.gl_pathc, other ? 2 : 1, "so many");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (!other || strcmp(found.gl_pathv[i], other) != 0) {
            snprintf(to, size, "%s", found.gl_pathv[i]);
        }
    }
    globfree(&found);
}

bool api_bed_flip(const char *path, long byte, int bit)
{
    _fclose_ FILE *f = fopen(path, "r+");
    int c = f && fseek(f, byte, SEEK_SET) == 0 ? fgetc(f) : EOF;

    return c != EOF && fseek(f, byte, SEEK_SET) == 0 &&
           fputc(c ^ 1 << bit, f) != EOF;
}

long api_bed_length(const char *path)
{
    _fclose_ FILE *f = fopen(path, "r");

    return f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
}

void api_bed_travel(void *arg, const struct muster_ckpt_group *group)
{
    struct api_trip *t = arg;
    struct muster_ckpt *ck = api_bed_open(t->root, t->name, group, NULL);
    struct model *m = model_create(ck, (uint32_t)group->rank,
                                   (uint32_t)group->world, t->seed);
    int64_t step = 0;

    model_set(m, t->is_save ? t->step : 0);
    t->rc[group->rank] = t->is_save
                             ? muster_ckpt_save(ck, t->step, 0, NULL)
                             : muster_ckpt_load(ck, t->step, 0, &step);
    t->got[group->rank] = step;
    t->n_wrong[group->rank] =
        model_wrong(m, t->step == MUSTER_CKPT_LATEST ? step : t->step);
    snprintf(t->text[group->rank], sizeof(t->text[0]), "%s",
             muster_ckpt_error_text(ck));
    model_destroy(m);
    muster_ckpt_close(ck);
}
