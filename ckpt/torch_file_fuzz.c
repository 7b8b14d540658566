/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a file of torch.save, new or old, as a pickle, with all that it says, and as
 * .metadata of a distributed checkpoint. */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/bytes_io.h"
#include "ckpt/dcp_places.h"
#include "ckpt/pickle.h"
#include "ckpt/pickle_tree.h"
#include "ckpt/torch_file.h"
#include "ckpt/torch_old.h"
#include "ckpt/torch_tensors.h"
#include "ckpt/zip.h"
#include "tests/lib/fuzz.h"

#include <stdlib.h>

static int take(void *arg, const char *name, const struct torch_tensor *t, struct error *e)
{
    (void)arg;
    (void)e;
    expect(name && t->n_dims <= BOX_MAX_DIMS && (t->end == 0 || t->offset < t->end));
    return 0;
}

static int leave(void *arg, const char *name, bool is_tensor, struct error *e)
{
    (void)arg;
    (void)is_tensor;
    (void)e;
    expect(name);
    return 0;
}

static void look_through(const uint8_t *data, size_t size)
{
    const struct torch_walk walk = {.each = take, .other = leave, .max_values = 10000};
    _pickle_tree_ struct pickle_tree tree = {0};

    if (pickle_tree_read(data, size, &tree, NULL) == 0) {
        torch_tensors(tree.root, "", "tensor", &walk, NULL);
        pickle_node_field(tree.root, "storage_data");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes_io b = bytes_io(data, size);
    _dcp_places_ struct dcp_places places = {0};
    struct torch_file facts = {0};
    struct torch_asked asked[] = {{.key = "optimizer"},
                                  {.key = "stage", .behind = "zero_optimization"}};
    uint64_t n = 0;
    _zip_ struct zip z = {0};
    size_t len = 0;

    if (zip_read(&b.io, 0, &z, NULL) == 0) {
        for (size_t i = 0; i < z.n; i++) {
            expect(z.entries[i].begin <= z.entries[i].end &&
                   z.entries[i].end <= size);
        }
    }
    if (torch_file_check(&b.io, 0, true, &facts, NULL) == 0) {
        expect(facts.bytes <= size);
    }
    if (pickle_check(data, size, &len, NULL) == 0) {
        expect(len <= size && data[len - 1] == '.');
    }
    torch_file_number(&b.io, 0, "dp_world_size", &n);
    torch_file_ask(&b.io, 0, asked, ARRAY_SIZE(asked));
    look_through(data, size);
    if (size > 0) {
        _torch_old_ struct torch_old old = {0};

        torch_old_check(&b.io, 0, size, NULL);
        if (torch_old_open(&b.io, 0, size, &old, NULL) == 0) {
            look_through(old.data + old.pickle_at, old.pickle_len);
            for (size_t i = 0; i < old.n_storages; i++) {
                expect(old.storages[i].begin <= old.storages[i].end &&
                       old.storages[i].end <= size);
            }
        }
    }
    if (dcp_places_read(data, size, &places, NULL) == 0) {
        for (size_t i = 0; i < places.n; i++) {
            const char *end = places.items[i].file + places.items[i].file_len;

            expect(places.items[i].file > (const char *)data &&
                   end <= (const char *)data + size);
        }
    }
    return 0;
}
