/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ~/.aws/credentials and ~/.aws/config: [sections] of lines "key = value". Lines
 * that begin with blanks belong to a key with a table of its own, and are nothing
 * to us; '#' and ';' begin comments at the beginning of a line.
 */
#include <config.h>

#include "ckpt/s3_config.h"

#include <stdlib.h>
#include <string.h>

struct span {
    const char *at;
    size_t len;
};

static struct span trim(struct span s)
{
    while (s.len && strchr(" \t\r", s.at[0])) {
        s.at++;
        s.len--;
    }
    while (s.len && strchr(" \t\r", s.at[s.len - 1])) {
        s.len--;
    }
    return s;
}

static bool is_text(struct span s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

/* The name in a line "[name]"; len 0 for any other. */
static struct span section_of(struct span line)
{
    const char *end = line.len && line.at[0] == '['
                          ? memchr(line.at, ']', line.len) : NULL;

    return end ? trim((struct span){line.at + 1, (size_t)(end - line.at - 1)})
               : (struct span){line.at, 0};
}

/* A line of a section that has `key`, or any line if that is NULL. */
static bool find(const char *text, const char *section, const char *key,
                 struct span *ret)
{
    bool is_inside = false;

    while (*text) {
        struct span line = {text, strcspn(text, "\n")}, name;
        const char *equals = memchr(line.at, '=', line.len);

        text += line.len + (text[line.len] == '\n');
        name = section_of(line);
        if (name.len) {
            is_inside = is_text(name, section);
            if (is_inside && !key) {
                return true;
            }
        } else if (key && is_inside && equals && !strchr(" \t#;", line.at[0]) &&
                   is_text(trim((struct span){line.at,
                                              (size_t)(equals - line.at)}),
                           key)) {
            *ret = trim((struct span){equals + 1, (size_t)(line.at + line.len -
                                                           equals - 1)});
            return true;
        }
    }
    return false;
}

char *s3_ini_get(const char *text, const char *section, const char *key)
{
    struct span value;

    return find(text, section, key, &value) ? strndup(value.at, value.len)
                                            : NULL;
}

bool s3_ini_has(const char *text, const char *section)
{
    struct span ignored;

    return find(text, section, NULL, &ignored);
}
