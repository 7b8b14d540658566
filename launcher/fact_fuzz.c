/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any lines as what nodes tell the lead, and what the lead asks of them: the first
 * byte of a line is the node, the rest is the fact. Whatever they say, the status of
 * the run can be written, read again, and is then the same.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/agent_hang.h"
#include "launcher/agent_record.h"
#include "launcher/lead_bed.h"
#include "tests/lib/fuzz.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { GENERATION = 2, CLOSE_MS = 60000 };

static struct agent lead;

static void remove_dir(void)
{
    fs_remove_tree(lead.run.dir, NULL);
}

struct telling {
    struct record *record;
    struct lead_hang *hang;
};

static void start(struct telling *t)
{
    uint16_t n_procs[BED_NODES];
    struct order run = lead_bed_run(GENERATION, n_procs);

    expect(fs_mkdirs(lead.run.dir, NULL) == 0);
    expect(record_create(&lead, &t->record, NULL) == 0);
    expect(lead_hang_create(&lead, t->record, &t->hang, NULL) == 0);
    record_started(t->record, &run);
    lead_hang_ordered(t->hang, &run);
    lead_hang_running(t->hang);
}

/* As agent_lead_fact() does with what is not for itself. */
static void tell(struct telling *t, uint32_t node, const char *text, size_t len)
{
    json_t *fact = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const char *kind = json_string_value(json_object_get(fact, "fact"));

    if (kind && !lead_hang_fact(t->hang, node, kind, fact)) {
        record_fact(t->record, node, kind, fact);
    }
    if (json_is_string(json_object_get(fact, "ask"))) {
        agent_asked(&lead, text, len);
    }
    json_decref(fact);
}

static void expect_readable(const struct run_status *s)
{
    _cleanup_(run_status) struct run_status *back = NULL;
    _buf_ struct buf a = {0}, b = {0};

    run_status_to_json(s, &a);
    expect(!a.failed);
    expect(run_status_from_json(a.data, a.len, &back, NULL) == 0);
    run_status_to_json(back, &b);
    expect(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size;
    struct telling t = {0};

    if (!lead.tree) {
        lead_bed_make(&lead);
        atexit(remove_dir);
    }
    start(&t);
    while (at < end) {
        const char *next = memchr(at, '\n', (size_t)(end - at));

        next = next ? next : end;
        if (next > at) {
            tell(&t, (uint8_t)*at % BED_NODES, at + 1, (size_t)(next - at) - 1);
        }
        at = next + (next < end);
    }
    expect_readable(record_status(t.record));
    lead_hang_destroy(t.hang);
    record_destroy(t.record, CLOSE_MS);
    remove_dir();
    uv_run(&lead.loop, UV_RUN_NOWAIT);
    return 0;
}
