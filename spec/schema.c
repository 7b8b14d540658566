/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/schema.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/schema_types.h"
#include "spec/value.h"
#include "spec/yaml.h"

#include <stdio.h>
#include <string.h>

enum { MAX_FIELDS = 128 };

static const struct field *find_field(const struct field *fields,
                                      const char *name, size_t len)
{
    for (; fields->name; fields++) {
        if (strlen(fields->name) == len &&
            memcmp(fields->name, name, len) == 0) {
            return fields;
        }
    }
    return NULL;
}

static void list_names(const struct field *fields, struct buf *to)
{
    enum { SHOWN = 14 };
    int n = 0;

    for (; fields->name && n < SHOWN; fields++, n++) {
        buf_printf(to, "%s%s", n ? ", " : "", fields->name);
    }
    if (fields->name) {
        buf_puts(to, ", ...");
    }
}

static void report_unknown(struct reader *r, const struct field *fields,
                           const struct pair *p)
{
    const char *names[MAX_FIELDS + 1] = {NULL};
    _buf_ struct buf known = {0};
    const char *near;

    for (size_t i = 0; i < MAX_FIELDS && fields[i].name; i++) {
        names[i] = fields[i].name;
    }
    near = str_nearest(p->key, names);
    if (!near) {
        list_names(fields, &known);
    }
    report_error(r->report, &p->place, "unknown key \"%.60s\"%s%s; %s%s",
                 p->key, r->path[0] ? " in " : "", r->path,
                 near ? "did you mean " : "expected one of ",
                 near ? near : buf_str(&known));
}

size_t schema_enter(struct reader *r, const char *name)
{
    size_t len = strlen(r->path);

    snprintf(r->path + len, sizeof(r->path) - len, "%s%.100s", len ? "." : "",
             name);
    return len;
}

void schema_leave(struct reader *r, size_t before)
{
    r->path[before] = '\0';
}

static bool is_off_word(const char *s)
{
    return strcmp(s, "off") == 0 || strcmp(s, "none") == 0;
}

/* A list of words, against the default as it is written in the table. */
static bool lists_default(const struct field *f, const struct node *n)
{
    _buf_ struct buf text = {0};

    if (!f->def || n->n == 0) {
        return n->n == 0;
    }
    for (size_t i = 0; i < n->n; i++) {
        buf_printf(&text, "%s%s", i ? ", " : "[",
                   n->items[i]->kind == NODE_SCALAR ? n->items[i]->text : "");
    }
    buf_putc(&text, ']');
    return strcmp(buf_str(&text), f->def) == 0;
}

/* True for what changes nothing: nobody has to be told about that. */
static bool says_default(const struct field *f, const struct node *n)
{
    if (n->kind == NODE_LIST) {
        return lists_default(f, n);
    }
    if (n->kind == NODE_SCALAR) {
        return f->def ? strcmp(n->text, f->def) == 0 ||
                            (is_off_word(n->text) && is_off_word(f->def))
                      : (f->flags & FIELD_TAKES_OFF) && is_off_word(n->text);
    }
    for (size_t i = 0; i < n->n; i++) {
        const struct pair *p = &n->pairs[i];
        const struct field *inner =
            f->type == FIELD_MAP
                ? find_field(f->fields, p->key, strlen(p->key))
                : NULL;

        if (!inner || !says_default(inner, p->value)) {
            return false;
        }
    }
    return true;
}

static void note_inaction(struct reader *r, const struct field *f,
                          const struct node *n)
{
    if (!r->notes) {
        return;
    }
    if (f->later && !says_default(f, n)) {
        report_note(r->report, &n->place, "%s is not acted on yet: %s",
                    r->path, f->later);
    }
    if (f->unused) {
        report_note(r->report, &n->place, "%s has no effect here: %s", r->path,
                    f->unused);
    }
}

bool schema_read_field(struct reader *r, const struct field *f,
                       struct node *n, void *base)
{
    size_t before = schema_enter(r, f->name);
    bool good;

    good = field_types[f->type]->read(r, f, n,
                                     base ? (char *)base + f->offset : NULL);
    if (good) {
        note_inaction(r, f, n);
    }
    if (good && f->take) {
        f->take(r, f, n);
    } else if (good && f->to) {
        node_set_path(r->arena, r->out, f->to, n);
    }
    schema_leave(r, before);
    return good;
}

static bool check_required(struct reader *r, const struct field *fields,
                           const struct node *map)
{
    bool good = true;

    for (; fields->name; fields++) {
        const struct node *n;

        if (!(fields->flags & FIELD_REQUIRED)) {
            continue;
        }
        n = node_get(map, fields->name);
        if (!n || node_is_null(n)) {
            size_t before = schema_enter(r, fields->name);
            _buf_ struct buf want = {0};

            schema_describe(fields, &want);
            report_error(r->report, &map->place, "%s is missing; expected %s",
                         r->path, buf_str(&want));
            schema_leave(r, before);
            good = false;
        }
    }
    return good;
}

bool schema_read(struct reader *r, const struct field *fields,
                 const struct node *map, void *base)
{
    bool good = true;

    for (size_t i = 0; i < map->n && !report_is_full(r->report); i++) {
        const struct pair *p = &map->pairs[i];
        const struct field *f = find_field(fields, p->key, strlen(p->key));

        if (!f) {
            report_unknown(r, fields, p);
            good = false;
        } else if (!node_is_null(p->value)) {
            good &= schema_read_field(r, f, p->value, base);
        }
    }
    return check_required(r, fields, map) && good &&
           !report_is_full(r->report);
}

