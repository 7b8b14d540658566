/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_verbs.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "launcher/commands.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { N_COLUMNS = 6, MAX_SHOWN_FILES = 3 };

static const struct manifest *manifest_of(const struct contents *c)
{
    return c->load.index ? &c->load.step.manifest : NULL;
}

static const char *kind_of(const struct manifest_blob *b)
{
    return b->is_per_rank ? "per-rank" : "replicated";
}

static uint64_t tensor_bytes(const struct contents *c)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < c->n_tensors; i++) {
        sum += c->tensors[i].bytes;
    }
    return sum;
}

/* The names of the JSON values that were saved, or NULL. */
static json_t *state_of(const struct manifest *m)
{
    return m && m->state ? json_loads(m->state, 0, NULL) : NULL;
}

/* --- for people --- */

static void put_line(struct buf *b, const char *key, const char *text)
{
    buf_printf(b, "%-12s", key);
    show_clean(b, text, strlen(text));
    buf_puts(b, "\n");
}

/* Of pickles. */
static void put_left_out(struct buf *b, const struct contents *c)
{
    char text[512];

    if (c->n_tensors_left_out) {
        snprintf(text, sizeof(text), "%zu more of a type or layout that safetensors files do not "
                 "have, as '%s'", c->n_tensors_left_out, c->left_out);
        put_line(b, "", text);
    }
    if (c->n_files_left_out && !c->why_no_tensors) {
        snprintf(text, sizeof(text), "not those of %zu file%s: %s", c->n_files_left_out,
                 c->n_files_left_out == 1 ? "" : "s", c->why);
        put_line(b, "", text);
    }
    if (c->n_values_left_out) {
        snprintf(text, sizeof(text), "%zu that %s no tensor%s", c->n_values_left_out,
                 c->n_values_left_out == 1 ? "is" : "are",
                 c->n_values_left_out == 1 ? "" : "s");
        put_line(b, "Values:", text);
    }
}

static void put_head(struct buf *b, const struct contents *c)
{
    const struct manifest *m = manifest_of(c);
    const char *host = m ? c->load.step.commit.host : "";
    char text[256], size[32], tensors[32];

    put_line(b, "Checkpoint:", c->found.name);
    put_line(b, "Kind:", found_kind_name(c->found.kind));
    if (c->found.is_step) {
        snprintf(text, sizeof(text), "%" PRIu64, c->found.step);
        put_line(b, "Step:", text);
    }
    if (m) {
        char when[64];

        clock_format(m->wall_ns, when, sizeof(when));
        snprintf(text, sizeof(text), "%s, by muster %s, generation %u, token %"
                 PRIu64, when, m->version, m->generation, m->token);
        put_line(b, "Saved:", text);
        snprintf(text, sizeof(text), "%u rank%s on %u node%s%s%s", m->n_ranks,
                 m->n_ranks == 1 ? "" : "s", m->n_nodes,
                 m->n_nodes == 1 ? "" : "s", *host ? ", committed by " : "", host);
        put_line(b, "By:", text);
    }
    ckpt_format_bytes(c->facts.bytes, size, sizeof(size));
    ckpt_format_bytes(tensor_bytes(c), tensors, sizeof(tensors));
    snprintf(text, sizeof(text), "%s in %" PRIu64 " file%s", size,
             c->facts.n_files, c->facts.n_files == 1 ? "" : "s");
    put_line(b, "Size:", text);
    if (c->why_no_tensors) {
        snprintf(text, sizeof(text), "not known: %s", c->why_no_tensors);
    } else {
        snprintf(text, sizeof(text), "%zu, %s", c->n_tensors, tensors);
    }
    put_line(b, "Tensors:", text);
    put_left_out(b, c);
}

static void put_state(struct buf *b, const struct manifest *m)
{
    json_t *state = state_of(m), *value;
    _buf_ struct buf names = {0};
    const char *key;

    json_object_foreach(state, key, value) {
        buf_printf(&names, "%s%s", names.len ? ", " : "", key);
    }
    if (names.len) {
        put_line(b, "JSON:", buf_str(&names));
    }
    json_decref(state);
}

static void add_shape(struct strlist *cells, const struct contents_tensor *t)
{
    _buf_ struct buf text = {0};

    buf_puts(&text, "[");
    for (uint32_t d = 0; d < t->n_dims; d++) {
        buf_printf(&text, "%s%" PRIu64, d ? ", " : "", t->shape[d]);
    }
    buf_puts(&text, "]");
    strlist_add(cells, buf_str(&text));
}

static void add_files(struct strlist *cells, const struct contents_tensor *t)
{
    _buf_ struct buf text = {0};

    for (size_t i = 0; i < t->files.n && i < MAX_SHOWN_FILES; i++) {
        buf_printf(&text, "%s%s", i ? " " : "", t->files.items[i]);
    }
    if (t->files.n > MAX_SHOWN_FILES) {
        buf_printf(&text, " and %zu more", t->files.n - MAX_SHOWN_FILES);
    }
    strlist_add(cells, buf_str(&text));
}

