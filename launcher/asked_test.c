/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/asked.h"

#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

#define OLD "step-000000000010-0f3a9c2e" /* began before anybody asked */
#define ONE "step-000000000011-0f3a9c2f"
#define TWO "step-000000000012-0f3a9c30"

struct bed {
    struct asked asked;
    struct run_status *status;
};

static struct bed bed_open(void)
{
    struct bed b = {.status = run_status_create()};

    if (!b.status) {
        bail_out("no memory");
    }
    b.status->generation = 1;
    return b;
}

static const char *state(const struct bed *b, const char *id)
{
    const struct status_asked *x = asked_find(b->status, id);

    return x ? status_asked_name(x->state) : "";
}

static void hear(struct bed *b, const char *id)
{
    asked_hear(b->status, id);
}

static void begin(struct bed *b, const char *id, int64_t step, const char *name)
{
    asked_begin(&b->asked, b->status, id, step, name);
}

static void save(struct bed *b, const char *id, int64_t step, const char *name)
{
    char path[100];

    snprintf(path, sizeof(path), "/scratch/run/%s", name);
    asked_save(&b->asked, b->status, id, step, path);
}

static void test_ids(void)
{
    static const struct {
        const char *id;
        bool want;
    } cases[] = {
        {"0", true}, {"0123456789abcdef", true}, {"0123456789abcdef0123456789abcdef", true},
        {"", false}, {"0123456789abcdef0123456789abcdef0", false}, {"AB", false},
        {"a b", false}, {"../a", false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ok(asked_id_is_valid(cases[i].id) == cases[i].want, "id '%s'", cases[i].id);
    }
}

/* What began before somebody asked is no answer, whenever it is there. */
static void test_earlier_save(void)
{
    struct bed b = bed_open();

    ok(asked_add(b.status, "a", 7, NULL), "somebody asks");
    ok(!asked_add(b.status, "a", 8, NULL), "and once more, by another way");
    is_str(state(&b, "a"), "Told", "nobody has heard of it");
    save(&b, "a", 10, OLD);
    is_str(state(&b, "a"), "Told", "an earlier save is there");
    hear(&b, "a");
    is_str(state(&b, "a"), "Heard", "a worker has");
    save(&b, "a", 10, OLD);
    is_str(state(&b, "a"), "Heard", "that says nothing of the earlier save");
    begin(&b, "a", 11, ONE);
    is_str(state(&b, "a"), "Saving", "one begins");
    is_int(asked_find(b.status, "a")->step, 11, "of which step");
    begin(&b, "a", 12, TWO);
    is_str(asked_find(b.status, "a")->save, ONE, "the first one since counts");
    save(&b, "", 11, ONE);
    is_str(state(&b, "a"), "Saved", "it is there");
    is_str(asked_find(b.status, "a")->path, "/scratch/run/" ONE, "and where");
    save(&b, "", 12, TWO);
    is_str(asked_find(b.status, "a")->path, "/scratch/run/" ONE, "a later one changes nothing");
    run_status_destroy(b.status);
}

/* Facts of two nodes come in any order. */
static void test_there_before(void)
{
    struct bed b = bed_open();

    asked_add(b.status, "a", 7, NULL);
    save(&b, "", 11, ONE);
    is_str(state(&b, "a"), "Told", "a checkpoint is there");
    begin(&b, "a", 11, ONE);
    is_str(state(&b, "a"), "Saved", "which had begun after, as another node tells");
    is_str(asked_find(b.status, "a")->path, "/scratch/run/" ONE, "and where");
    run_status_destroy(b.status);
}

static void test_two(void)
{
    struct bed b = bed_open();

    asked_add(b.status, "a", 7, NULL);
    asked_add(b.status, "b", 8, NULL);
    begin(&b, "a", 11, ONE);
    ok(strcmp(state(&b, "a"), "Saving") == 0 && strcmp(state(&b, "b"), "Told") == 0,
       "the first of two is answered");
    begin(&b, "b", 12, TWO);
    is_str(state(&b, "b"), "Saving", "by the next save the other");
    save(&b, "", 12, TWO);
    ok(strcmp(state(&b, "b"), "Saved") == 0 && strcmp(state(&b, "a"), "Saved") == 0,
       "the later one is an answer to both");
    asked_add(b.status, "c", 9, NULL);
    asked_add(b.status, "d", 9, NULL);
    begin(&b, "c", 11, ONE);
    begin(&b, "d", 11, ONE);
    begin(&b, "c", 11, ONE);
    save(&b, "", 11, ONE);
    ok(strcmp(state(&b, "c"), "Saved") == 0 && strcmp(state(&b, "d"), "Saved") == 0,
       "a node may have heard of more than another");
    run_status_destroy(b.status);
}

static void test_failed(void)
{
    struct bed b = bed_open();

    asked_add(b.status, "a", 7, NULL);
    asked_fail(b.status, ONE, "no space");
    is_str(state(&b, "a"), "Told", "what fails is another one's");
    begin(&b, "a", 11, ONE);
    asked_fail(b.status, ONE, "no space");
    is_str(state(&b, "a"), "Failed", "its own fails");
    is_str(asked_find(b.status, "a")->why, "no space", "of that");
    save(&b, "", 11, ONE);
    is_str(state(&b, "a"), "Failed", "which is the last word");
    ok(asked_add(b.status, "b", 7, "the run is Restarting"), "one is refused");
    is_str(state(&b, "b"), "Refused", "and is known for that");
    hear(&b, "b");
    is_str(state(&b, "b"), "Refused", "nobody hears of it");
    run_status_destroy(b.status);
}

/* Of a program that saves by itself, with names of its own. */
static void test_own_names(void)
{
    struct bed b = bed_open();

    asked_add(b.status, "a", 7, NULL);
    asked_add(b.status, "b", 7, NULL);
    save(&b, "", 5, "5.pt");
    is_str(state(&b, "a"), "Told", "its rank had heard of nothing");
    save(&b, "a", 6, "6.pt");
    is_str(asked_find(b.status, "a")->path, "/scratch/run/6.pt", "now it had");
    is_str(state(&b, "b"), "Told", "of one");
    save(&b, "zzz", 7, "7.pt");
    is_str(state(&b, "b"), "Told", "an id that nobody knows");
    run_status_destroy(b.status);
}

static void test_room(void)
{
    struct bed b = bed_open();
    char id[8];

    asked_add(b.status, "a", 7, NULL);
    asked_add(b.status, "b", 7, "no");
    for (int i = 0; i < STATUS_MAX_ASKED - 1; i++) {
        snprintf(id, sizeof(id), "%x", 0xf0 + i);
        asked_add(b.status, id, 7, NULL);
    }
    ok(asked_find(b.status, "a") && !asked_find(b.status, "b"),
       "who has had his answer makes room");
    asked_add(b.status, "c", 7, NULL);
    ok(!asked_find(b.status, "a") && asked_find(b.status, "c") && asked_find(b.status, "f0"),
       "else the oldest does");
    for (int i = 0; i < 3 * ASKED_SAVES; i++) {
        char name[STEP_NAME_BYTES];

        snprintf(name, sizeof(name), "step-%012d-0f3a9c2e", 100 + i);
        begin(&b, "c", 100 + i, name);
        save(&b, "", 100 + i, name);
    }
    is_int(asked_find(b.status, "c")->step, 100, "saves do not end");
    begin(&b, "c", 100, "");
    run_status_destroy(b.status);
}

int main(void)
{
    test_ids();
    test_earlier_save();
    test_there_before();
    test_two();
    test_failed();
    test_own_names();
    test_room();
    return tap_done();
}
