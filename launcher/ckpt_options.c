/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `muster ckpt`: muster and muster-store read the same. */
#include <config.h>

#include "launcher/ckpt_report.h"

#include "base/cleanup.h"
#include "launcher/ckpt_unfinished.h"
#include "spec/value.h"

#include <stdlib.h>
#include <string.h>

/* "64Mi", "1Gi", or bytes: at most so many Gi. */
static int take_size(const char *value, unsigned max_gi, uint64_t *to,
                     struct error *e)
{
    static const char units[] = "KMGT";
    char digits[32];
    size_t n = strspn(value, "0123456789");
    const char *unit = value[n] ? strchr(units, value[n]) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    uint64_t number;

    if (n == 0 || n >= sizeof(digits) || (value[n] && !unit) ||
        (unit && strcmp(value + n + 1, "i") != 0)) {
        return error_text(e, ERR_USAGE, "'%.40s' is no size: expected one like "
                          "64Mi", value);
    }
    memcpy(digits, value, n);
    digits[n] = '\0';
    if (str_to_u64(digits, &number) < 0 || number == 0 ||
        number > ((uint64_t)max_gi << 30) >> shift) {
        return error_text(e, ERR_USAGE, "'%.40s': expected 1 to %uGi", value,
                          max_gi);
    }
    *to = number << shift;
    return 0;
}

/* Of a part or a file in a store. */
static int set_size(void *into, const struct option_def *def, const char *value,
                    struct error *e)
{
    return take_size(value, 5, (uint64_t *)((char *)into + def->offset), e);
}

/* Of what a rank has. */
static int set_large_size(void *into, const struct option_def *def,
                          const char *value, struct error *e)
{
    return take_size(value, 1024, (uint64_t *)((char *)into + def->offset), e);
}

/* None of them can be 0, which is what a field has that nobody has set. */
static int set_count(void *into, const struct option_def *def, const char *value,
                     struct error *e)
{
    uint64_t n;

    if (str_to_u64(value, &n) < 0 || n < 1 || n > INT64_MAX) {
        return error_text(e, ERR_USAGE, "expected a number, at least 1, found '%.40s'",
                          value);
    }
    *(int64_t *)((char *)into + def->offset) = (int64_t)n;
    return 0;
}

/* Who saves may pause: less would take what somebody is at. */
static int set_unfinished(void *into, const struct option_def *def, const char *value,
                          struct error *e)
{
    uint64_t ms = 0;

    if (value_span(value, &ms) < 0 || ms < UNFINISHED_LEAST_MS) {
        return error_text(e, ERR_USAGE, "expected a time of at least 1m, as 1h, found '%.40s'",
                          value);
    }
    *(uint64_t *)((char *)into + def->offset) = ms;
    return 0;
}

enum place {
    AT_OUTPUT,
    AT_KEEP,
    AT_EVERY,
    AT_BEST,
    AT_UNFINISHED,
    AT_NEWER,
    AT_DRY_RUN,
    AT_JOBS,
    AT_PART_SIZE,
    AT_SHARD_SIZE,
    AT_SIZE,
    AT_RANKS,
    AT_TENSORS,
    AT_ROUNDS,
    AT_TIMEOUT,
    N_OPTIONS,
};

