/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/hosts.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 16 * 1024 * 1024 };

void host_list_release(struct host_list *l)
{
    free(l->items);
    free(l->places);
    *l = (struct host_list){0};
}

static bool is_this_machine(const char *name)
{
    char own[HOSTS_NAME_BYTES] = "";
    size_t len;

    gethostname(own, sizeof(own) - 1);
    len = strcspn(own, ".");
    return strcmp(name, "localhost") == 0 || strcmp(name, own) == 0 ||
           str_starts(name, "127.") || strcmp(name, "::1") == 0 ||
           (strncmp(name, own, len) == 0 && !name[len]);
}

static bool is_good_name(const char *name)
{
    return name[0] && name[0] != '-' && strlen(name) < HOSTS_NAME_BYTES &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789.-_") == strlen(name);
}

/* Where a name is, or would be. There is always a free place. */
static uint32_t *find_place(const struct host_list *l, const char *name)
{
    uint64_t hash = hash_text(HASH_NONE, name);
    uint32_t *at;

    do {
        at = &l->places[hash++ & (l->n_places - 1)];
    } while (*at && strcmp(l->items[*at - 1].name, name) != 0);
    return at;
}

/* Room for one more. */
static int grow(struct host_list *l, struct error *e)
{
    size_t n = l->n ? 2 * l->n : 8;
    struct host *items;

    if (2 * l->n < l->n_places) {
        return 0;
    }
    items = reallocarray(l->items, n, sizeof(*items));
    l->items = items ? items : l->items;
    free(l->places);
    l->n_places = 2 * n; /* a power of two */
    l->places = calloc(l->n_places, sizeof(*l->places));
    if (!items || !l->places) {
        l->n_places = 0;
        return error_set(e, ENOMEM, "list hosts");
    }
    for (size_t i = 0; i < l->n; i++) {
        *find_place(l, items[i].name) = (uint32_t)i + 1;
    }
    return 0;
}

/* A host that is given by two names would have two agents, or none where mpirun
 * refuses. Of other hosts nobody knows. */
static int check_other_name(const struct host_list *l, const char *name,
                            struct error *e)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->items[i].is_local) {
            return error_text(e, ERR_USAGE, "%s and %s are both this machine: "
                              "expected it once", l->items[i].name, name);
        }
    }
    return 0;
}

static int add(struct host_list *l, const char *name, uint32_t slots,
               struct error *e)
{
    bool is_local = is_this_machine(name);
    uint32_t *place;
    int rc;

    if (!is_good_name(name)) {
        return error_text(e, ERR_USAGE, "'%.100s' is not a host name", name);
    }
    if (l->n >= HOSTS_MAX) {
        return error_text(e, ERR_USAGE, "more than %d hosts", HOSTS_MAX);
    }
    rc = grow(l, e);
    if (rc < 0) {
        return rc;
    }
    place = find_place(l, name);
    if (*place) {
        return error_text(e, ERR_USAGE, "host %s is given twice", name);
    }
    rc = is_local ? check_other_name(l, name, e) : 0;
    if (rc < 0) {
        return rc;
    }
    str_copy(l->items[l->n].name, sizeof(l->items[0].name), name);
    l->items[l->n].is_local = is_local;
    l->items[l->n].slots = slots;
    *place = (uint32_t)++l->n;
    return 0;
}

/* "7" or "007-012" between brackets: leading zeros give the width. */
static int add_range(struct host_list *l, const char *prefix,
                     const char *range, size_t len, const char *suffix,
                     uint32_t slots, struct error *e)
{
    char text[64], name[HOSTS_NAME_BYTES];
    uint64_t first, last;
    char *dash;
    int rc = 0;

    if (len == 0 || len >= sizeof(text)) {
        return error_text(e, ERR_USAGE, "a host range is empty or too long");
    }
    memcpy(text, range, len);
    text[len] = '\0';
    dash = strchr(text, '-');
    if (dash) {
        *dash = '\0';
    }
    if (str_to_u64(text, &first) < 0 ||
        str_to_u64(dash ? dash + 1 : text, &last) < 0 || last < first ||
        last - first >= HOSTS_MAX) {
        return error_text(e, ERR_USAGE, "'%.*s' is not a range of hosts",
                          (int)len, range);
    }
    for (uint64_t i = first; rc == 0 && i <= last; i++) {
        if ((size_t)snprintf(name, sizeof(name), "%s%0*llu%s", prefix,
                             text[0] == '0' ? (int)strlen(text) : 0,
                             (unsigned long long)i, suffix) >= sizeof(name)) {
            return error_text(e, ERR_USAGE, "a host name is too long");
        }
        rc = add(l, name, slots, e);
    }
    return rc;
}

