/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accelerate launch [OPTION...] SCRIPT, with its configuration file: the one
 * that is named, else the one that `accelerate config` has written, where there
 * is one. A key of the file is the option of that name, and counts where the
 * option is not given.
 */
#include <config.h>

#include "spec/command_accelerate.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_VARIABLES = 128, MAX_OPTIONS = 256, MAX_WORD = 64 };

struct reading {
    bool parts[N_PARTS];
    struct node *given[MAX_VARIABLES]; /* NULL: not given */
    struct node *config;               /* the name of the file, or NULL */
    struct node *gpus;
    struct buf fields; /* of DeepSpeed that came from the file */
    bool in_file;      /* where what is read now stands */
};

/* Both tables as one, for the reading of options. NULL without memory. */
static struct launcher_option *all_options(struct arena *a)
{
    struct launcher_option *all = arena_alloc(a, MAX_OPTIONS * sizeof(*all));
    size_t n = 0;

    for (size_t i = 0; all && accelerate_options[i].name; i++) {
        all[n++] = accelerate_options[i];
    }
    for (size_t i = 0; all && accelerate_variables[i].option; i++) {
        const struct accelerate_variable *v = &accelerate_variables[i];

        all[n++] = (struct launcher_option){
            v->option, !v->flag, ACCELERATE_VARIABLE + (int)i, NULL};
    }
    return all;
}

/* --- values --- */

/* One of the words of a variable, as its library wants it. */
static struct node *read_word(struct command *cmd,
                              const struct launcher_hit *hit,
                              const struct accelerate_variable *v)
{
    const char *text = hit->values[0]->text;
    char *word;

    for (size_t i = 0; v->words[i]; i++) {
        if (strcasecmp(v->words[i], text) != 0) {
            continue;
        }
        word = arena_strdup(cmd->c->arena, v->words[i]);
        for (char *s = word; s && v->upper && *s; s++) {
            *s = (char)toupper((unsigned char)*s);
        }
        return node_scalar(cmd->c->arena, &hit->values[0]->place, word, false);
    }
    report_error(cmd->c->report, &hit->values[0]->place,
                 "%.60s of %s is %.40s; expected one of its words, such as "
                 "%s or %s",
                 hit->node->text, cmd->launcher, text, v->words[0],
                 v->words[1]);
    return NULL;
}

static void take_variable(struct command *cmd, const struct launcher_hit *hit,
                          struct reading *r, size_t i)
{
    const struct accelerate_variable *v = &accelerate_variables[i];
    struct node *value = hit->values[0];

    if (r->in_file && r->given[i]) {
        return;
    }
    if (v->flag) {
        value = node_scalar(cmd->c->arena, &hit->node->place,
                            v->on ? v->on : "True", false);
    } else if (command_is_unexpanded(cmd, hit, value)) {
        return;
    } else if (v->words) {
        value = read_word(cmd, hit, v);
    }
    r->given[i] = value;
    if (r->in_file && (v->part == DEEPSPEED ||
                       strcmp(v->option, "mixed-precision") == 0)) {
        buf_printf(&r->fields, "%s%s", r->fields.len ? "," : "",
                   hit->node->text);
    }
}

static void take_own(struct command *cmd, const struct launcher_hit *hit,
                     void *arg)
{
    struct reading *r = arg;
    int meaning = hit->option->meaning;

    if (meaning >= ACCELERATE_VARIABLE) {
        take_variable(cmd, hit, r, (size_t)(meaning - ACCELERATE_VARIABLE));
    } else if (meaning >= ACCELERATE_PART) {
        r->parts[meaning - ACCELERATE_PART] = true;
    } else if (meaning == ACCELERATE_CONFIG) {
        r->config = hit->values[0];
    } else if (!r->gpus) {
        r->gpus = hit->values[0];
    }
}

/* --- the configuration --- */

static bool is_off(const struct node *value)
{
    return node_is_null(value) || (value->kind != NODE_SCALAR && !value->n) ||
           (value->kind == NODE_SCALAR &&
            (!value->text[0] || strcasecmp(value->text, "false") == 0));
}

