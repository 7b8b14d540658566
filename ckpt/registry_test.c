/* SPDX-License-Identifier: Apache-2.0 */
/* How memory lies, as far as it counts for what is saved and loaded, and what others are
 * told of it. */
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

static uint64_t hold(struct registry *r, const char *name, uint64_t n)
{
    static float data[8];
    const struct muster_ckpt_tensor t = {.name = name, .dtype = MUSTER_F32, .n_dims = 1,
                                         .shape = &n, .data = data};

    return registry_tensor(r, &t, NULL) == 0 ? registry_digest(r, 2, 0) : 0;
}

static void test_digest(void)
{
    struct registry r = {0}, other = {0};
    uint64_t one = hold(&r, "a", 4), two = hold(&r, "b", 4);
    uint64_t moved = hold(&r, "a", 4), changed, again;

    ok(one && two && one != two && moved == two, "a digest of what is registered");
    changed = registry_tensor(&r, &(struct muster_ckpt_tensor){
                                      .name = "b", .dtype = MUSTER_U32, .n_dims = 1,
                                      .shape = (uint64_t[]){4}, .data = &other}, NULL) == 0
                  ? registry_digest(&r, 2, 0) : 0;
    again = hold(&r, "b", 4);
    ok(changed && changed != two && again == two, "is another one until that is as before");
    ok(registry_digest(&r, 3, 0) != two && registry_digest(&r, 2, 1) != two,
       "or of other ranks, and elsewhere");
    hold(&other, "b", 4);
    ok(hold(&other, "a", 4) != two, "or in another order");
    registry_release(&r);
    registry_release(&other);
}

static void test_memory(void)
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
}

int main(void)
{
    test_memory();
    test_digest();
    return tap_done();
}
