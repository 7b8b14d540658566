/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/command_torch.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "spec/log_prefix.h"
#include "spec/stream_set.h"

#include <stddef.h>
#include <string.h>

enum { MAX_LOCAL = 1024, BOTH = STREAM_STDOUT | STREAM_STDERR };

void torch_refuse(struct command *cmd, const struct launcher_hit *hit,
                  const char *expected)
{
    const struct node *value = hit->values[0];

    if (value) {
        report_error(cmd->c->report, &value->place,
                     "%s%.80s of %s is \"%.40s\"; expected %s",
                     hit->is_environment || !hit->option->name[1] ? "" : "--",
                     hit->is_environment ? hit->node->text : hit->option->name,
                     cmd->launcher, value->text, expected);
    } else {
        report_error(cmd->c->report, &hit->node->place,
                     "%.80s of %s; expected %s", hit->node->text,
                     cmd->launcher, expected);
    }
}

/* --- --rdzv-conf --- */

#define GATHERS "muster gathers the processes itself"

/* Parts of a text, without a zero byte behind them. */
struct setting {
    const char *key, *value;
    size_t key_len, len;
};

static bool is_blank(char c)
{
    return c && strchr(" \t\n\r", c);
}

/* Why a key changes nothing; NULL for the one that does. */
static const char *why_not(const char *key, size_t len)
{
    static const char *const keys[][2] = {
        {"join_timeout", NULL},
        {"timeout", GATHERS},
        {"read_timeout", GATHERS},
        {"is_host", GATHERS},
        {"store_type", GATHERS},
        {"use_libuv", GATHERS},
        {"last_call_timeout", "muster looks for the hosts itself, and begins "
                              "with those that have answered"},
        {"close_timeout", "limits.grace is the time that workers get to end"},
        {"heartbeat", "heartbeat.timeout says when a node is lost"},
        {"keep_alive_interval", "heartbeat.timeout says when a node is lost"},
        {"keep_alive_max_attempt",
         "heartbeat.timeout says when a node is lost"},
        {"rank", "muster gives the ranks itself"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        if (strlen(keys[i][0]) == len && memcmp(keys[i][0], key, len) == 0) {
            return keys[i][1];
        }
    }
    return "muster does not know it";
}

static void note_key(struct command *cmd, const struct launcher_hit *hit,
                     const char *key, size_t len)
{
    const char *why = why_not(key, len);

    if (why && !hit->is_environment) {
        report_note(cmd->c->report, &hit->node->place,
                    "%.*s in --rdzv-conf of %s has no effect: %s", (int)len,
                    key, cmd->launcher, why);
    }
}

/* Without the blanks around it. */
static const char *trim(const char *s, size_t *len)
{
    while (*len && is_blank(s[*len - 1])) {
        --*len;
    }
    while (*len && is_blank(*s)) {
        s++;
        --*len;
    }
    return s;
}

/* One KEY=VALUE, of which neither is empty. */
static bool read_pair(const char *s, size_t len, struct setting *ret)
{
    const char *sep = memchr(s, '=', len);

    if (!sep) {
        return false;
    }
    ret->key_len = (size_t)(sep - s);
    ret->len = len - ret->key_len - 1;
    ret->key = trim(s, &ret->key_len);
    ret->value = trim(sep + 1, &ret->len);
    return ret->key_len && ret->len;
}

void torch_read_rdzv_conf(struct command *cmd, const struct launcher_hit *hit)
{
    static const char join[] = "join_timeout";
    const char *s = hit->values[0]->text;
    struct setting pair = {0}, timeout = {0};

    if (!s[strspn(s, " \t\n\r")]) {
        command_note(cmd, hit, GATHERS);
        return;
    }
    do {
        size_t len = strcspn(s, ",");

        if (!read_pair(s, len, &pair)) {
            torch_refuse(cmd, hit, "KEY=VALUE,...");
            return;
        }
        if (pair.key_len == strlen(join) &&
            memcmp(pair.key, join, pair.key_len) == 0) {
            timeout = pair;
        }
        note_key(cmd, hit, pair.key, pair.key_len);
        s += len;
    } while (*s++);
    if (timeout.key) {
        command_offer(cmd, hit, "gang.timeout",
                      command_seconds(cmd, hit->values[0], timeout.value,
                                      timeout.len));
    }
}

/* --- --signals-to-handle --- */

static bool is_answered(const char *name, size_t len)
{
    static const char *const names[] = {"SIGTERM", "SIGINT",  "SIGHUP",
                                        "SIGQUIT", "SIGUSR1", "SIGUSR2"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strlen(names[i]) == len && strncmp(names[i], name, len) == 0) {
            return true;
        }
    }
    return false;
}

