/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/store_verbs.h"

#include "base/cleanup.h"
#include "ckpt/found.h"
#include "ckpt/step.h"
#include "launcher/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The place itself may be a checkpoint: one with a seal, or of a name that only those
 * of muster have. It is looked for in the place above. 1: it is; 0: it is none. */
static int find_itself(const struct ckpt_options *o, const char *uri,
                       struct store_place *place, struct store_entry *ret,
                       struct error *e)
{
    _parcel_ struct parcel p = {0};
    int rc = store_place_open(o, uri, place, e);

    if (rc < 0 || !store_place_split(place, ret->name)) {
        return rc;
    }
    rc = store_open(&place->store, ret->name, &p, &ret->why);
    ret->found.has_step = step_parse_name(ret->name, &ret->found.step);
    if (rc == 0) {
        ret->has_seal = true;
        ret->found = p.found;
        ret->bytes = p.bytes;
        ret->n_files = p.n;
        rc = store_check(&place->store, &p, false, &ret->why);
    }
    ret->rc = rc;
    if (rc < 0 && rc != -ENOENT && rc != -ERR_FORMAT && rc != -ERR_VERSION) {
        return error_text(e, -rc, "%s", ret->why.text);
    }
    return rc != -ENOENT || ret->found.has_step;
}

/* 1: it is one itself. With names they are in the place. */
static int list(const struct ckpt_options *o, const char *uri, bool has_names,
                struct store_place *place, struct store_entry **ret,
                size_t *ret_n, struct error *e)
{
    _free_ struct store_entry *one = calloc(1, sizeof(*one));
    int rc;

    if (!one) {
        return error_set(e, ENOMEM, "look at %s", uri);
    }
    rc = has_names ? 0 : find_itself(o, uri, place, one, e);
    if (rc != 0) {
        *ret = rc > 0 ? take_ptr(&one) : NULL;
        *ret_n = rc > 0;
        return rc;
    }
    store_place_close(place);
    *place = (struct store_place){0};
    rc = store_place_open(o, uri, place, e);
    rc = rc < 0 ? rc : store_list(&place->store, false, ret, ret_n, e);
    store_progress_end();
    return rc;
}

/* Every byte, of one that is whole so far. */
static void verify(const struct store *st, struct store_entry *entry)
{
    _parcel_ struct parcel p = {0};

    if (entry->rc < 0) {
        return;
    }
    entry->rc = store_open(st, entry->name, &p, &entry->why);
    if (entry->rc == 0) {
        entry->rc = store_check(st, &p, true, &entry->why);
    }
    store_progress_end();
}

/* --- ls, verify --- */

static bool is_wanted(const struct strlist *words, const char *name)
{
    for (size_t i = 2; i < words->n; i++) {
        if (strcmp(words->items[i], name) == 0) {
            return true;
        }
    }
    return words->n == 2;
}

static int check_wanted(const struct strlist *words,
                        const struct store_entry *all, size_t n, struct error *e)
{
    for (size_t i = 2; i < words->n; i++) {
        size_t k = 0;

        while (k < n && strcmp(all[k].name, words->items[i]) != 0) {
            k++;
        }
        if (k == n) {
            return error_text(e, ENOENT, "no checkpoint '%s' in %s",
                              words->items[i], words->items[1]);
        }
    }
    return 0;
}

static struct ckpt_look look_of(const struct store_entry *entry)
{
    bool is_known = entry->has_seal || entry->found.has_step;

    return (struct ckpt_look){
        .name = entry->name,
        .kind = is_known ? found_kind_name(entry->found.kind) : "-",
        .has_step = entry->found.has_step, .step = entry->found.step,
        .bytes = entry->bytes, .n_files = entry->n_files, .rc = entry->rc,
        .why = entry->why};
}

int store_verb_show(const struct ckpt_options *o, const struct strlist *words,
                    bool is_deep)
{
    __attribute__((cleanup(ckpt_report_release))) struct ckpt_report r = {0};
    _store_place_ struct store_place place = {0};
    _free_ struct store_entry *all = NULL;
    struct error e = {0};
    size_t n = 0;

    if (list(o, words->items[1], words->n > 2, &place, &all, &n, &e) < 0 ||
        check_wanted(words, all, n, &e) < 0) {
        return store_fail(&e);
    }
    ckpt_report_start(&r);
    for (size_t i = 0; i < n; i++) {
        struct ckpt_look l;

        if (!is_wanted(words, all[i].name)) {
            continue;
        }
        if (is_deep) {
            verify(&place.store, &all[i]);
        }
        l = look_of(&all[i]);
        ckpt_report_add(&r, &l);
    }
    return is_deep ? ckpt_report_verdict(&r, o->format)
                   : ckpt_report_print(&r, o->format);
}

/* --- the newest --- */

/* An older one is told only where all that are newer are known not to be whole. */
int store_verb_last(const struct ckpt_options *o, const char *uri)
{
    _store_place_ struct store_place place = {0};
    _free_ struct store_entry *all = NULL;
    struct error e = {0};
    size_t n = 0;
    int rc = list(o, uri, false, &place, &all, &n, &e);

    if (rc < 0) {
        return store_fail(&e);
    }
    for (size_t i = 0; i < n; i++) {
        if (all[i].found.is_part && rc == 0) {
            continue;
        }
        verify(&place.store, &all[i]);
        if (all[i].rc == 0 && rc > 0) {
            puts(uri);
            return EXIT_OK;
        }
        if (all[i].rc == 0) {
            ckpt_print_name(uri, all[i].name);
            return EXIT_OK;
        }
        if (!store_is_known(all[i].rc)) {
            return store_fail(&all[i].why);
        }
        ckpt_tell("passed over", found_state_name(all[i].rc), &all[i].why);
    }
    fprintf(stderr, "muster: no valid checkpoint in %s\n", uri);
    return EXIT_FAILED;
}