const struct field *schema_find(const struct field *fields, const char *path)
{
    for (;;) {
        size_t len = strcspn(path, ".");
        const struct field *f = find_field(fields, path, len);

        if (!f || !path[len] || f->type == FIELD_PAIRS ||
            f->type == FIELD_NAMED) {
            return f;
        }
        if (f->type != FIELD_MAP) {
            return NULL;
        }
        fields = f->fields;
        path += len + 1;
    }
}

struct node *schema_defaults(struct arena *a, const struct field *fields,
                             struct report *r)
{
    static const struct place at = {.file = PLACE_DEFAULT};
    struct node *map = node_map(a, &at);

    for (; fields->name; fields++) {
        if (fields->type == FIELD_MAP) {
            node_add(a, map, fields->name, &at,
                     schema_defaults(a, fields->fields, r));
        } else if (fields->def) {
            node_add(a, map, fields->name, &at,
                     yaml_load_value(a, fields->def, &at, r));
        }
    }
    return map;
}

json_t *schema_write(const struct field *fields, const void *base)
{
    json_t *map = json_object();

    for (; map && fields->name; fields++) {
        json_t *value = field_types[fields->type]->write(
            fields, (const char *)base + fields->offset);

        if (!value) {
            json_decref(map);
            return NULL;
        }
        if (json_is_null(value)) {
            continue;
        }
        if (json_object_set_new(map, fields->name, value) < 0) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}

void schema_release(const struct field *fields, void *base)
{
    for (; fields->name; fields++) {
        const struct type_ops *ops = field_types[fields->type];

        if (ops->release) {
            ops->release(fields, (char *)base + fields->offset);
        }
    }
}

static void list_words(const struct field *f, struct buf *to)
{
    for (size_t i = 0; f->words[i]; i++) {
        buf_printf(to, "%s%s", i == 0 ? "" : f->words[i + 1] ? ", " : " or ",
                   f->words[i]);
    }
}

static void describe_span(const struct field *f, struct buf *to)
{
    buf_puts(to, "a time such as 30s or 5m");
    if (f->min) {
        buf_puts(to, " of at least ");
        value_write_span(to, f->min);
    }
    buf_puts(to, f->min ? " and at most " : " of at most ");
    value_write_span(to, f->max ? f->max : VALUE_MAX_SPAN_MS);
}

static void describe_count(const struct field *f, struct buf *to)
{
    buf_printf(to, "a whole number from %llu to %llu, in decimal",
               (unsigned long long)f->min, (unsigned long long)f->max);
}

static void describe_bytes(const struct field *f, struct buf *to)
{
    buf_puts(to, f->min ? "a size such as 64Mi"
                        : "an amount of memory such as 64Gi");
    if (f->min) {
        buf_printf(to, " of at least %lluKi", (unsigned long long)f->min >> 10);
    }
}

static const char *const fixed_descriptions[] = {
    [FIELD_ANY] = "anything",
    [FIELD_STRING] = "text",
    [FIELD_LABEL] = "a name of a-z, 0-9 and -, at most 63 of them",
    [FIELD_BOOL] = "true or false",
    [FIELD_NUMBER] = "a number such as 0.1 or 1e-4",
    [FIELD_BACKOFF] = "two times such as 1s..60s, the smaller one first",
    [FIELD_RANKS] = "all, lead, none, or ranks such as 0,3-5",
    [FIELD_STREAMS] = "both, stdout, stderr, none, or such by local rank as in "
                      "none,0:both",
    [FIELD_INTERFACE] = "auto, or interfaces and networks such as "
                        "ib0,10.1.0.0/16, or an address in one",
    [FIELD_PREFIX] = "rank, host, none, or a template such as \"[{rank}] \"",
    [FIELD_CODES] = "kubeflow, t9k, or a list of exit codes from 1 to 255",
    [FIELD_CPUS] = "a number of CPUs such as 4 or 500m",
    [FIELD_LIST] = "a list such as [python, train.py]",
    [FIELD_PAIRS] = "a map of names to text",
    [FIELD_MAP] = "a map",
    [FIELD_ITEMS] = "a list of maps",
    [FIELD_NAMED] = "a map of names to maps",
};

static void describe_type(const struct field *f, struct buf *to)
{
    switch (f->type) {
    case FIELD_COUNT:
        describe_count(f, to);
        return;
    case FIELD_NODES:
        buf_printf(to, "a whole number from 1 to %llu, or a range such as 2..8",
                   (unsigned long long)f->max);
        return;
    case FIELD_PROCS:
        buf_printf(to, "auto, cpu, gpu or a whole number from 1 to %llu",
                   (unsigned long long)f->max);
        return;
    case FIELD_SPAN:
        describe_span(f, to);
        return;
    case FIELD_BYTES:
        describe_bytes(f, to);
        return;
    case FIELD_ENUM:
        list_words(f, to);
        return;
    case FIELD_FLAGS:
        buf_puts(to, "a list of ");
        list_words(f, to);
        return;
    default:
        buf_puts(to, fixed_descriptions[f->type]);
    }
}

void schema_describe(const struct field *f, struct buf *to)
{
    describe_type(f, to);
    if (f->flags & FIELD_TAKES_AUTO) {
        buf_puts(to, ", or auto");
    }
    if (f->flags & FIELD_TAKES_OFF) {
        buf_puts(to, ", or off");
    }
    if (f->flags & FIELD_TAKES_NEVER) {
        buf_puts(to, ", or never");
    }
}

const char *schema_type_word(const struct field *f)
{
    return field_types[f->type]->word;
}
