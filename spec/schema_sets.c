/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of fields with a small language of their own: sets of words, of exit codes
 * and of ranks, the prefix of output, and the choice of a network.
 */
#include <config.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "spec/log_prefix.h"
#include "spec/rank_set.h"
#include "spec/stream_set.h"
#include "spec/schema_types.h"
#include "spec/value.h"

#include <string.h>

static bool read_flags(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    unsigned v = 0;

    if (n->kind != NODE_LIST) {
        return schema_mismatch(r, f, n);
    }
    for (size_t i = 0; i < n->n; i++) {
        const struct node *item = n->items[i];
        int bit = item->kind == NODE_SCALAR ? schema_word(f, item->text) : -1;

        if (bit < 0) {
            return schema_mismatch(r, f, item);
        }
        v |= 1u << bit;
    }
    if (at) {
        *(unsigned *)at = v;
    }
    return true;
}

static json_t *write_flags(const struct field *f, const void *at)
{
    unsigned v = *(const unsigned *)at;
    json_t *list = json_array();

    for (int i = 0; list && f->words[i]; i++) {
        if (v & 1u << i) {
            json_array_append_new(list, json_string(f->words[i]));
        }
    }
    return list;
}

static void set_code(uint8_t *set, uint64_t code)
{
    set[code / 8] |= (uint8_t)(1u << code % 8);
}

/* The two sets that users of Kubernetes know by the name of ExitCode. */
static bool preset_codes(const char *s, uint8_t *set)
{
    static const uint8_t t9k[] = {130, 137, 138, 143};

    if (strcmp(s, "kubeflow") == 0) {
        for (unsigned c = 128; c < 256; c++) {
            set_code(set, c);
        }
        return true;
    }
    if (strcmp(s, "t9k") == 0) {
        for (size_t i = 0; i < ARRAY_SIZE(t9k); i++) {
            set_code(set, t9k[i]);
        }
        return true;
    }
    return false;
}

static bool read_codes(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    uint8_t set[32] = {0};
    uint64_t c;

    if (n->kind == NODE_MAP ||
        (n->kind == NODE_SCALAR && !preset_codes(n->text, set))) {
        return schema_mismatch(r, f, n);
    }
    for (size_t i = 0; n->kind == NODE_LIST && i < n->n; i++) {
        const struct node *item = n->items[i];

        if (item->kind != NODE_SCALAR || value_count(item->text, &c) < 0 ||
            c < 1 || c > 255) {
            return schema_mismatch(r, f, item);
        }
        set_code(set, c);
    }
    if (at) {
        memcpy(at, set, sizeof(set));
    }
    return true;
}

static json_t *write_codes(const struct field *f, const void *at)
{
    static const char *const presets[] = {"kubeflow", "t9k"};
    const uint8_t *set = at;
    json_t *list;

    (void)f;
    for (size_t i = 0; i < ARRAY_SIZE(presets); i++) {
        uint8_t preset[32] = {0};

        preset_codes(presets[i], preset);
        if (memcmp(preset, set, sizeof(preset)) == 0) {
            return json_string(presets[i]);
        }
    }
    list = json_array();
    for (unsigned c = 0; list && c < 256; c++) {
        if (set[c / 8] & 1u << c % 8) {
            json_array_append_new(list, json_integer(c));
        }
    }
    return list;
}

/* A list says the same as its items with commas between them. */
static bool read_set(struct reader *r, const struct field *f, struct node *n,
                     bool (*is_valid)(const char *), void *at)
{
    _buf_ struct buf text = {0};

    if (n->kind == NODE_SCALAR) {
        buf_puts(&text, n->text);
    }
    for (size_t i = 0; n->kind == NODE_LIST && i < n->n; i++) {
        if (n->items[i]->kind != NODE_SCALAR) {
            return schema_mismatch(r, f, n->items[i]);
        }
        buf_printf(&text, "%s%s", i ? "," : "", n->items[i]->text);
    }
    if (!is_valid(buf_str(&text))) {
        return schema_mismatch(r, f, n);
    }
    return schema_keep_string(r, buf_str(&text), at);
}

static bool read_ranks(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    return read_set(r, f, n, rank_set_is_valid, at);
}

static bool read_streams(struct reader *r, const struct field *f,
                         struct node *n, void *at)
{
    return read_set(r, f, n, stream_set_is_valid, at);
}

static bool read_prefix(struct reader *r, const struct field *f, struct node *n,
                        void *at)
{
    _buf_ struct buf why = {0};
    const char *s = schema_scalar(r, f, n);

    if (!s) {
        return false;
    }
    if (!log_prefix_is_valid(s, &why)) {
        report_error(r->report, &n->place, "%s \"%.60s\" %s", r->path, s,
                     buf_str(&why));
        return false;
    }
    return schema_keep_string(r, s, at);
}

static bool read_interface(struct reader *r, const struct field *f,
                           struct node *n, void *at)
{
    _buf_ struct buf why = {0};
    const char *s = schema_scalar(r, f, n);

    if (!s) {
        return false;
    }
    if (strcmp(s, "auto") != 0 && !addr_choice_is_valid(s, &why)) {
        report_error(r->report, &n->place, "%s: %s", r->path, buf_str(&why));
        return false;
    }
    return schema_keep_string(r, s, at);
}

const struct type_ops schema_flags = {"list", read_flags, write_flags, NULL};
const struct type_ops schema_codes = {"kubeflow, t9k, list", read_codes,
                                      write_codes, NULL};
const struct type_ops schema_ranks = {"all, lead, none, list", read_ranks,
                                      schema_write_string,
                                      schema_release_string};
const struct type_ops schema_streams = {"word, list", read_streams,
                                        schema_write_string,
                                        schema_release_string};
const struct type_ops schema_interface = {"auto or list", read_interface,
                                          schema_write_string,
                                          schema_release_string};
const struct type_ops schema_prefix = {"word or template", read_prefix,
                                       schema_write_string,
                                       schema_release_string};
