/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/avoided.h"
#include "tests/lib/tap.h"

static const struct {
    const char *lines, *what;
    bool has_path, has_name;
} cases[] = {
    {NULL, "/c/a", false, false},
    {"", "/c/a", false, false},
    {"\n\n\n", "", false, false},
    {"/c/a\n", "/c/a", true, false},
    {"/c/a", "/c/a", true, false},
    {"/c/b\n/c/a\n", "/c/a", true, false},
    {"/c/ab\n", "/c/a", false, false},
    {"/c/a\n", "/c/ab", false, false},
    {"/c/a\n", "a", false, true},
    {"\n/c/b\n\n/d/a", "a", false, true},
    {"/c/a/\n", "a", false, true},
    {"/c/ba\n", "a", false, false},
    {"/c/a\n", "", false, false},
    {"a\n", "a", true, false}, /* no path of a name in a directory */
    {"/\n", "", false, false},
    {"/\n", "/", true, false},
};

int main(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(avoided_has_path(cases[i].lines, cases[i].what), cases[i].has_path,
               "case %zu: path", i);
        is_int(avoided_has_name(cases[i].lines, cases[i].what), cases[i].has_name,
               "case %zu: name", i);
    }
    return tap_done();
}
