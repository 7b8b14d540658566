/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "spec/expand.h"
#include "spec/resolve.h"

#include <string.h>

/* Of one value, as the kernel bounds an argument; of all together; and how
 * often a name is looked up at all. */
enum { MAX_VALUE = 128 * 1024, MAX_TOTAL = 4 << 20, MAX_LOOKUPS = 20000 };

/* What the lookups of one value leave behind. */
struct trace {
    unsigned n_lookups; /* of all values */
    char missed[64];    /* the first name that is not known, or "" */
};

struct scope {
    const struct node *env;
    size_t n; /* how many of them can be seen */
    size_t left;
    struct trace *trace;
};

static const char *lookup(const void *ctx, const char *name, size_t len)
{
    const struct scope *s = ctx;

    if (++s->trace->n_lookups > MAX_LOOKUPS) {
        return NULL;
    }
    for (size_t i = 0; i < s->n; i++) {
        const struct pair *p = &s->env->pairs[i];

        if (strncmp(p->key, name, len) == 0 && !p->key[len] &&
            p->value->kind == NODE_SCALAR) {
            return p->value->text;
        }
    }
    if (!s->trace->missed[0] && len < sizeof(s->trace->missed)) {
        memcpy(s->trace->missed, name, len);
        s->trace->missed[len] = '\0';
    }
    return NULL;
}

static void keep(const struct context *c, struct node *n, struct scope *s,
                 const struct buf *text)
{
    const char *copy = arena_strdup(c->arena, buf_str(text));

    s->left -= text->len;
    n->text = copy ? copy : "";
    n->literal = true;
    if (s->trace->missed[0] && !resolve_is_owned(s->trace->missed)) {
        report_note(c->report, &n->place,
                    "$(%s) is left as it is: env has no such variable before "
                    "it",
                    s->trace->missed);
    }
}

static void expand(const struct context *c, struct node *n, struct scope *s)
{
    size_t max = s->left < MAX_VALUE ? s->left : MAX_VALUE;
    struct buf text = {0};

    if (n->kind != NODE_SCALAR || !strchr(n->text, '$')) {
        return;
    }
    s->trace->missed[0] = '\0';
    if (n->literal) {
        expand_escape(&text, n->text);
    }
    if (!n->literal && expand_known(&text, n->text, max, lookup, s) < 0) {
        report_error(c->report, &n->place,
                     "more than %zu bytes with its variables filled in; "
                     "expected less",
                     max);
    } else if (s->trace->n_lookups > MAX_LOOKUPS) {
        report_error(c->report, &n->place,
                     "more than %d variables to fill in; expected less",
                     MAX_LOOKUPS);
    } else {
        keep(c, n, s, &text);
    }
    buf_release(&text);
}

static void expand_list(const struct context *c, const struct node *list,
                        struct scope *s)
{
    if (!list || list->kind != NODE_LIST) {
        return;
    }
    for (size_t i = 0; i < list->n && !report_is_full(c->report) &&
                       s->trace->n_lookups <= MAX_LOOKUPS; i++) {
        expand(c, list->items[i], s);
    }
}

void resolve_expand(const struct context *c, struct node *tree)
{
    struct trace trace = {0};
    struct scope s = {.env = node_get(tree, "env"),
                      .left = MAX_TOTAL,
                      .trace = &trace};

    if (s.env && s.env->kind == NODE_MAP) {
        while (s.n < s.env->n && !report_is_full(c->report) &&
               trace.n_lookups <= MAX_LOOKUPS) {
            expand(c, s.env->pairs[s.n].value, &s);
            s.n++;
        }
    }
    expand_list(c, node_get(tree, "command"), &s);
    expand_list(c, node_get(tree, "args"), &s);
}