/* A value that asks for nothing; "false" is one of those that are passed on. */
static bool is_nothing(const struct launcher_option *option,
                       const struct node *value)
{
    return option->meaning == LAUNCHER_NOTED || node_is_null(value) ||
           (is_off(value) && (option->n_values == 0 ||
                              option->meaning == LAUNCHER_REFUSED ||
                              value->kind != NODE_SCALAR));
}

/* NO, MULTI_GPU, MULTI_CPU, FSDP, ...: counts where no option names a part. */
static void take_type(struct command *cmd, const struct node *value,
                      struct reading *r)
{
    static const struct {
        const char *word;
        enum accelerate_part part;
    } types[] = {
        {"NO", ALWAYS},           {"MULTI_CPU", ON_CPU},
        {"MULTI_GPU", ON_GPUS},   {"MULTI_XPU", ON_GPUS},
        {"MULTI_NPU", ON_GPUS},   {"MULTI_HPU", ON_GPUS},
        {"DEEPSPEED", DEEPSPEED}, {"FSDP", FSDP},
        {"MEGATRON_LM", MEGATRON_LM},
    };
    bool is_open = !r->parts[ON_GPUS] && !r->parts[DEEPSPEED] &&
                   !r->parts[FSDP] && !r->parts[MEGATRON_LM];

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (strcmp(types[i].word, value->text) == 0) {
            r->parts[types[i].part] |= is_open;
            return;
        }
    }
    report_error(cmd->c->report, &value->place,
                 "distributed_type %.40s of %s; expected NO, MULTI_CPU, "
                 "MULTI_GPU, FSDP, DEEPSPEED or MEGATRON_LM",
                 value->text, cmd->launcher);
}

/* Keys that are no options. True if this is one. */
static bool take_special(struct command *cmd, const char *key,
                         const struct node *value, struct reading *r)
{
    static const char *const others[] = {
        "tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_vm", "tpu_env",
        "commands", "command_file", "mpirun_ccl", NULL};

    if (value->kind == NODE_SCALAR && strcmp(key, "distributed_type") == 0) {
        take_type(cmd, value, r);
        return true;
    }
    if (value->kind == NODE_SCALAR &&
        strcmp(key, "compute_environment") == 0) {
        if (strcmp(value->text, "LOCAL_MACHINE") != 0) {
            report_error(cmd->c->report, &value->place,
                         "compute_environment %.40s of %s; expected "
                         "LOCAL_MACHINE",
                         value->text, cmd->launcher);
        }
        return true;
    }
    for (size_t i = 0; others[i]; i++) {
        if (strcmp(others[i], key) == 0 && is_off(value)) {
            return true;
        }
    }
    return false;
}

/* The option that a key of a section is: fsdp_config has both version and
 * fsdp_version. */
static const struct launcher_option *
option_of(const struct launcher_option *all, const char *section,
          const char *key)
{
    static const char *const short_ones[][2] = {
        {"fsdp_config", "fsdp_"},
        {"fp8_config", "fp8_"},
        {"dynamo_config", "dynamo_"},
    };
    const char *attached;
    char name[MAX_WORD];

    snprintf(name, sizeof(name), "--%s", key);
    for (size_t i = 0; i < ARRAY_SIZE(short_ones); i++) {
        if (section && strcmp(section, short_ones[i][0]) == 0 &&
            !str_starts(key, short_ones[i][1])) {
            snprintf(name, sizeof(name), "--%s%s", short_ones[i][1],
                     key);
        }
    }
    return command_option(all, name, &attached);
}

static void take_key(struct command *cmd, const struct launcher_option *all,
                     const char *section, const struct pair *p,
                     struct reading *r)
{
    const struct launcher_option *option = option_of(all, section, p->key);
    struct launcher_hit hit = {.option = option, .values = {p->value}};
    bool taken;

    if (take_special(cmd, p->key, p->value, r) ||
        (option && is_nothing(option, p->value))) {
        return;
    }
    if (!option || p->value->kind != NODE_SCALAR) {
        report_error(cmd->c->report, &p->place,
                     "%.60s in the configuration of %s; expected a key that "
                     "muster knows, with text",
                     p->key, cmd->launcher);
        return;
    }
    hit.node = node_scalar(cmd->c->arena, &p->place,
                           arena_strdup(cmd->c->arena, p->key), true);
    taken = option->meaning == LAUNCHER_TOTAL &&
            (cmd->total.option || strcmp(p->value->text, "-1") == 0);
    if (!hit.node || taken) {
        return;
    }
    if (option->meaning >= LAUNCHER_OWN) {
        take_own(cmd, &hit, r);
    } else {
        command_take(cmd, &hit);
    }
}