static const struct option_def table[N_OPTIONS + 1] = {
    [AT_OUTPUT] = SHOW_OPTION(struct ckpt_options, format),
    [AT_KEEP] = {
        .name = "keep", .value = "N", .type = OPTION_CALL, .call = set_count,
        .offset = offsetof(struct ckpt_options, keep),
        .help = "prune, push: how many whole checkpoints to keep there"},
    [AT_EVERY] = {
        .name = "every", .value = "N", .type = OPTION_CALL, .call = set_count,
        .offset = offsetof(struct ckpt_options, every),
        .help = "prune, push: and those whose step is a multiple of N"},
    [AT_BEST] = {
        .name = "best", .value = "METRIC", .type = OPTION_STR,
        .offset = offsetof(struct ckpt_options, best),
        .help = "prune, push: and the one with the lowest, or METRIC:max"},
    [AT_UNFINISHED] = {
        .name = "unfinished", .value = "TIME", .type = OPTION_CALL, .call = set_unfinished,
        .offset = offsetof(struct ckpt_options, unfinished_ms),
        .help = "prune: remove also saves that came to no end, and to which nobody has written "
                "for TIME, e.g. 1h"},
    [AT_NEWER] = {
        .name = "newer", .type = OPTION_FLAG,
        .offset = offsetof(struct ckpt_options, is_newer),
        .help = "pull: only one that is newer than all whole ones in DIRECTORY; push: the "
                 "newest one beside CHECKPOINT"},
    [AT_DRY_RUN] = {
        .name = "dry-run", .type = OPTION_FLAG,
        .offset = offsetof(struct ckpt_options, is_dry),
        .help = "push, pull, cp, prune: tell what would be done"},
    [AT_JOBS] = {
        .name = "jobs", .value = "N", .letter = 'j', .type = OPTION_CALL,
        .offset = offsetof(struct ckpt_options, jobs), .call = set_count,
        .help = "how many requests to a store at a time (8)"},
    [AT_PART_SIZE] = {
        .name = "part-size", .value = "SIZE", .type = OPTION_CALL,
        .offset = offsetof(struct ckpt_options, part_bytes), .call = set_size,
        .help = "in what pieces files go to and from a store (16Mi)"},
    [AT_SHARD_SIZE] = {
        .name = "shard-size", .value = "SIZE", .type = OPTION_CALL,
        .offset = offsetof(struct ckpt_options, shard_bytes), .call = set_size,
        .help = "convert: how large files in a directory may be (5Gi)"},
    [AT_SIZE] = {
        .name = "size", .value = "SIZE", .type = OPTION_CALL,
        .offset = offsetof(struct ckpt_options, bytes), .call = set_large_size,
        .help = "bench: what each rank saves (256Mi)"},
    [AT_RANKS] = {
        .name = "ranks", .value = "N", .type = OPTION_CALL, .call = set_count,
        .offset = offsetof(struct ckpt_options, ranks),
        .help = "bench: how many processes save together (1)"},
    [AT_TENSORS] = {
        .name = "tensors", .value = "N", .type = OPTION_CALL, .call = set_count,
        .offset = offsetof(struct ckpt_options, tensors),
        .help = "bench: in how many tensors (64)"},
    [AT_ROUNDS] = {
        .name = "rounds", .value = "N", .type = OPTION_CALL, .call = set_count,
        .offset = offsetof(struct ckpt_options, rounds),
        .help = "bench: how often each figure is measured (5)"},
    [AT_TIMEOUT] = {
        .name = "timeout", .value = "SECONDS", .type = OPTION_CALL, .call = set_count,
        .offset = offsetof(struct ckpt_options, timeout_s),
        .help = "without a byte from a store, after which a request is tried again "
                 "(60)"},
    [N_OPTIONS] = {0},
};

/* --- of which verbs --- */

enum {
    OUTPUT = 1 << 0,
    KEEP = 1 << 1,
    EVERY = 1 << 2,
    BEST = 1 << 3,
    NEWER = 1 << 4,
    DRY_RUN = 1 << 5,
    STORE = 1 << 6, /* how to talk to one: wherever a place may be in one */
    SHARD_SIZE = 1 << 7,
    BENCH = 1 << 8,
    UNFINISHED = 1 << 9,
};

/* What is missing here no verb has. */
static const unsigned options_of[N_OPTIONS] = {
    [AT_OUTPUT] = OUTPUT,         [AT_KEEP] = KEEP,       [AT_EVERY] = EVERY,
    [AT_BEST] = BEST,             [AT_NEWER] = NEWER,     [AT_DRY_RUN] = DRY_RUN,
    [AT_JOBS] = STORE,            [AT_PART_SIZE] = STORE, [AT_TIMEOUT] = STORE,
    [AT_SHARD_SIZE] = SHARD_SIZE, [AT_SIZE] = BENCH,      [AT_RANKS] = BENCH,
    [AT_TENSORS] = BENCH,         [AT_ROUNDS] = BENCH,    [AT_UNFINISHED] = UNFINISHED,
};

static const struct verb {
    const char *name;
    enum ckpt_verb_kind kind;
    unsigned options;
} verbs[] = {
    {"ls", CKPT_LOOKS, OUTPUT | STORE},
    {"verify", CKPT_LOOKS, OUTPUT | STORE},
    {"last-valid", CKPT_LOOKS, STORE},
    {"show", CKPT_ON_ONE, OUTPUT | STORE},
    {"convert", CKPT_ON_ONE, OUTPUT | SHARD_SIZE | STORE},
    {"push", CKPT_CHANGES, OUTPUT | KEEP | EVERY | BEST | NEWER | DRY_RUN | STORE},
    {"pull", CKPT_CHANGES, OUTPUT | NEWER | DRY_RUN | STORE},
    {"cp", CKPT_CHANGES, OUTPUT | DRY_RUN | STORE},
    {"prune", CKPT_CHANGES, KEEP | EVERY | BEST | UNFINISHED | DRY_RUN | STORE},
    {"bench", CKPT_ON_ONE, OUTPUT | BENCH},
};