static void put_tensors(struct buf *b, const struct contents *c)
{
    static const char *const head[N_COLUMNS] = {"TENSOR", "DTYPE", "SHAPE",
                                                "SIZE", "PIECES", "FILES"};
    _strlist_ struct strlist cells = {0};

    for (size_t i = 0; i < N_COLUMNS; i++) {
        strlist_add(&cells, head[i]);
    }
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct contents_tensor *t = &c->tensors[i];
        char size[32];

        ckpt_format_bytes(t->bytes, size, sizeof(size));
        strlist_add(&cells, t->name);
        strlist_add(&cells, dtype_name(t->dtype));
        add_shape(&cells, t);
        strlist_add(&cells, size);
        strlist_addf(&cells, "%zu", t->n_pieces);
        add_files(&cells, t);
    }
    if (c->n_tensors) {
        buf_puts(b, "\n");
        show_table(&cells, N_COLUMNS, b);
    }
}

static void put_blobs(struct buf *b, const struct manifest *m)
{
    static const char *const head[] = {"BLOB", "KIND", "RANKS"};
    _strlist_ struct strlist cells = {0};

    for (size_t i = 0; i < ARRAY_SIZE(head); i++) {
        strlist_add(&cells, head[i]);
    }
    for (size_t i = 0; m && i < m->n_blobs; i++) {
        strlist_add(&cells, m->blobs[i].name);
        strlist_add(&cells, kind_of(&m->blobs[i]));
        strlist_addf(&cells, "%u", m->blobs[i].n);
    }
    if (m && m->n_blobs) {
        buf_puts(b, "\n");
        show_table(&cells, ARRAY_SIZE(head), b);
    }
}

/* --- for programs --- */

static void json_tensor(struct jsonw *w, const struct contents_tensor *t)
{
    jsonw_object(w, NULL);
    jsonw_str(w, "name", t->name);
    jsonw_str(w, "dtype", dtype_name(t->dtype));
    jsonw_array(w, "shape");
    for (uint32_t d = 0; d < t->n_dims; d++) {
        jsonw_int(w, NULL, (int64_t)t->shape[d]);
    }
    jsonw_end_array(w);
    jsonw_int(w, "bytes", (int64_t)t->bytes);
    jsonw_int(w, "pieces", (int64_t)t->n_pieces);
    jsonw_array(w, "files");
    for (size_t i = 0; i < t->files.n; i++) {
        jsonw_str(w, NULL, t->files.items[i]);
    }
    jsonw_end_array(w);
    jsonw_end_object(w);
}

static void json_manifest(struct jsonw *w, const struct manifest *m)
{
    json_t *state = state_of(m), *value;
    const char *key;

    jsonw_time(w, "time", m->wall_ns);
    jsonw_str(w, "muster", m->version);
    jsonw_int(w, "generation", m->generation);
    jsonw_int(w, "token", (int64_t)m->token);
    jsonw_int(w, "ranks", m->n_ranks);
    jsonw_int(w, "nodes", m->n_nodes);
    jsonw_array(w, "blobs");
    for (size_t i = 0; i < m->n_blobs; i++) {
        jsonw_object(w, NULL);
        jsonw_str(w, "name", m->blobs[i].name);
        jsonw_str(w, "kind", kind_of(&m->blobs[i]));
        jsonw_int(w, "ranks", m->blobs[i].n);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    jsonw_array(w, "state");
    json_object_foreach(state, key, value) {
        jsonw_str(w, NULL, key);
    }
    jsonw_end_array(w);
    json_decref(state);
}

static int show_as_json(const struct contents *c, enum show_format format)
{
    const struct manifest *m = manifest_of(c);
    _buf_ struct buf text = {0};
    struct jsonw w = jsonw_start(&text);

    jsonw_object(&w, NULL);
    ckpt_json_name(&w, c->found.name);
    jsonw_str(&w, "kind", found_kind_name(c->found.kind));
    if (c->found.is_step) {
        jsonw_int(&w, "step", (int64_t)c->found.step);
    }
    jsonw_int(&w, "bytes", (int64_t)c->facts.bytes);
    jsonw_int(&w, "files", (int64_t)c->facts.n_files);
    if (m) {
        json_manifest(&w, m);
        jsonw_opt_str(&w, "host", c->load.step.commit.host);
    }
    if (c->why_no_tensors) {
        jsonw_str(&w, "no_tensors", c->why_no_tensors);
    } else {
        jsonw_int(&w, "tensor_bytes", (int64_t)tensor_bytes(c));
        jsonw_int(&w, "values_left_out", (int64_t)c->n_values_left_out);
        jsonw_int(&w, "tensors_left_out", (int64_t)c->n_tensors_left_out);
        jsonw_int(&w, "files_left_out", (int64_t)c->n_files_left_out);
        jsonw_array(&w, "tensors");
        for (size_t i = 0; i < c->n_tensors; i++) {
            json_tensor(&w, &c->tensors[i]);
        }
        jsonw_end_array(&w);
    }
    jsonw_end_object(&w);
    return show_json(&text, format);
}

int ckpt_show_contents(const struct ckpt_options *o, const struct contents *c)
{
    _buf_ struct buf text = {0};

    if (o->format == SHOW_JSON || o->format == SHOW_YAML) {
        return show_as_json(c, o->format);
    }
    put_head(&text, c);
    put_state(&text, manifest_of(c));
    put_tensors(&text, c);
    put_blobs(&text, manifest_of(c));
    fputs(buf_str(&text), stdout);
    return EXIT_OK;
}

int ckpt_verb_show(const struct ckpt_options *o, const char *path)
{
    _contents_ struct contents c = {0};
    struct error e = {0};

    return ckpt_place_open(path, &c, &e) < 0 ? command_fail(&e)
                                             : ckpt_show_contents(o, &c);
}
