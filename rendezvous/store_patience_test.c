/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_patience.h"

#include "tests/lib/tap.h"

/* Looks until it has had its time; -1 where that does not come. */
static int looks(struct store_patience *p, const struct store_debt *d)
{
    int n = 1;

    while (n < 100 && store_patience_look(p, d)) {
        n++;
    }
    return n < 100 ? n : -1;
}

static void test_silent(void)
{
    struct store_patience p = {0};
    struct store_debt d = {0};

    is_int(looks(&p, &d), -1, "who owes nothing has all time");
    d = (struct store_debt){.n_told = 1};
    is_int(looks(&p, &d), 1 + STORE_PATIENCE_LOOKS, "who does not answer, some");
    p = (struct store_patience){0};
    d = (struct store_debt){.n_told = UINT32_MAX, .n_dropped = UINT32_MAX - 1};
    is_int(looks(&p, &d), 1 + STORE_PATIENCE_LOOKS, "also after very many");
}

static void test_busy(void)
{
    struct store_patience p = {0};
    struct store_debt d = {.n_told = 3};
    bool patient = true;

    for (int i = 0; i < 100; i++) {
        d.n_told += 3;
        d.n_dropped += 3;
        patient = patient && store_patience_look(&p, &d) &&
                  store_patience_look(&p, &d);
    }
    ok(patient, "who owes always, but answers");
    is_int(looks(&p, &d), STORE_PATIENCE_LOOKS - 1, "and then does not");
}

static void test_behind(void)
{
    struct store_patience p = {0};
    struct store_debt d = {.n_told = 1, .put_bytes = 1000};
    bool patient = true;

    for (d.sent_bytes = 0; d.sent_bytes < 1000; d.sent_bytes += 10) {
        patient = patient && store_patience_look(&p, &d);
    }
    ok(patient, "what it is told is behind much else, which goes out");
    for (; patient && d.sent_bytes < 2000; d.sent_bytes += 10) {
        d.put_bytes = d.sent_bytes;
        patient = store_patience_look(&p, &d);
    }
    ok(!patient, "after that it is to answer, whatever goes out");
    p = (struct store_patience){0};
    d = (struct store_debt){.n_told = 1, .put_bytes = 1000};
    is_int(looks(&p, &d), 1 + STORE_PATIENCE_LOOKS, "nothing goes out");
}

int main(void)
{
    test_silent();
    test_busy();
    test_behind();
    return tap_done();
}