static int read_slots(const char *text, uint32_t *ret, struct error *e)
{
    uint64_t n;

    if (str_to_u64(text, &n) < 0 || n < 1 || n > HOSTS_MAX_SLOTS) {
        return error_text(e, ERR_USAGE, "'%.60s' is not a number of slots; "
                          "expected 1 to %d", text, HOSTS_MAX_SLOTS);
    }
    *ret = (uint32_t)n;
    return 0;
}

/* One comma-separated word, brackets and all; `slots` unless it has its own. */
static int add_word(struct host_list *l, const char *word, size_t len,
                    uint32_t slots, struct error *e)
{
    char text[4096];
    char *open, *close, *colon;
    int rc = 0;

    if (len >= sizeof(text)) {
        return error_text(e, ERR_USAGE, "a host name is too long");
    }
    memcpy(text, word, len);
    text[len] = '\0';
    colon = strrchr(text, ':');
    if (colon && colon == strchr(text, ':')) {
        *colon = '\0';
        rc = read_slots(colon + 1, &slots, e);
        if (rc < 0) {
            return rc;
        }
    }
    open = strchr(text, '[');
    close = open ? strchr(open, ']') : NULL;
    if (!open) {
        return add(l, text, slots, e);
    }
    if (!close) {
        return error_text(e, ERR_USAGE, "'%.100s' lacks a ]", text);
    }
    *open = '\0';
    *close = '\0';
    for (char *range = open + 1; rc == 0; ) {
        size_t n = strcspn(range, ",");

        rc = add_range(l, text, range, n, close + 1, slots, e);
        if (!range[n]) {
            break;
        }
        range += n + 1;
    }
    return rc;
}

int hosts_parse(const char *text, struct host_list *ret, struct error *e)
{
    _host_list_ struct host_list l = {.source = HOSTS_GIVEN};
    int rc = 0;

    while (rc == 0) {
        size_t len = 0;
        bool inside = false;

        while (text[len] && (inside || text[len] != ',')) {
            inside = text[len] == '[' || (inside && text[len] != ']');
            len++;
        }
        rc = add_word(&l, text, len, 0, e);
        if (!text[len]) {
            break;
        }
        text += len + 1;
    }
    if (rc == 0) {
        *ret = l;
        l = (struct host_list){0};
    }
    return rc;
}

static const char blanks[] = " \t\r";

/* "KEY" or "KEY=VALUE", in a line. */
struct setting {
    char *key;
    char *value; /* NULL: no = */
};

/* The next of a line, whose = may have blanks around it, as MPI allows. */
static bool take_setting(char **line, struct setting *ret)
{
    char *key = *line + strspn(*line, blanks);
    char *key_end = key + strcspn(key, "= \t\r");
    char *at = key_end + strspn(key_end, blanks);

    *ret = (struct setting){.key = key};
    if (*at == '=') {
        ret->value = at + 1 + strspn(at + 1, blanks);
        at = ret->value + strcspn(ret->value, blanks);
    } else {
        at = key_end;
    }
    *line = *at ? at + 1 : at;
    *key_end = '\0';
    *at = '\0';
    return *key || ret->value;
}

/* That muster starts more than the slots say is the job's wish alone, so that a
 * limit to it, which MPI's host files may have, only has to be a number. What else
 * MPI knows would do nothing here, and who wrote it thinks that it does. */
static int read_setting(const struct setting *setting, uint32_t *slots,
                        struct error *e)
{
    uint32_t most;

    if (setting->value && strcmp(setting->key, "slots") == 0) {
        return read_slots(setting->value, slots, e);
    }
    if (setting->value && (strcmp(setting->key, "max-slots") == 0 ||
                           strcmp(setting->key, "max_slots") == 0)) {
        return read_slots(setting->value, &most, e);
    }
    return error_text(e, ERR_USAGE,
                      "'%.60s' is not known in a host file; expected slots=N or "
                      "max-slots=N after the host", setting->key);
}

/* "NAME slots=N max-slots=M". *ret_at: where in the line it is wrong, if it is. */
static int add_line(struct host_list *l, char *line, const char **ret_at,
                    struct error *e)
{
    struct setting setting;
    uint32_t slots = 0;
    char *name;
    int rc = 0;

