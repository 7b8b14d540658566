/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/testing.h"

#include <stdlib.h>
#include <string.h>

static const char *const no_dirs[] = {NULL};

void outcome_release(struct outcome *o)
{
    spec_result_release(&o->result);
    free(o->all);
    o->all = NULL;
}

struct outcome outcome_of(const struct spec_request *request)
{
    static const char *const names[] = {"note", "warning", "error"};
    struct spec_request q = *request;
    struct outcome o = {0};
    struct buf all = {0};

    q.runtime_dirs = q.runtime_dirs ? q.runtime_dirs : no_dirs;
    o.rc = spec_resolve(&q, &o.result, &o.error);
    for (size_t i = 0; i < o.result.n_messages; i++) {
        buf_printf(&all, "%s: %s\n", names[o.result.messages[i].level],
                   o.result.messages[i].text);
    }
    o.all = buf_take(&all);
    return o;
}

struct outcome outcome_of_text(const char *text)
{
    return outcome_of(&(struct spec_request){.text = text, .text_name = "t"});
}

struct outcome outcome_of_argv(const char *const *argv)
{
    return outcome_of(
        &(struct spec_request){.argv = (char *const *)(uintptr_t)argv});
}

struct outcome outcome_of_command(const char *command, const char *keys,
                                  char *const *env)
{
    struct buf text = {0};
    struct outcome o;

    buf_puts(&text, "apiVersion: muster/v1\nkind: Job\ncommand: [");
    for (const char *s = command; *s; s += strcspn(s, " ")) {
        s += *s == ' ';
        buf_printf(&text, "'%.*s', ", (int)strcspn(s, " "), s);
    }
    buf_printf(&text, "]\n%s\n", keys);
    o = outcome_of(&(struct spec_request){
        .text = buf_str(&text), .text_name = "t", .env = env});
    buf_release(&text);
    return o;
}

struct outcome outcome_of_keys(const char *more)
{
    struct buf text = {0};
    struct outcome o;

    buf_printf(&text, "apiVersion: muster/v1\nkind: Job\ncommand: [a]\n%s",
               more);
    o = outcome_of_text(buf_str(&text));
    buf_release(&text);
    return o;
}

char *joined(const struct strlist *list)
{
    struct buf b = {0};

    for (size_t i = 0; i < list->n; i++) {
        buf_printf(&b, "%s%s", i ? " " : "", list->items[i]);
    }
    return buf_take(&b);
}

void unescape(struct buf *to, const char *s)
{
    while (*s) {
        buf_putc(to, *s);
        s += s[0] == '$' && s[1] == '$' ? 2 : 1;
    }
}
