/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_look.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ANSWER_BYTES = 16 << 10 };

struct agent_look {
    struct agent *agent;
    json_int_t serial; /* of the question */
    int answer;        /* what the child has said */
};

static void release(struct agent_look *k)
{
    close_fd(&k->answer);
    free(k);
}

static json_t *read_answer(const struct agent_look *k)
{
    _free_ char *text = malloc(ANSWER_BYTES);
    ssize_t n = text ? pread(k->answer, text, ANSWER_BYTES, 0) : -1;

    return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

/* One that says nothing has failed: also that is an answer. */
static void on_exit_(void *arg, const struct child_exit *how)
{
    struct agent_look *k = arg;
    json_t *fact = read_answer(k);
    char *text;

    (void)how;
    fact = json_is_object(fact) ? fact : json_object();
    if (fact && !k->agent->leaving && k->agent->tree &&
        json_object_set_new(fact, "fact", json_string("look")) == 0 &&
        json_object_set_new(fact, "serial", json_integer(k->serial)) == 0) {
        text = json_dumps(fact, JSON_COMPACT);
        if (text) {
            tree_event(k->agent->tree, text, strlen(text));
        }
        free(text);
    }
    json_decref(fact);
    release(k);
}

static int spawn(struct agent_look *k, const char *path, const char *avoided,
                 struct error *e)
{
    char program[PATH_MAX];
    _strlist_ struct strlist argv = {0};
    struct child_spec spec = {.path = program, .envp = environ,
                              .stdio = {-1, -1, -1}, .new_session = true};
    int rc = fs_program(program, sizeof(program), e);
    pid_t pid;

    k->answer = rc < 0 ? -1 : memfd_create("muster-look", MFD_CLOEXEC);
    if (k->answer < 0) {
        return rc < 0 ? rc : error_set(e, errno, "make a memory file");
    }
    strlist_add(&argv, "muster");
    strlist_add(&argv, "ckpt-look");
    if (avoided) {
        strlist_addf(&argv, "--older-than=%s", avoided);
    }
    strlist_add(&argv, "--");
    strlist_add(&argv, path);
    if (argv.failed) {
        return error_set(e, ENOMEM, "look for a checkpoint");
    }
    spec.argv = argv.items;
    spec.stdio[1] = k->answer;
    return child_spawn(k->agent->children, &spec, on_exit_, k, &pid, e);
}

void agent_look_asked(struct agent *a, const json_t *ask)
{
    const char *path = json_string_value(json_object_get(ask, "path"));
    const char *avoided = json_string_value(json_object_get(ask, "avoided"));
    struct agent_look *k = path ? calloc(1, sizeof(*k)) : NULL;
    struct error e = {0};

    if (!k) {
        return;
    }
    *k = (struct agent_look){
        .agent = a, .answer = -1,
        .serial = json_integer_value(json_object_get(ask, "serial"))};
    if (spawn(k, path, avoided, &e) < 0) {
        agent_log(a, "%s", e.text);
        release(k); /* the lead does not wait for ever */
    }
}

int agent_look_start(struct agent *a, const char *path,
                     void (*on_exit)(void *arg, const struct child_exit *how),
                     void *arg, pid_t *ret_pid)
{
    _strlist_ struct strlist argv = {0};
    struct child_spec spec = {.path = "/bin/sh", .envp = environ,
                              .stdio = {-1, -1, -1}, .new_session = true};

    strlist_add(&argv, "sh");
    strlist_add(&argv, "-c");
    strlist_add(&argv, "test -e \"$1\"");
    strlist_add(&argv, "sh");
    strlist_add(&argv, path);
    spec.argv = argv.items;
    return argv.failed ? -ENOMEM
                       : child_spawn(a->children, &spec, on_exit, arg, ret_pid,
                                     NULL);
}
