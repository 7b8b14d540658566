/* SPDX-License-Identifier: Apache-2.0 */
/* How memory lies, as far as it counts for what is saved and loaded. */
#include <config.h>

#include "ckpt/registry.h"

#include "tests/lib/tap.h"

#include <string.h>

struct one {
    const char *what;
    uint64_t shape[3];
    int64_t strides[3];
    bool is_plain; /* it lies as in a file */
};

static const struct one cases[] = {
    {"row-major", {2, 3, 4}, {12, 4, 1}, true},
    {"of one row, with any distance to the next", {1, 3, 4}, {99, 4, 1}, true},
    {"without elements", {2, 0, 4}, {7, 7, 7}, true},
    {"with gaps", {2, 3, 4}, {24, 8, 1}, false},
    {"transposed", {2, 3, 4}, {1, 2, 6}, false},
    {"each element the same", {2, 3, 4}, {0, 0, 0}, false},
    {"backwards", {2, 3, 4}, {-12, -4, -1}, false},
};

int main(void)
{
    static float data[128];

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct one *c = &cases[i];
        struct muster_ckpt_tensor t = {.name = "t", .dtype = MUSTER_F32, .n_dims = 3,
                                       .shape = c->shape, .strides = c->strides,
                                       .data = data + 64};
        struct registry r = {0};
        struct error e = {0};

        is_int(registry_tensor(&r, &t, &e), 0, "%s: it is registered", c->what);
        ok(r.n_pieces == 1 && !r.pieces[0].strides == c->is_plain &&
               (c->is_plain || memcmp(r.pieces[0].strides, c->strides, sizeof(c->strides)) == 0),
           "%s: %s", c->what, c->is_plain ? "nothing has to be put in order"
                                          : "its distances count");
        registry_release(&r);
    }
    return tap_done();
}
