/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/avoid.h"

#include "base/str.h"

#include <string.h>

struct avoid_one avoid_go_back(struct avoid *a)
{
    struct avoid_one first = a->list[0];

    *a = (struct avoid){.is_spent = true};
    return first;
}

enum avoid_verdict avoid_died(struct avoid *a, uint32_t limit, const char *path,
                              int64_t step, struct avoid_one *ret_back)
{
    struct avoid_one *one;

    if (limit == 0 || a->is_spent || !path[0] || strchr(path, '\n')) {
        return AVOID_NO;
    }
    if (++a->n_deaths < limit) {
        return AVOID_NO;
    }
    if (a->n == AVOID_MAX) {
        *ret_back = avoid_go_back(a);
        return AVOID_BACK;
    }
    one = &a->list[a->n++];
    *one = (struct avoid_one){.step = step < 0 ? -1 : step,
                              .n_deaths = a->n_deaths};
    str_copy(one->path, sizeof(one->path), path);
    a->n_deaths = 0;
    return AVOID_IT;
}

bool avoid_moved(struct avoid *a)
{
    bool changes = a->n_deaths || a->is_spent;

    a->n_deaths = 0;
    a->is_spent = false;
    return changes;
}

bool avoid_saved(struct avoid *a, int64_t step)
{
    uint32_t n = 0, before = a->n;

    for (uint32_t i = 0; i < before; i++) {
        if (step >= 0 && a->list[i].step > step) {
            a->list[n++] = a->list[i];
        }
    }
    a->n = n;
    for (uint32_t i = n; i < before; i++) {
        a->list[i] = (struct avoid_one){0};
    }
    return n < before;
}

bool avoid_has(const struct avoid *a, const char *path)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (strcmp(a->list[i].path, path) == 0) {
            return true;
        }
    }
    return false;
}

void avoid_lines(const struct avoid *a, char to[AVOID_LINES_BYTES])
{
    size_t at = 0;

    for (uint32_t i = 0; i < a->n; i++) {
        size_t len = strlen(a->list[i].path);

        memcpy(to + at, a->list[i].path, len);
        at += len;
        to[at++] = '\n';
    }
    to[at] = '\0';
}

void avoid_put(struct buf *b, const struct avoid *a)
{
    wire_put_u32(b, a->n_deaths);
    wire_put_u8(b, a->is_spent);
    wire_put_u32(b, a->n);
    for (uint32_t i = 0; i < a->n; i++) {
        wire_put_str(b, a->list[i].path);
        wire_put_i64(b, a->list[i].step);
        wire_put_u32(b, a->list[i].n_deaths);
    }
}

void avoid_get(struct wire_reader *r, struct avoid *ret)
{
    uint32_t n;
    uint8_t is_spent;

    *ret = (struct avoid){.n_deaths = wire_get_u32(r)};
    is_spent = wire_get_u8(r);
    ret->is_spent = is_spent;
    n = wire_get_u32(r);
    r->bad = r->bad || is_spent > 1 || n > AVOID_MAX || (is_spent && n);
    for (uint32_t i = 0; !r->bad && i < n; i++) {
        struct avoid_one *one = &ret->list[i];

        wire_get_str(r, one->path, sizeof(one->path));
        one->step = wire_get_i64(r);
        one->n_deaths = wire_get_u32(r);
        r->bad = r->bad || !one->path[0] || strchr(one->path, '\n') ||
                 one->step < -1;
        ret->n = i + 1;
    }
}