static void take_file(struct command *cmd, const struct launcher_option *all,
                      const struct node *doc, struct reading *r)
{
    for (size_t i = 0; i < doc->n && !report_is_full(cmd->c->report); i++) {
        const struct pair *p = &doc->pairs[i];

        if (p->value->kind != NODE_MAP) {
            take_key(cmd, all, NULL, p, r);
            continue;
        }
        r->parts[PARALLELISM] |= p->value->n &&
                                 strcmp(p->key, "parallelism_config") == 0;
        for (size_t k = 0; k < p->value->n; k++) {
            take_key(cmd, all, p->key, &p->value->pairs[k], r);
        }
    }
}

/* Where `accelerate config` writes; NULL: there is none. */
static const char *default_file(struct command *cmd)
{
    const char *home = form_getenv(cmd->c, "HOME");
    const char *hf = form_getenv(cmd->c, "HF_HOME");
    const char *cache = form_getenv(cmd->c, "XDG_CACHE_HOME");
    char path[PATH_MAX];
    int n = -1;

    if (hf) {
        n = snprintf(path, sizeof(path), "%s/accelerate/default_config.yaml",
                     hf);
    } else if (cache || home) {
        n = snprintf(path, sizeof(path),
                     "%s%s/huggingface/accelerate/default_config.yaml",
                     cache ? cache : home, cache ? "" : "/.cache");
    }
    return n > 0 && n < (int)sizeof(path) && access(path, F_OK) == 0
               ? arena_strdup(cmd->c->arena, path)
               : NULL;
}

static void read_config(struct command *cmd,
                        const struct launcher_option *all, struct reading *r)
{
    const struct place *at = r->config ? &r->config->place
                                       : &cmd->argv[0]->place;
    const char *path = r->config          ? r->config->text
                       : r->parts[ON_CPU] ? NULL
                                          : default_file(cmd);
    const struct node *doc = path ? command_load(cmd, path, at) : NULL;

    r->in_file = true;
    if (doc) {
        take_file(cmd, all, doc, r);
    }
}

/* --- what comes of it --- */

/* fprop, dgrad and wgrad in one option. */
static void set_fp8_override(struct command *cmd, const struct node *value)
{
    static const char *const names[] = {"ACCELERATE_FP8_OVERRIDE_FPROP",
                                        "ACCELERATE_FP8_OVERRIDE_DGRAD",
                                        "ACCELERATE_FP8_OVERRIDE_WGRAD"};
    const char *s = value->text;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t len = strcspn(s, ",");

        command_set_env(cmd, names[i],
                        node_scalar(cmd->c->arena, &value->place,
                                    arena_printf(cmd->c->arena, "%.*s",
                                                 (int)len, s),
                                    false));
        s += len + (s[len] == ',');
    }
}

static void set_variables(struct command *cmd, const struct reading *r)
{
    static const struct place at = {.file = "default of accelerate launch"};

    for (size_t i = 0; accelerate_variables[i].option; i++) {
        const struct accelerate_variable *v = &accelerate_variables[i];
        struct node *value = r->given[i];

        if (!r->parts[v->part]) {
            continue;
        }
        if (!value && v->def) {
            value = node_scalar(cmd->c->arena, &at, v->def, false);
        }
        if (value && v->name) {
            command_set_env(cmd, v->name, value);
        } else if (value) {
            set_fp8_override(cmd, value);
        }
    }
}

