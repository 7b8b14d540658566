/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/others_bed.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void others_bed_open(struct others_bed *b)
{
    b->dir = found_bed_open(b->path);
}

void others_bed_close(struct others_bed *b)
{
    found_bed_close(b->dir, b->path);
}

void others_bed_put_bytes(const struct others_bed *b, const char *name, const void *bytes,
                          size_t len)
{
    found_bed_put(b->dir, name, bytes, len);
}

void others_bed_put(const struct others_bed *b, const char *name)
{
    static const char st[] = "\x02\0\0\0\0\0\0\0{}",
                      nothing[] = "\x80\x02}(X\x0c\0\0\0storage_data}X\x07\0\0\0versionNu.";
    char path[256], *slash;

    snprintf(path, sizeof(path), "%s", name);
    for (slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdirat(b->dir, path, 0700);
        *slash = '/';
    }
    if (str_ends(name, ".safetensors")) {
        others_bed_put_bytes(b, name, st, sizeof(st) - 1);
    } else if (str_ends(name, "/trainer_state.json")) {
        others_bed_put_bytes(b, name, "{\"global_step\":5}", 17);
    } else if (str_ends(name, ".index.json")) {
        others_bed_put_bytes(b, name, "{\"weight_map\":{}}", 17);
    } else if (str_ends(name, ".json")) {
        others_bed_put_bytes(b, name, "{}", 2);
    } else if (str_ends(name, ".metadata")) {
        others_bed_put_bytes(b, name, nothing, sizeof(nothing) - 1);
    } else {
        others_bed_put_bytes(b, name, "\x80\x02}.", 4);
    }
}

void others_bed_put_all(const struct others_bed *b, const char *dir, const char *names)
{
    char text[1024], path[512], *rest = text;

    snprintf(text, sizeof(text), "%s", names);
    mkdirat(b->dir, dir, 0700);
    for (char *name; (name = strsep(&rest, " "));) {
        if (*name) {
            snprintf(path, sizeof(path), "%s/%s", dir, name);
            others_bed_put(b, path);
        }
    }
}

int others_bed_check(const struct others_bed *b, const char *name, struct found_facts *ret,
                     struct error *e)
{
    struct found f;

    found_one(io_system(), b->dir, name, &f);
    return found_check(io_system(), b->dir, &f, true, ret, e);
}
