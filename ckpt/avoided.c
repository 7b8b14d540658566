/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/avoided.h"

#include <stddef.h>
#include <string.h>

/* The next line that is not empty, and how long it is; NULL at the end. */
static const char *next_line(const char **at, size_t *ret_len)
{
    const char *line = *at ? *at + strspn(*at, "\n") : "";

    *ret_len = strcspn(line, "\n");
    *at = line + *ret_len;
    return *ret_len ? line : NULL;
}

bool avoided_has_path(const char *lines, const char *path)
{
    const char *line;
    size_t len;

    while ((line = next_line(&lines, &len))) {
        if (strlen(path) == len && memcmp(line, path, len) == 0) {
            return true;
        }
    }
    return false;
}

bool avoided_has_name(const char *lines, const char *name)
{
    size_t n = strlen(name), len;
    const char *line;

    while ((line = next_line(&lines, &len))) {
        while (len > 1 && line[len - 1] == '/') {
            len--;
        }
        if (n > 0 && len > n && line[len - n - 1] == '/' &&
            memcmp(line + len - n, name, n) == 0) {
            return true;
        }
    }
    return false;
}