void torch_read_signals(struct command *cmd, const struct launcher_hit *hit)
{
    const char *s = hit->values[0]->text;

    do {
        size_t len;

        s += strspn(s, " ");
        len = strcspn(s, ", ");
        if (!is_answered(s, len)) {
            torch_refuse(cmd, hit, "some of SIGTERM, SIGINT, SIGHUP, SIGQUIT, "
                         "SIGUSR1 and SIGUSR2, which muster answers anyway");
            return;
        }
        s += len + strspn(s + len, " ");
        s += *s == ',';
    } while (*s);
    command_note(cmd, hit, "muster run answers SIGTERM, SIGINT, SIGHUP, "
                 "SIGQUIT, SIGUSR1 and SIGUSR2 at any time");
}

/* --- --log-line-prefix-template --- */

static const char *role_of(const struct command *cmd)
{
    const struct node *role = node_given(node_get(cmd->tree, "torch"), "role");

    return role && role->kind == NODE_SCALAR ? role->text : "default";
}

void torch_default_prefix(struct command *cmd, bool is_teed)
{
    static const struct place at = {.file = "default of torchrun"};
    struct arena *a = cmd->c->arena;
    _buf_ struct buf text = {0};

    if (is_teed) {
        log_prefix_from_torch("[${role_name}${local_rank}]:", role_of(cmd), &text);
    }
    node_set_path(a, cmd->tree, "logs.prefix",
                  node_scalar(a, &at, is_teed ? arena_strdup(a, buf_str(&text))
                                              : "none", false));
}

void torch_read_prefix(struct command *cmd, const struct launcher_hit *hit)
{
    struct node *value = hit->values[0];
    _buf_ struct buf text = {0};
    int rc = log_prefix_from_torch(value->text, role_of(cmd), &text);

    if (rc < 0) {
        torch_refuse(cmd, hit, "macros as ${rank}, ${local_rank}, ${hostname} "
                               "or ${role_name} behind each $");
    } else if (rc == 0) {
        command_note(cmd, hit, "it has none of ${rank}, ${local_rank} and "
                               "${hostname}");
    } else {
        command_offer(cmd, hit, "logs.prefix",
                      node_scalar(cmd->c->arena, &value->place,
                                  arena_strdup(cmd->c->arena, buf_str(&text)),
                                  false));
    }
}

/* --- what is shown --- */

/* Bits by local rank: those that are not named have `rest`. */
struct std_map {
    unsigned rest;
    uint8_t of[MAX_LOCAL];
    bool is_named[MAX_LOCAL];
};

static void name_rank(struct std_map *m, uint64_t rank, unsigned bits)
{
    m->of[rank] = (uint8_t)bits;
    m->is_named[rank] = true;
}

static unsigned bits_of(const struct std_map *m, size_t rank)
{
    return m->is_named[rank] ? m->of[rank] : m->rest;
}

static bool is_local_rank(const char *text, uint64_t *ret)
{
    return str_to_u64(text, ret) == 0 && *ret < MAX_LOCAL;
}

