/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster-store: what `muster ckpt` does in object stores. A program of its own, so
 * that nothing else of muster is linked with libcurl and what that brings along. Its
 * arguments are those of `muster ckpt`, which has looked at them already.
 */
#include <config.h>

#include "launcher/store_verbs.h"

#include "base/cleanup.h"
#include "launcher/ckpt_progress.h"
#include "launcher/commands.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* --- what people see --- */

/* One line, which more than one thread writes. */
static struct {
    pthread_mutex_t lock;
    struct ckpt_line line;
    const char *doing; /* by the verb */
} shown = {.lock = PTHREAD_MUTEX_INITIALIZER, .doing = "reading"};

void store_progress_end(void)
{
    pthread_mutex_lock(&shown.lock);
    ckpt_line_end(&shown.line);
    pthread_mutex_unlock(&shown.lock);
}

void store_progress_show(void *arg, uint64_t done, uint64_t of)
{
    (void)arg;
    pthread_mutex_lock(&shown.lock);
    ckpt_line_bytes(&shown.line, shown.doing, NULL, done, of);
    pthread_mutex_unlock(&shown.lock);
}

void store_count_show(void *arg, const char *doing, uint64_t done, uint64_t of)
{
    (void)arg;
    pthread_mutex_lock(&shown.lock);
    ckpt_line_count(&shown.line, doing, done, of);
    pthread_mutex_unlock(&shown.lock);
}

void store_tell(void *arg, const char *text)
{
    _buf_ struct buf clean = {0};

    (void)arg;
    show_clean(&clean, text, strlen(text));
    pthread_mutex_lock(&shown.lock);
    ckpt_line_hide(&shown.line);
    fprintf(stderr, "muster: %s\n", buf_str(&clean));
    pthread_mutex_unlock(&shown.lock);
}

/* --- verbs --- */

static int use(const char *verb, const char *what)
{
    struct error e = {0};

    error_text(&e, ERR_USAGE, "ckpt %s: expected %s", verb, what);
    return command_fail(&e);
}

static int copy(const struct ckpt_options *o, const char *verb, const char *from,
                const char *to)
{
    bool is_from = s3_is_uri(from), is_to = s3_is_uri(to);

    if (strcmp(verb, "push") == 0 && (is_from || !is_to)) {
        return use(verb, "a checkpoint here and s3://BUCKET/PREFIX");
    }
    if (strcmp(verb, "pull") == 0 && (!is_from || is_to)) {
        return use(verb, "s3://BUCKET/PREFIX and a directory here");
    }
    if (is_from == is_to) {
        return use(verb, "one of the two to be s3://BUCKET/PREFIX");
    }
    shown.doing = is_to ? "pushing" : "fetching";
    return is_to ? store_verb_push(o, from, to) : store_verb_pull(o, from, to);
}

static int run(const struct ckpt_options *o, const struct strlist *words)
{
    const char *verb = words->items[0];
    bool is_verify = strcmp(verb, "verify") == 0;

    if (strcmp(verb, "push") == 0 || strcmp(verb, "pull") == 0 ||
        strcmp(verb, "cp") == 0) {
        return words->n == 3 ? copy(o, verb, words->items[1], words->items[2])
                             : use(verb, "two places, and nothing else");
    }
    if (strcmp(verb, "show") == 0 || strcmp(verb, "convert") == 0) {
        return store_verb_look(o, words->items[1],
                               words->n == 3 ? words->items[2] : NULL);
    }
    if (!s3_is_uri(words->items[1]) || (!is_verify && words->n > 2)) {
        return use(verb, "s3://BUCKET/PREFIX, and nothing else");
    }
    if (strcmp(verb, "ls") == 0 || is_verify) {
        return store_verb_show(o, words, is_verify);
    }
    return strcmp(verb, "last-valid") == 0
               ? store_verb_last(o, words->items[1])
               : store_verb_prune(o, words->items[1]);
}

int main(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct ckpt_options set = {0};
    int rc = options_start(&ckpt_options, argc, argv, &set, &args);

    /* A server that closes a connection is an error of that one write. */
    signal(SIGPIPE, SIG_IGN);
    return show_finish(rc >= 0 ? rc : run(&set, &args.words));
}