    line[strcspn(line, "#")] = '\0';
    name = line + strspn(line, blanks);
    line = name + strcspn(name, blanks);
    if (*line) {
        *line++ = '\0';
    }
    while (rc == 0 && take_setting(&line, &setting)) {
        *ret_at = setting.key;
        rc = read_setting(&setting, &slots, e);
    }
    if (rc == 0 && *name) {
        *ret_at = name;
        rc = add_word(l, name, strlen(name), slots, e);
    }
    return rc;
}

int hosts_read_file(const char *path, struct host_list *ret, struct error *e)
{
    _host_list_ struct host_list l = {.source = HOSTS_GIVEN};
    _free_ char *text = NULL;
    unsigned n_line = 0;
    size_t len;
    int rc = fs_read(path, MAX_FILE_BYTES, &text, &len, e);

    if (rc < 0) {
        return rc;
    }
    if (strlen(text) != len) {
        return error_text(e, ERR_USAGE, "%s has a zero byte: expected text", path);
    }
    for (char *line = text; line && rc == 0;) {
        char *end = strchr(line, '\n');
        const char *at = line;

        if (end) {
            *end = '\0';
        }
        n_line++;
        rc = add_line(&l, line, &at, e);
        if (rc < 0) {
            return error_wrap(e, "%s:%u:%zu", path, n_line,
                              (size_t)(at - line) + 1);
        }
        line = end ? end + 1 : NULL;
    }
    if (l.n == 0) {
        return error_text(e, ERR_USAGE, "%s names no host", path);
    }
    *ret = l;
    l = (struct host_list){0};
    return 0;
}

static int take_local(struct host_list *ret, struct error *e)
{
    _host_list_ struct host_list l = {.source = HOSTS_LOCAL};
    int rc = add(&l, "localhost", 0, e);

    if (rc == 0) {
        *ret = l;
        l = (struct host_list){0};
    }
    return rc;
}

bool hosts_have_slots(const struct host_list *hosts)
{
    for (size_t i = 0; i < hosts->n; i++) {
        if (hosts->items[i].slots) {
            return true;
        }
    }
    return false;
}

uint32_t hosts_same_slots(const struct host_list *hosts)
{
    uint32_t slots = hosts->n ? hosts->items[0].slots : 0;

    for (size_t i = 1; i < hosts->n; i++) {
        slots = hosts->items[i].slots == slots ? slots : 0;
    }
    return slots;
}

int64_t hosts_place(const struct host_list *all, const char *name)
{
    return all->n_places ? (int64_t)*find_place(all, name) - 1 : -1;
}

/* Hosts that Slurm has given to this job are reached through it, whoever names
 * them: so does mpirun. */
static void find_in_allocation(struct host_list *l, const char *slurm)
{
    _host_list_ struct host_list all = {0};

    if (!slurm || hosts_parse(slurm, &all, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (hosts_place(&all, l->items[i].name) < 0) {
            return;
        }
    }
    l->source = HOSTS_SLURM;
}

static int find_given(const char *text, const char *file,
                      struct host_list *ret, struct error *e)
{
    int rc = text ? hosts_parse(text, ret, e) : hosts_read_file(file, ret, e);

    return rc < 0 && text ? error_wrap(e, "--hosts") : rc;
}

int hosts_find(const char *text, const char *file, struct host_list *ret,
               struct error *e)
{
    const char *slurm = getenv("SLURM_JOB_NODELIST");
    int rc;

    if (text && file) {
        return error_text(e, ERR_USAGE, "--hosts and --hostfile exclude each "
                          "other");
    }
    if (text || file) {
        rc = find_given(text, file, ret, e);
        if (rc == 0) {
            find_in_allocation(ret, slurm);
        }
        return rc;
    }
    if (!slurm) {
        return take_local(ret, e);
    }
    rc = hosts_parse(slurm, ret, e);
    if (rc < 0) {
        return error_wrap(e, "SLURM_JOB_NODELIST");
    }
    ret->source = HOSTS_SLURM;
    return 0;
}

bool hosts_is_name_of(const char *given, const char *own)
{
    size_t n = strcspn(given, ".");

    return strcmp(given, own) == 0 ||
           (strncmp(given, own, n) == 0 && own[n] == '\0');
}

bool hosts_all_local(const struct host_list *hosts)
{
    for (size_t i = 0; i < hosts->n; i++) {
        if (!hosts->items[i].is_local) {
            return false;
        }
    }
    return true;
}
