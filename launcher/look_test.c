/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/look.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

enum { N = 3 };

#define ITSELF {.is_known = true, .state = BESIDE_ITSELF}
#define NONE {.is_known = true, .state = BESIDE_NONE}
#define NO_DIR {.is_known = true, .state = BESIDE_NO_DIR}
#define BLIND {.is_known = false}
#define OTHER(name, whole, at) \
    {.is_known = true, .state = BESIDE_OTHER, .path = name, .is_whole = whole, \
     .changed_ns = at}

static const struct {
    const char *what;
    size_t n;
    struct look_answer answers[N];
    bool is_late;
    enum look_verdict want;
    const char *best;
} cases[] = {
    {"nobody has answered", 0, {ITSELF}, false, LOOK_WAIT, ""},
    {"one sees it", 1, {ITSELF}, false, LOOK_ITSELF, ""},
    {"one sees it, and others another", 2, {OTHER("/a", true, 9), ITSELF}, false,
     LOOK_ITSELF, "/a"},
    {"others may see it", 2, {NONE, OTHER("/a", true, 9)}, false, LOOK_WAIT, "/a"},
    {"nobody does", 3, {NONE, OTHER("/a", false, 5), NO_DIR}, false, LOOK_OTHER, "/a"},
    {"the newest", 3, {OTHER("/a", false, 5), OTHER("/b", false, 7), NONE}, false,
     LOOK_OTHER, "/b"},
    {"one that is known to be whole", 3,
     {OTHER("/a", false, 9), OTHER("/b", true, 2), OTHER("/c", true, 1)}, false,
     LOOK_OTHER, "/b"},
    {"one is silent, others see another", 2, {NONE, OTHER("/a", true, 9)}, true,
     LOOK_OTHER, "/a"},
    {"all see that there is none", 3, {NONE, NONE, NONE}, false, LOOK_NONE, ""},
    {"one is silent", 2, {NONE, NONE}, true, LOOK_UNKNOWN, ""},
    {"one has not the directory", 3, {NONE, NONE, NO_DIR}, false, LOOK_UNKNOWN, ""},
    {"one cannot look", 3, {NONE, BLIND, NONE}, false, LOOK_UNKNOWN, ""},
    {"nobody has the directory", 3, {NO_DIR, NO_DIR, NO_DIR}, false, LOOK_UNKNOWN, ""},
    {"all are silent", 0, {BLIND}, true, LOOK_UNKNOWN, ""},
};

int main(void)
{
    struct look nobody = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct look k = {.n_asked = N};

        for (size_t a = 0; a < cases[i].n; a++) {
            look_take(&k, &cases[i].answers[a]);
        }
        is_int(look_judge(&k, cases[i].is_late), cases[i].want, "%s", cases[i].what);
        is_str(k.best.path, cases[i].best, "%s: which", cases[i].what);
    }
    is_int(look_judge(&nobody, false), LOOK_UNKNOWN, "nobody is asked");
    return tap_done();
}
