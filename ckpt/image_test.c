/* SPDX-License-Identifier: Apache-2.0 */
/* What the header of a planned image says, for one step and for the next. */
#include <config.h>

#include "ckpt/image.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static char data[16];
static const char uuid[] = "0123456789abcdef0123456789abcdef";

/* With names of a length that leaves `bytes` of the header's last block to blanks, or few. */
static void plan_few(struct image_piece *to, char *name, size_t n, uint64_t step, struct image *im)
{
    static const uint64_t zero, len = 10;

    memset(name, 'a', n);
    name[n] = '\0';
    *to = (struct image_piece){
        .tensor = {.name = name, .dtype = DTYPE_U8, .n_dims = 1, .shape = &len},
        .name = name, .shape = &len, .at = &zero, .data = data};
    if (image_plan(to, 1, &(struct image_of){.step = step, .uuid = uuid}, im, NULL) < 0) {
        bail_out("no image");
    }
}

/* Whatever number of digits there were, it is as if it were planned anew; and planned anew it
 * is only where that has another length. */
static void test_set_step(void)
{
    static const uint64_t steps[] = {9, 10, 9, 99, 100, 12345, 7, 999999999999, 0};
    static char first[IMAGE_ALIGN + 1], second[IMAGE_ALIGN + 1];
    int n_wrong = 0, n_anew = 0, n_more = 0;

    for (size_t len = IMAGE_ALIGN / 2; len < IMAGE_ALIGN; len++) {
        struct image_piece a, b;
        _image_ struct image im = {0};

        plan_few(&a, first, len, 8, &im);
        for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
            _image_ struct image want = {0};
            uint64_t bytes = im.bytes;
            bool is_again = image_set_step(&im, steps[i], uuid);

            plan_few(&b, second, len, steps[i], &want);
            n_anew += want.bytes != bytes;
            if (!is_again) {
                n_more++;
                image_release(&im);
                plan_few(&a, first, len, steps[i], &im);
            }
            n_wrong += im.bytes != want.bytes || im.header.len != want.header.len ||
                       memcmp(im.header.data, want.header.data, want.header.len) != 0 ||
                       a.tensor.begin != b.tensor.begin;
        }
    }
    is_int(n_wrong, 0, "the header of another step is as if it were planned anew");
    ok(n_anew > 0 && n_more == n_anew, "which it is where it has another length (%d, %d)",
       n_more, n_anew);
}

static bool tells_places(bool has_pieces)
{
    static const uint64_t at = 5, len = 10, shape = 15;
    static char name[] = "half";
    struct image_piece piece = {
        .tensor = {.name = name, .dtype = DTYPE_U8, .n_dims = 1, .shape = &len},
        .name = name, .shape = &shape, .at = &at, .data = data};
    const struct image_of of = {.step = 1, .uuid = uuid, .has_pieces = has_pieces};
    _image_ struct image im = {0};

    if (image_plan(&piece, 1, &of, &im, NULL) < 0) {
        bail_out("no image");
    }
    return strstr(buf_str(&im.header) + ST_PREFIX_BYTES,
                  "\"DCP_SHARDING_INFO\":\"{\\\"half\\\":{\\\"saved_offsets\\\":[5]}}\"");
}

static void test_places(void)
{
    ok(tells_places(true), "a file of a checkpoint with pieces tells where each is");
    ok(!tells_places(false), "one of whole tensors does not");
}

int main(void)
{
    test_set_step();
    test_places();
    return tap_done();
}