static const struct verb *find_verb(const char *name)
{
    static const struct verb none = {.kind = CKPT_NO_VERB};

    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    return &none;
}

enum ckpt_verb_kind ckpt_verb_kind(const char *name)
{
    return find_verb(name)->kind;
}

/* cp is one of two others where a store is one of its places. */
static const char *real_verb(const struct strlist *words)
{
    const char *verb = words->items[0];

    if (strcmp(verb, "cp") != 0 || words->n != 3) {
        return verb;
    }
    return str_starts(words->items[2], "s3://")   ? "push"
           : str_starts(words->items[1], "s3://") ? "pull"
                                                  : verb;
}

/* Wherever a table is printed it may be a wide one, also where there is none. */
static bool is_set(const struct ckpt_options *o, const struct option_def *def)
{
    const void *at = (const char *)o + def->offset;

    switch (def->type) {
    case OPTION_FLAG:
        return *(const bool *)at;
    case OPTION_STR:
        return *(const char *const *)at != NULL;
    default:
        return def->call == show_set_format ? o->format == SHOW_JSON || o->format == SHOW_YAML
                                            : *(const int64_t *)at != 0;
    }
}

int ckpt_options_check(const struct ckpt_options *o, const struct strlist *words,
                       struct error *e)
{
    const char *verb = real_verb(words);
    unsigned options = find_verb(verb)->options;

    for (size_t i = 1; i < words->n; i++) {
        if (!*words->items[i]) {
            return error_text(e, ERR_USAGE, "ckpt %s: expected a path or a name, found an empty "
                              "one", words->items[0]);
        }
    }
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (is_set(o, &table[i]) && !(options & options_of[i])) {
            return error_text(e, ERR_USAGE, "ckpt %s: it has no option --%s%s", verb,
                              table[i].name,
                              i == AT_OUTPUT ? ": it prints paths, one a line" : "");
        }
    }
    if ((o->every || o->best) && !o->keep) {
        return error_text(e, ERR_USAGE, "ckpt %s: --keep N is needed, too, where there is "
                          "--%s", verb, o->every ? "every" : "best");
    }
    return 0;
}

const struct options ckpt_options = {
    .command = "ckpt",
    .usage = "ls PLACE [-o json|yaml]\n"
             "verify PLACE [NAME...] [-o json|yaml]\n"
             "last-valid PLACE\n"
             "show CHECKPOINT [-o json|yaml]\n"
             "convert CHECKPOINT FILE.safetensors|DIRECTORY\n"
             "push CHECKPOINT s3://BUCKET/PREFIX [--keep N] [--newer]\n"
             "pull s3://BUCKET/PREFIX[/NAME] DIRECTORY\n"
             "pull s3://BUCKET/PREFIX DIRECTORY --newer\n"
             "cp FROM TO\n"
             "prune PLACE --keep N [--every N] [--best METRIC[:min|max]]\n"
             "prune DIRECTORY --unfinished TIME [--keep N ...]\n"
             "bench DIRECTORY [--size SIZE] [--ranks N] [-o json|yaml]",
    .about = "Looks at checkpoints, and copies them to and from object stores. A "
             "PLACE is a directory or s3://BUCKET/PREFIX. Those of muster, of "
             "torch.save, the Hugging Face Trainer, torch.distributed.checkpoint "
             "and safetensors are known, without running what is in them. ls looks "
             "at their structure; verify reads every byte that has a checksum, of "
             "all or of those named; last-valid prints the newest, by its step, "
             "that verifies. show tells what is in one: tensors with type, shape and "
             "files, and who saved it; convert makes safetensors files of it. push "
             "copies one that is whole, and goes on where an "
             "earlier one was cut; pull brings one back, or the newest that is "
             "whole; cp is push or pull, or copies from one directory into another; "
             "prune removes all but the newest and those that are to stay besides. "
             "bench measures what saving and loading take in a directory.",
    .table = table,
    .min_args = 2,
    .max_args = SIZE_MAX,
};