static void set_parts(struct command *cmd, struct reading *r)
{
    static const struct {
        enum accelerate_part part;
        const char *name;
    } names[] = {
        {ON_CPU, "ACCELERATE_USE_CPU"},
        {DEEPSPEED, "ACCELERATE_USE_DEEPSPEED"},
        {FSDP, "ACCELERATE_USE_FSDP"},
        {MEGATRON_LM, "ACCELERATE_USE_MEGATRON_LM"},
        {PARALLELISM, "ACCELERATE_USE_PARALLELISM_CONFIG"},
    };
    struct arena *a = cmd->c->arena;
    const struct place *at = &cmd->argv[0]->place;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (r->parts[names[i].part]) {
            command_set_env(cmd, names[i].name,
                            node_scalar(a, at, "true", false));
        }
    }
    if (r->parts[DEEPSPEED]) {
        command_set_env(cmd, "ACCELERATE_CONFIG_DS_FIELDS",
                        node_scalar(a, at,
                                    arena_strdup(a, buf_str(&r->fields)),
                                    false));
    }
    if (r->gpus && strcmp(r->gpus->text, "all") != 0) {
        command_set_env(cmd, "CUDA_VISIBLE_DEVICES", r->gpus);
    }
}

static const char *text_given(const struct reading *r, const char *option)
{
    for (size_t i = 0; accelerate_variables[i].option; i++) {
        if (strcmp(accelerate_variables[i].option, option) == 0) {
            return r->given[i] ? r->given[i]->text : "";
        }
    }
    return "";
}

/* With --cpu accelerate starts nothing of the others. */
static bool settle_parts(struct command *cmd, struct reading *r)
{
    const struct place *at = &cmd->argv[0]->place;

    if (r->parts[ON_CPU] + r->parts[ON_GPUS] + r->parts[DEEPSPEED] +
            r->parts[FSDP] > 1) {
        report_error(cmd->c->report, at,
                     "more than one of --cpu, --multi_gpu, --use_deepspeed and "
                     "--use_fsdp of %s; expected one of them",
                     cmd->launcher);
        return false;
    }
    if (r->parts[PARALLELISM] &&
        (!r->parts[FSDP] ||
         strcmp(text_given(r, "fsdp-version"), "2") != 0)) {
        report_error(cmd->c->report, at,
                     "--use_parallelism_config of %s; expected --use_fsdp and "
                     "--fsdp_version=2 with it",
                     cmd->launcher);
        return false;
    }
    r->parts[ALWAYS] = true;
    r->parts[COMPILED] = !r->parts[DEEPSPEED];
    r->parts[FP8_PART] =
        strcmp(text_given(r, "mixed-precision"), "fp8") == 0;
    return true;
}

bool command_is_accelerate(struct command *cmd)
{
    static const char *const programs[] = {"accelerate", "accelerate-launch",
                                           NULL};
    static const char *const modules[] = {
        "accelerate.commands.launch", "accelerate.commands.accelerate_cli",
        NULL};
    bool is_direct;

    if (!command_is_one_of(cmd, programs, modules)) {
        return false;
    }
    is_direct = strstr(cmd->launcher, "launch") != NULL;
    if (!is_direct && (cmd->at == cmd->n ||
                       strcmp(cmd->argv[cmd->at]->text, "launch") != 0)) {
        return false;
    }
    cmd->at += !is_direct;
    cmd->launcher = "accelerate launch";
    return true;
}

static void note_default(struct command *cmd)
{
    if (!node_get(cmd->tree, "procsPerNode")) {
        report_note(cmd->c->report, &cmd->argv[0]->place,
                    "%s would start one process a GPU, and one where there is "
                    "none; procsPerNode is auto, as nothing says otherwise",
                    cmd->launcher);
    }
}

bool command_read_accelerate(struct command *cmd)
{
    size_t errors = cmd->c->report->n_errors;
    struct launcher_option *all = all_options(cmd->c->arena);
    _free_ struct reading *r = calloc(1, sizeof(*r));
    bool good;

    if (!all || !r) {
        cmd->c->report->failed = true;
        return false;
    }
    cmd->is_argparse = true;
    cmd->python = form_getenv(cmd->c, "PYTHON_EXEC");
    good = command_read_options(cmd, all, take_own, r) &&
           command_check_python(cmd);
    if (good) {
        read_config(cmd, all, r);
        good = settle_parts(cmd, r);
    }
    if (good) {
        command_settle_total(cmd);
        set_parts(cmd, r);
        set_variables(cmd, r);
        note_default(cmd);
        command_start_python(cmd, NULL);
    }
    buf_release(&r->fields);
    return good && cmd->c->report->n_errors == errors;
}
