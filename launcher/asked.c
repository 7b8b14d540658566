/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/asked.h"

#include "base/str.h"

#include <string.h>

bool asked_id_is_valid(const char *id)
{
    size_t n = strspn(id, "0123456789abcdef");

    return n > 0 && n < STATUS_ASKED_ID_BYTES && id[n] == '\0';
}

static bool is_over(const struct status_asked *x)
{
    return x->state == STATUS_ASKED_SAVED || x->state == STATUS_ASKED_FAILED ||
           x->state == STATUS_ASKED_REFUSED;
}

/* How many there are up to that one, itself included; 0: it is not known. */
static size_t count_to(const struct run_status *s, const char *id)
{
    for (size_t i = 0; id[0] && i < s->n_asked; i++) {
        if (strcmp(s->asked[i].id, id) == 0) {
            return i + 1;
        }
    }
    return 0;
}

const struct status_asked *asked_find(const struct run_status *s, const char *id)
{
    size_t n = count_to(s, id);

    return n ? &s->asked[n - 1] : NULL;
}

/* The oldest that is over goes first. */
static void make_room(struct run_status *s)
{
    size_t i = 0;

    if (s->n_asked < STATUS_MAX_ASKED) {
        return;
    }
    while (i < s->n_asked && !is_over(&s->asked[i])) {
        i++;
    }
    i = i < s->n_asked ? i : 0;
    s->n_asked--;
    memmove(&s->asked[i], &s->asked[i + 1], (s->n_asked - i) * sizeof(s->asked[0]));
}

bool asked_add(struct run_status *s, const char *id, uint64_t now_ns, const char *why)
{
    struct status_asked *x;

    if (count_to(s, id)) {
        return false;
    }
    make_room(s);
    x = &s->asked[s->n_asked++];
    *x = (struct status_asked){
        .state = why ? STATUS_ASKED_REFUSED : STATUS_ASKED_TOLD,
        .generation = s->generation, .at_ns = now_ns, .step = -1};
    str_copy(x->id, sizeof(x->id), id);
    str_copy(x->why, sizeof(x->why), why ? why : "");
    return true;
}

void asked_hear(struct run_status *s, const char *id)
{
    size_t n = count_to(s, id);

    for (size_t i = 0; i < n; i++) {
        if (s->asked[i].state == STATUS_ASKED_TOLD) {
            s->asked[i].state = STATUS_ASKED_HEARD;
        }
    }
}

/* The first one that began since counts, unless a later one is there before. */
static void begin(struct run_status *s, size_t n, int64_t step, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        struct status_asked *x = &s->asked[i];

        if (x->state == STATUS_ASKED_TOLD || x->state == STATUS_ASKED_HEARD) {
            x->state = STATUS_ASKED_SAVING;
            x->step = step;
            str_copy(x->save, sizeof(x->save), name);
        }
    }
}

static void end(struct run_status *s, size_t n, int64_t step, const char *path)
{
    for (size_t i = 0; i < n; i++) {
        struct status_asked *x = &s->asked[i];

        if (!is_over(x)) {
            x->state = STATUS_ASKED_SAVED;
            x->step = step;
            str_copy(x->path, sizeof(x->path), path);
        }
    }
}

static struct asked_begun *find_begun(struct asked *a, const char *name)
{
    for (size_t i = 0; i < ASKED_SAVES; i++) {
        if (strcmp(a->begun[i].name, name) == 0) {
            return &a->begun[i];
        }
    }
    return NULL;
}

static const struct asked_there *find_there(const struct asked *a, const char *name)
{
    for (size_t i = 0; i < ASKED_SAVES; i++) {
        if (strcmp(a->there[i].name, name) == 0) {
            return &a->there[i];
        }
    }
    return NULL;
}

void asked_begin(struct asked *a, struct run_status *s, const char *id, int64_t step,
                 const char *name)
{
    size_t n = count_to(s, id);
    struct asked_begun *b = name[0] ? find_begun(a, name) : NULL;
    const struct asked_there *there = name[0] ? find_there(a, name) : NULL;

    if (!n || !name[0]) {
        return;
    }
    if (!b) {
        b = &a->begun[a->n_begun++ % ASKED_SAVES];
        *b = (struct asked_begun){0};
        str_copy(b->name, sizeof(b->name), name);
    }
    if (n > count_to(s, b->id)) {
        str_copy(b->id, sizeof(b->id), id);
    }
    if (there) {
        end(s, n, there->step, there->path);
    } else {
        begin(s, n, step, name);
    }
}

static void keep_there(struct asked *a, const char *name, int64_t step, const char *path)
{
    struct asked_there *t;

    if (!find_there(a, name)) {
        t = &a->there[a->n_there++ % ASKED_SAVES];
        t->step = step;
        str_copy(t->name, sizeof(t->name), name);
        str_copy(t->path, sizeof(t->path), path);
    }
}

void asked_save(struct asked *a, struct run_status *s, const char *id, int64_t step,
                const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const struct asked_begun *b;
    uint64_t parsed;

    if (!step_parse_name(name, &parsed)) {
        end(s, count_to(s, id), step, path);
        return;
    }
    keep_there(a, name, step, path);
    b = find_begun(a, name);
    if (b) {
        end(s, count_to(s, b->id), step, path);
    }
}

void asked_fail(struct run_status *s, const char *name, const char *why)
{
    for (size_t i = 0; i < s->n_asked; i++) {
        struct status_asked *x = &s->asked[i];

        if (x->state == STATUS_ASKED_SAVING && strcmp(x->save, name) == 0) {
            x->state = STATUS_ASKED_FAILED;
            str_copy(x->why, sizeof(x->why), why);
        }
    }
}
