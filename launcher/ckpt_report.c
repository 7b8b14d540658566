/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_report.h"

#include "base/cleanup.h"
#include "base/utf8.h"
#include "ckpt/beside.h"
#include "launcher/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { N_COLUMNS = 6 };

void ckpt_report_release(struct ckpt_report *r)
{
    strlist_release(&r->cells);
    buf_release(&r->json);
}

bool ckpt_is_unknown(int dir, const char *name, int rc, const struct found_facts *facts)
{
    return rc == -ERR_FORMAT && facts->is_foreign &&
           !beside_has_whole(io_system(), dir, name);
}

const char *ckpt_state_name(int rc, bool is_unknown)
{
    return is_unknown ? "unknown" : found_state_name(rc);
}

void ckpt_tell(const char *what, const char *state, const struct error *why)
{
    _buf_ struct buf line = {0};

    show_clean(&line, why->text, strlen(why->text));
    fprintf(stderr, "muster: %s, %s: %s\n", what, state, buf_str(&line));
}

void ckpt_format_bytes(uint64_t bytes, char *to, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    size_t i = 0;

    /* With one digit behind the point 1023.95 is shown as 1024.0. */
    while (n >= (i ? 1023.95 : 1024) && i + 1 < ARRAY_SIZE(units)) {
        n /= 1024;
        i++;
    }
    snprintf(to, size, i ? "%.1f %s" : "%.0f %s", n, units[i]);
}

void ckpt_report_start(struct ckpt_report *r)
{
    static const char *const head[N_COLUMNS] = {"NAME", "KIND", "STEP", "SIZE",
                                                "STATE", "WHY"};

    for (size_t i = 0; i < N_COLUMNS; i++) {
        strlist_add(&r->cells, head[i]);
    }
    r->w = jsonw_start(&r->json);
    jsonw_array(&r->w, NULL);
}

void ckpt_tell_none(const char *none, size_t n_others)
{
    if (n_others) {
        fprintf(stderr, "muster: %s: of %zu entr%s none is one that muster knows (the kinds are "
                "in muster-ckpt(1))\n", none, n_others, n_others == 1 ? "y" : "ies");
    } else {
        fprintf(stderr, "muster: %s\n", none);
    }
}

static const char *why_of(const struct ckpt_look *l)
{
    return l->rc < 0               ? l->why.text
           : l->is_structure_only ? "structure only: no checksums, or not for all" : "";
}

static void add_row(struct ckpt_report *r, const struct ckpt_look *l)
{
    char size[32];

    ckpt_format_bytes(l->bytes, size, sizeof(size));
    strlist_add(&r->cells, l->name);
    strlist_add(&r->cells, l->kind);
    if (l->has_step) {
        strlist_addf(&r->cells, "%" PRIu64, l->step);
    } else {
        strlist_add(&r->cells, "-");
    }
    strlist_add(&r->cells, l->rc < 0 ? "-" : size);
    strlist_add(&r->cells, ckpt_state_name(l->rc, l->is_unknown));
    strlist_add(&r->cells, why_of(l));
}

void ckpt_json_name(struct jsonw *w, const char *name)
{
    _buf_ struct buf bytes = {0};

    jsonw_str(w, "name", name);
    if (utf8_is_valid(name)) {
        return;
    }
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;

        buf_printf(&bytes, c > ' ' && c < 0x7f && c != '%' ? "%c" : "%%%02X", c);
    }
    jsonw_str(w, "name_bytes", buf_str(&bytes));
}

static void add_json(struct jsonw *w, const struct ckpt_look *l)
{
    jsonw_object(w, NULL);
    ckpt_json_name(w, l->name);
    jsonw_str(w, "kind", l->kind);
    if (l->has_step) {
        jsonw_int(w, "step", (int64_t)l->step);
    }
    jsonw_str(w, "state", ckpt_state_name(l->rc, l->is_unknown));
    if (l->rc < 0) {
        jsonw_str(w, "why", l->why.text);
    } else {
        jsonw_int(w, "bytes", (int64_t)l->bytes);
        jsonw_int(w, "files", (int64_t)l->n_files);
        jsonw_bool(w, "structure_only", l->is_structure_only);
    }
    jsonw_end_object(w);
}

void ckpt_report_add(struct ckpt_report *r, const struct ckpt_look *l)
{
    add_row(r, l);
    add_json(&r->w, l);
    r->n++;
    r->n_busy += l->rc == -EAGAIN;
    r->n_bad += l->rc < 0 && l->rc != -EAGAIN && !l->is_unknown;
    r->n_unknown += l->is_unknown;
}

static int print(struct ckpt_report *r, enum show_format format)
{
    _buf_ struct buf text = {0};

    jsonw_end_array(&r->w);
    if (!r->n) {
        ckpt_tell_none("no checkpoints", r->n_others);
    }
    if (format == SHOW_JSON || format == SHOW_YAML) {
        return show_json(&r->json, format);
    }
    show_table(&r->cells, N_COLUMNS, &text);
    fputs(r->n ? buf_str(&text) : "", stdout);
    return EXIT_OK;
}

int ckpt_report_print(struct ckpt_report *r, enum show_format format)
{
    int status = print(r, format);

    return status == EXIT_OK && r->n_busy ? EXIT_RESUMABLE : status;
}

/* Who asks whether what is there is whole has the wrong place where nothing is. */
int ckpt_report_verdict(struct ckpt_report *r, enum show_format format)
{
    int status = print(r, format);

    return status != EXIT_OK || r->n_bad || !r->n ? EXIT_FAILED
           : r->n_busy                            ? EXIT_RESUMABLE
           : r->n_unknown                         ? CKPT_EXIT_UNKNOWN
                                                  : EXIT_OK;
}

void ckpt_print_name(const char *place, const char *name)
{
    size_t len = strlen(place);

    printf("%s%s%s\n", place, len && place[len - 1] == '/' ? "" : "/", name);
}
