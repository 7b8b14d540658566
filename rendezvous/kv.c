/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/kv.h"

#include "rendezvous/store_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_PATH = 512,
    DEFAULT_VALUE = 4 << 20,
    DEFAULT_MEMORY = 1 << 30,
    OVERHEAD = 256, /* of a key, in both tables */
};

struct scope;

struct entry {
    struct scope *scope;
    struct entry *prev;
    struct entry *next;
    struct kv_value *value;
    bool is_finished;
    size_t path_len;
    char path[];
};

struct scope {
    struct entry *entries;
    size_t n_entries;
    size_t n_finished;
    size_t len; /* of its name */
};

struct kv {
    struct kv_limits limits;
    struct table keys;   /* a path to a struct entry * */
    struct table scopes; /* a name to a struct scope * */
    size_t n_keys;
    size_t used_bytes;
};

struct kv *kv_create(const struct kv_limits *limits, const uint8_t seed[16])
{
    struct kv *kv = calloc(1, sizeof(*kv));

    if (!kv || !table_init(&kv->keys, seed) ||
        !table_init(&kv->scopes, seed)) {
        kv_destroy(kv);
        return NULL;
    }
    if (limits) {
        kv->limits = *limits;
    }
    kv->limits.path_bytes =
        kv->limits.path_bytes ? kv->limits.path_bytes : DEFAULT_PATH;
    kv->limits.value_bytes =
        kv->limits.value_bytes ? kv->limits.value_bytes : DEFAULT_VALUE;
    kv->limits.memory_bytes =
        kv->limits.memory_bytes ? kv->limits.memory_bytes : DEFAULT_MEMORY;
    return kv;
}

const struct kv_limits *kv_limits(const struct kv *kv)
{
    return &kv->limits;
}

size_t kv_n_keys(const struct kv *kv)
{
    return kv->n_keys;
}

size_t kv_used_bytes(const struct kv *kv)
{
    return kv->used_bytes;
}

void kv_value_unref(struct kv_value *v)
{
    if (v && --v->n_refs == 0) {
        free(v);
    }
}

/* --- tables whose values are pointers --- */

static void *pointer_at(const struct table *t, const char *key, size_t len)
{
    const struct slot *slot = table_find(t, key, len);
    void *p = NULL;

    if (slot && slot->has_value) {
        memcpy(&p, slot->value, sizeof(p));
    }
    return p;
}

static bool set_pointer(struct table *t, const char *key, size_t len, void *p)
{
    struct slot *slot = table_get(t, key, len);
    bool is_set = slot && slot_set(t, slot, (const char *)&p, sizeof(p));

    if (slot && !is_set) {
        table_tidy(t, slot);
    }
    return is_set;
}

static void unset_pointer(struct table *t, const char *key, size_t len)
{
    struct slot *slot = table_find(t, key, len);

    if (slot) {
        slot_unset(t, slot);
        table_tidy(t, slot);
    }
}

/* --- entries --- */

static size_t weight_of(size_t path_len, size_t value_len)
{
    return 2 * path_len + value_len + OVERHEAD;
}

static void free_scope(struct kv *kv, struct scope *s)
{
    struct entry *next;

    if (s->entries) {
        unset_pointer(&kv->scopes, s->entries->path, s->len);
    }
    for (struct entry *en = s->entries; en; en = next) {
        next = en->next;
        unset_pointer(&kv->keys, en->path, en->path_len);
        kv->used_bytes -= weight_of(en->path_len, en->value->len);
        kv->n_keys--;
        kv_value_unref(en->value);
        free(en);
    }
    free(s);
}

static struct scope *get_scope(struct kv *kv, const char *name, size_t len)
{
    struct scope *s = pointer_at(&kv->scopes, name, len);

    if (s) {
        return s;
    }
    s = calloc(1, sizeof(*s));
    if (!s || !set_pointer(&kv->scopes, name, len, s)) {
        free(s);
        return NULL;
    }
    s->len = len;
    return s;
}

/* The value is taken on success. */
static int add_entry(struct kv *kv, const char *path, size_t len,
                     struct kv_value *value)
{
    size_t scope_len = strcspn(path, "/");
    struct entry *en = calloc(1, sizeof(*en) + len + 1);
    struct scope *s = en ? get_scope(kv, path, scope_len) : NULL;

    if (!s || !set_pointer(&kv->keys, path, len, en)) {
        if (s && !s->entries) {
            unset_pointer(&kv->scopes, path, scope_len);
            free(s);
        }
        free(en);
        return -ENOMEM;
    }
    memcpy(en->path, path, len);
    en->path_len = len;
    en->scope = s;
    en->value = value;
    en->next = s->entries;
    if (en->next) {
        en->next->prev = en;
    }
    s->entries = en;
    s->n_entries++;
    kv->n_keys++;
    return 0;
}

static void replace_value(struct entry *en, struct kv_value *value)
{
    kv_value_unref(en->value);
    en->value = value;
    if (en->is_finished) {
        en->is_finished = false;
        en->scope->n_finished--;
    }
}

/* --- what requests do --- */

bool kv_is_path(const struct kv *kv, const char *path)
{
    size_t len = strlen(path);
    const char *slash = strchr(path, '/');

    return len <= kv->limits.path_bytes && slash && slash != path &&
           slash[1] && !strchr(slash + 1, '/');
}

int kv_put(struct kv *kv, const char *path, const void *data, size_t len)
{
    size_t path_len = strlen(path), before;
    struct kv_value *value;
    struct entry *en;

    if (!kv_is_path(kv, path)) {
        return -EINVAL;
    }
    if (len > kv->limits.value_bytes) {
        return -EFBIG;
    }
    en = pointer_at(&kv->keys, path, path_len);
    before = en ? weight_of(path_len, en->value->len) : 0;
    if (kv->used_bytes - before + weight_of(path_len, len) >
        kv->limits.memory_bytes) {
        return -ENOMEM;
    }
    value = malloc(sizeof(*value) + len);
    if (!value) {
        return -ENOMEM;
    }
    value->n_refs = 1;
    value->len = len;
    if (len) {
        memcpy(value->data, data, len);
    }
    if (en) {
        replace_value(en, value);
    } else if (add_entry(kv, path, path_len, value) < 0) {
        free(value);
        return -ENOMEM;
    }
    kv->used_bytes += weight_of(path_len, len) - before;
    return 0;
}

struct kv_value *kv_get(struct kv *kv, const char *path)
{
    struct entry *en = pointer_at(&kv->keys, path, strlen(path));

    if (!en) {
        return NULL;
    }
    en->value->n_refs++;
    return en->value;
}

void kv_finish(struct kv *kv, const char *path)
{
    struct entry *en = pointer_at(&kv->keys, path, strlen(path));

    if (!en || en->is_finished) {
        return;
    }
    en->is_finished = true;
    if (++en->scope->n_finished == en->scope->n_entries) {
        free_scope(kv, en->scope);
    }
}

void kv_destroy(struct kv *kv)
{
    if (!kv) {
        return;
    }
    for (size_t i = 0; kv->scopes.buckets && i < kv->scopes.n_buckets; i++) {
        while (kv->scopes.buckets[i]) {
            struct scope *s;

            memcpy(&s, kv->scopes.buckets[i]->value, sizeof(s));
            free_scope(kv, s);
        }
    }
    table_release(&kv->keys);
    table_release(&kv->scopes);
    free(kv);
}
