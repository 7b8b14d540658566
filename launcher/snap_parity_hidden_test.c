/* SPDX-License-Identifier: Apache-2.0 */
/* Where nobody may read on the way what an agent sends, all is hidden: pieces for who keeps
 * parity of them, and what somebody asks for. Else it lies open. */
#include <config.h>

#include "launcher/parity_bed.h"

#include "tests/lib/tap.h"

#include <signal.h>

static int n_hidden, n_open;

int __real_copy_send_bytes(struct link *l, bool hides, uint16_t type, const void *data,
                           size_t len);
int __wrap_copy_send_bytes(struct link *l, bool hides, uint16_t type, const void *data,
                           size_t len);

int __wrap_copy_send_bytes(struct link *l, bool hides, uint16_t type, const void *data,
                           size_t len)
{
    n_hidden += hides;
    n_open += !hides;
    return __real_copy_send_bytes(l, hides, type, data, len);
}

static void test_hidden(bool hides)
{
    const uint32_t lost[] = {0};
    const int *n_right = hides ? &n_hidden : &n_open, *n_wrong = hides ? &n_open : &n_hidden;
    struct parity_bed b;
    int n;

    n_hidden = n_open = 0;
    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    for (unsigned i = 0; i < 3; i++) {
        b.nodes[i].parity->config.hides = hides;
    }
    parity_bed_save_all(&b, UUID(1), 10);
    n = *n_right;
    ok(n > 0 && *n_wrong == 0, "%s, where that is asked for", hides ? "hidden" : "open");
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), 0, "one is lost, and made again");
    ok(*n_right > n && *n_wrong == 0, "likewise");
    parity_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_hidden(true);
    test_hidden(false);
    return tap_done();
}
