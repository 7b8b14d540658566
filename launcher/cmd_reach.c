/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster reach: which of some hosts can be used, for a front end that must not
 * wait for them (launcher/front_reach.c). Reads one JSON object from stdin, and
 * prints those that can, one a line, and behind each what it calls itself. Some are
 * asked by an mpirun of their own, to which ssh is not all: whether it gets muster-mpi
 * to start there.
 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/commands.h"
#include "launcher/options.h"
#include "launcher/probe.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum { AT_ONCE = 64 }; /* as many as fanout_run() has */

static void get_bytes(const json_t *o, const char *key, uint8_t *to,
                      size_t size)
{
    const char *hex = json_string_value(json_object_get(o, key));

    memset(to, 0, size);
    if (hex) {
        sodium_hex2bin(to, size, hex, strlen(hex), NULL, NULL, NULL);
    }
}

static void get_text(const json_t *o, const char *key, char *to, size_t size)
{
    const char *s = json_string_value(json_object_get(o, key));

    str_copy(to, size, s ? s : "");
}

static void get_words(const json_t *o, const char *key, struct strlist *to)
{
    const json_t *words = json_object_get(o, key);

    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));

        strlist_add(to, word ? word : "");
    }
}

static int get_lists(const json_t *o, struct host_list *hosts,
                     struct strlist *ssh)
{
    const json_t *names = json_object_get(o, "hosts");

    get_words(o, "ssh", ssh);
    hosts->items = calloc(json_array_size(names) + 1, sizeof(*hosts->items));
    for (size_t i = 0; hosts->items && i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));

        str_copy(hosts->items[hosts->n++].name, HOSTS_NAME_BYTES,
                 name ? name : "");
    }
    return hosts->items && !ssh->failed ? 0 : -ENOMEM;
}

static int reach(const json_t *question, struct error *e)
{
    uint8_t key[32], nonce[RUNDIR_NONCE_BYTES];
    _host_list_ struct host_list hosts = {0};
    _strlist_ struct strlist ssh = {0};
    struct rundir dir = {0};
    struct probe_config config = {
        .hosts = &hosts, .dir = &dir, .key = key, .nonce = nonce,
        .timeout_ms = (unsigned)json_integer_value(
            json_object_get(question, "timeout_ms"))};
    _free_ bool *bad = NULL;
    _free_ struct probe_answer *answers = NULL;
    int rc = get_lists(question, &hosts, &ssh);

    bad = calloc(hosts.n + 1, sizeof(*bad));
    answers = calloc(hosts.n + 1, sizeof(*answers));
    if (rc < 0 || !bad || !answers) {
        return error_set(e, ENOMEM, "look at hosts");
    }
    get_text(question, "run_id", dir.id, sizeof(dir.id));
    get_text(question, "run_dir", dir.path, sizeof(dir.path));
    get_bytes(question, "nonce", nonce, sizeof(nonce));
    get_bytes(question, "key", key, sizeof(key));
    config.ssh = ssh.items;
    config.ret_bad = bad;
    config.ret_answers = answers;
    rc = probe_hosts(&config, e);
    sodium_memzero(key, sizeof(key));
    for (size_t i = 0; rc == 0 && i < hosts.n; i++) {
        if (!bad[i]) {
            const char *own = answers[i].host;

            printf("%s %s\n", hosts.items[i].name,
                   own[strcspn(own, " \t\r\n")] ? "" : own);
        }
    }
    return rc;
}

/* All at once; a hundred of them do not wait for one that hangs. */
static int try_hosts(const json_t *question, struct error *e)
{
    _strlist_ struct strlist names = {0}, words = {0}, program = {0};
    static const struct buf nothing = {0};
    struct fanout fan = {.input = &nothing, .env = environ};
    int rc = 0;

    get_words(question, "tried", &names);
    get_words(question, "try", &words);
    get_words(question, "program", &program);
    if (!names.n || !words.n || !program.n) {
        return names.failed || words.failed || program.failed ? -ENOMEM : 0;
    }
    fan.tasks = calloc(names.n, sizeof(*fan.tasks));
    if (!fan.tasks) {
        return error_set(e, ENOMEM, "look at hosts");
    }
    for (fan.n = 0; fan.n < names.n; fan.n++) {
        struct strlist *argv = &fan.tasks[fan.n].argv;

        strlist_add_all(argv, words.items);
        strlist_add(argv, names.items[fan.n]);
        strlist_add_all(argv, program.items);
        rc = argv->failed ? -ENOMEM : rc;
    }
    fan.timeout_ms = (unsigned)json_integer_value(json_object_get(question, "try_ms")) *
                     (unsigned)(1 + names.n / AT_ONCE);
    rc = rc < 0 ? rc : fanout_run(&fan, e);
    for (size_t i = 0; i < fan.n; i++) {
        if (rc == 0 && !fan.tasks[i].problem[0] && fan.tasks[i].status == 0) {
            printf("%s\n", names.items[i]);
        }
        fanout_task_release(&fan.tasks[i]);
    }
    free(fan.tasks);
    return rc;
}

int cmd_reach(int argc, char **argv)
{
    json_t *question = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, NULL);
    struct error e = {0};
    int rc;

    (void)argc;
    (void)argv;
    rc = !question || sodium_init() < 0
             ? error_text(&e, ERR_FORMAT, "the question does not parse")
             : reach(question, &e);
    rc = rc < 0 ? rc : try_hosts(question, &e);
    json_decref(question);
    return rc < 0 ? command_fail(&e) : EXIT_OK;
}
