/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as JSON: what a reader of JSON takes is whole, with a blank behind it, too, and
 * is not without its last bracket. */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/found_json.h"
#include "tests/lib/fuzz.h"

#include <string.h>

enum { MAX_BYTES = 900 }; /* so that no value is too deep */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _free_ char *text = calloc(1, size + 2);
    json_t *json;

    if (!text || size == 0 || size > MAX_BYTES) {
        return 0;
    }
    memcpy(text, data, size);
    json = json_loadb(text, size, 0, NULL);
    (void)found_json_is_whole(text, size);
    if (json) {
        expect(found_json_is_whole(text, size));
        text[size] = ' ';
        expect(found_json_is_whole(text, size + 1));
        *strrchr(text, json_is_array(json) ? ']' : '}') = '\0';
        expect(!found_json_is_whole(text, strlen(text)));
    }
    json_decref(json);
    return 0;
}