/* "1", or "0:1" */
static bool read_std_item(char *item, bool is_only, struct std_map *to)
{
    char *colon = strchr(item, ':');
    uint64_t bits, rank;

    if (!colon) {
        to->rest = is_only && str_to_u64(item, &bits) == 0 && bits <= BOTH
                       ? (unsigned)bits : BOTH + 1;
        return to->rest <= BOTH;
    }
    *colon = '\0';
    if (!is_local_rank(item, &rank) || str_to_u64(colon + 1, &bits) < 0 ||
        bits > BOTH) {
        return false;
    }
    name_rank(to, rank, (unsigned)bits);
    return true;
}

static bool read_filter_item(char *item, bool is_only, struct std_map *to)
{
    size_t len = strlen(item);
    const char *s = trim(item, &len); /* "0, 2", which torchrun takes, too */
    uint64_t rank;

    (void)is_only;
    item[s - item + (ptrdiff_t)len] = '\0';
    if (!is_local_rank(s, &rank)) {
        return false;
    }
    name_rank(to, rank, BOTH);
    return true;
}

/* Every item between commas; an empty text has none. */
static bool read_map(struct command *cmd, const struct launcher_hit *hit,
                     bool (*read_item)(char *, bool, struct std_map *),
                     const char *expected, struct std_map *to)
{
    char *text, *rest;
    bool is_only;

    if (!hit->option || !hit->values[0]->text[0] ||
        command_is_unexpanded(cmd, hit, hit->values[0])) {
        return false;
    }
    text = arena_strdup(cmd->c->arena, hit->values[0]->text);
    is_only = text && !strchr(text, ',');
    rest = text;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        if (!read_item(item, is_only, to)) {
            torch_refuse(cmd, hit, expected);
            return false;
        }
    }
    return text != NULL;
}

static void put_shown(struct buf *to, const struct std_map *hidden,
                      const struct std_map *kept, const struct std_map *filter)
{
    unsigned rest = filter->rest & ~(hidden->rest & ~kept->rest);

    buf_puts(to, stream_set_word(rest));
    for (size_t i = 0; i < MAX_LOCAL; i++) {
        unsigned bits = bits_of(filter, i) &
                        ~(bits_of(hidden, i) & ~bits_of(kept, i));

        if (bits != rest) {
            buf_printf(to, ",%zu:%s", i, stream_set_word(bits));
        }
    }
}

void torch_settle_streams(struct command *cmd,
                          const struct launcher_hit *redirects,
                          const struct launcher_hit *tee,
                          const struct launcher_hit *filter)
{
    static const char std_words[] = "0 (none), 1 (standard output), 2 (standard "
                                    "error) or 3 (both), or such by local "
                                    "rank, as 0:1,1:2";
    struct std_map hidden = {0}, kept = {0}, shown = {0};
    bool hides = read_map(cmd, redirects, read_std_item, std_words, &hidden);
    bool filters = read_map(cmd, filter, read_filter_item,
                            "local ranks, as 0,2", &shown);
    const struct launcher_hit *by = hides ? redirects : filter;
    _buf_ struct buf text = {0};

    read_map(cmd, tee, read_std_item, std_words, &kept);
    if (!hides && !filters) {
        return;
    }
    shown.rest = filters ? 0 : BOTH;
    put_shown(&text, &hidden, &kept, &shown);
    if (strcmp(buf_str(&text), "both") != 0) {
        command_offer(cmd, by, "logs.streams",
                      node_scalar(cmd->c->arena, &by->values[0]->place,
                                  buf_str(&text), true));
    }
}

void torch_note_variables(struct command *cmd)
{
    static const char *const lost[][2] = {
        {"TORCHELASTIC_HEALTH_CHECK_PORT",
         "nobody answers at that port; muster status tells how a run is"},
    };
    static const struct place at = {.file = "environment"};

    for (size_t i = 0; i < ARRAY_SIZE(lost); i++) {
        const char *value = form_getenv(cmd->c, lost[i][0]);

        if (value && value[0] && strcmp(value, "0") != 0) {
            report_note(cmd->c->report, &at, "%s of %s has no effect: %s",
                        lost[i][0], cmd->launcher, lost[i][1]);
        }
    }
}
