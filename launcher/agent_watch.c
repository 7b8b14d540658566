/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_watch.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/avoided.h"
#include "ckpt/found.h"
#include "launcher/last_wait.h"
#include "launcher/outfit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_LINE = 64 << 10,
    AGAIN_MS = 30000,   /* until a child that ended is started again */
    IDLE_SHARE = 6,     /* one that nobody waits for may be silent for longer */
};

/* What a child says; it may outlive the watch, in a call that hangs. */
struct lead_watch_line {
    uv_pipe_t pipe;
    struct lead_watch *watch; /* NULL: nobody listens */
    struct buf text;
    char bytes[16 << 10];
};

struct lead_watch {
    struct agent *agent;
    struct record *record;
    const struct lead_watch_ops *ops;
    void *arg;
    char path[PATH_MAX];
    struct lead_watch_line *line; /* or NULL */
    int in;        /* of the child */
    pid_t pid;     /* -1: there is none */
    uv_timer_t timer;
    bool is_asked;
    uint32_t generation; /* that waits for the answer */
    struct last_wait *wait;
    bool is_finishing; /* the end of the run waits */
    char told[ORDER_PATH_BYTES], whole[ORDER_PATH_BYTES];
    int64_t told_step, whole_step;
    bool told_is_broken;
    char avoided[AVOID_LINES_BYTES];
    char held[PATH_MAX];
    bool has_news; /* so that an answer without a path is worth a word */
    int64_t n_others; /* of that answer: what is there that is not known */
};

static void event(struct lead_watch *w, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void event(struct lead_watch *w, const char *name, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    record_eventv(w->record, name, w->is_asked ? w->generation : 0, fmt, ap);
    va_end(ap);
}

/* --- the end of the run --- */

static void end_wait(struct lead_watch *w)
{
    w->is_finishing = false;
    last_wait_end(w->wait);
    record_storing(w->record, "");
}

static void finish(struct lead_watch *w)
{
    end_wait(w);
    w->ops->on_finished(w->arg);
}

static void on_wait(void *arg, const char *span, bool is_late)
{
    struct lead_watch *w = arg;

    event(w, is_late ? "checkpoint_trouble" : "checkpoint_waits", is_late
          ? "%s: what was saved last has not been read after %s: the run ends without"
          : "the run ends once what was saved last in %s has been read (for %s; Ctrl-C "
            "ends it without)", w->path, span);
    if (is_late) {
        finish(w);
    }
}

/* --- answers --- */

static const char *name_in(const struct lead_watch *w, const char *path)
{
    size_t n = strlen(w->path);

    return strncmp(path, w->path, n) == 0 && path[n] == '/' &&
                   !strchr(path + n + 1, '/')
               ? path + n + 1 : NULL;
}

/* The name in the directory of what that path is, or lies in, as a file of a checkpoint that
 * is a directory does: a program may tell of that. False: it is not there. */
static bool entry_of(const struct lead_watch *w, const char *path, char ret[FOUND_NAME_BYTES])
{
    size_t n = strlen(w->path), len;

    if (strncmp(path, w->path, n) != 0 || path[n] != '/') {
        return false;
    }
    len = strcspn(path + n + 1, "/");
    if (len == 0 || len >= FOUND_NAME_BYTES) {
        return false;
    }
    memcpy(ret, path + n + 1, len);
    ret[len] = '\0';
    return true;
}

static bool lies_in(const char *path, const char *in)
{
    size_t n = strlen(in);

    return n > 0 && strncmp(path, in, n) == 0 && path[n] == '/';
}

bool lead_watch_has(const struct lead_watch *w, const char *path)
{
    return w && name_in(w, path);
}

static void answer(struct lead_watch *w, const char *path, int64_t step)
{
    char text[32] = "", others[128] = "";

    if (w->n_others > 0) {
        snprintf(others, sizeof(others), ": of %" PRId64 " entr%s none is one that muster knows "
                 "(the kinds are in muster-ckpt(1))", w->n_others, w->n_others == 1 ? "y" : "ies");
    }
    if (step >= 0) {
        snprintf(text, sizeof(text), " (step %" PRId64 ")", step);
    }
    if (path[0] && avoided_has_path(w->avoided, path)) {
        ; /* it is not what it starts from, and who has asked looks for another */
    } else if (path[0]) {
        event(w, "checkpoint_chosen", "generation %u starts from %s%s",
              w->generation, path, text);
    } else if (w->has_news && !w->avoided[0]) {
        event(w, "checkpoint_chosen", "generation %u starts without a "
              "checkpoint: there is none in %s%s", w->generation, w->path, others);
    }
    w->has_news = true; /* from now on there should be one */
    w->is_asked = false;
    w->ops->on_chosen(w->arg, path, step);
}

/* One that workers told of counts, too, unless it has been looked at. */
static bool told_is_better(const struct lead_watch *w, const char *path,
                           int64_t step, int64_t n)
{
    if (!w->told[0] || w->told_is_broken || strcmp(w->told, path) == 0) {
        return false;
    }
    if (avoided_has_path(w->avoided, w->told)) {
        return !path[0] && (n == 0 || !name_in(w, w->told));
    }
    if (lies_in(w->told, path)) {
        return true; /* the program says what of it it wants */
    }
    if (name_in(w, w->told)) {
        return n == 0; /* of a kind that is not known here */
    }
    return !path[0] || w->told_step > step;
}

static void take_chosen(struct lead_watch *w, const json_t *o)
{
    const char *path = json_string_value(json_object_get(o, "path"));
    const json_t *step = json_object_get(o, "step");
    int64_t n = json_integer_value(json_object_get(o, "n"));
    int64_t at = step ? json_integer_value(step) : -1;

    if (!w->is_asked) {
        return;
    }
    w->n_others = json_integer_value(json_object_get(o, "others"));
    w->has_news |= json_is_true(json_object_get(o, "likely"));
    if (json_is_true(json_object_get(o, "trouble"))) { /* which was told */
        answer(w, w->told, w->told_step);
        return;
    }
    path = path ? path : "";
    if (strlen(path) >= ORDER_PATH_BYTES) {
        event(w, "checkpoint_trouble", "%s has more than %d bytes: no worker "
              "is told of it", path, ORDER_PATH_BYTES - 1);
        path = "";
    }
    if (told_is_better(w, path, at, n)) {
        answer(w, w->told, w->told_step);
    } else {
        answer(w, path, at);
    }
}

static void take_passed(struct lead_watch *w, const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *state = json_string_value(json_object_get(o, "state"));
    const char *why = json_string_value(json_object_get(o, "why"));
    const char *aside = json_string_value(json_object_get(o, "aside"));
    const char *not = json_string_value(json_object_get(o, "aside_why"));
    char told[FOUND_NAME_BYTES];

    if (!name || !state || !why) {
        return;
    }
    w->has_news = true;
    w->told_is_broken |= entry_of(w, w->told, told) && strcmp(told, name) == 0;
    event(w, "checkpoint_broken", "%s/%s is %s: %s; %s%s", w->path, name, state,
          why, aside ? "set aside as " : "passed over", aside ? aside : "");
    if (not) {
        event(w, "checkpoint_broken", "%s/%s was not set aside: %s", w->path,
              name, not);
    }
}

static void take_whole(struct lead_watch *w, const json_t *o)
{
    const char *path = json_string_value(json_object_get(o, "path"));
    const json_t *step = json_object_get(o, "step");
    bool is_new = json_is_true(json_object_get(o, "new")), is_again;

    if (path && strlen(path) < sizeof(w->whole)) {
        is_again = is_new && strcmp(w->whole, path) == 0;
        str_copy(w->whole, sizeof(w->whole), path);
        w->whole_step = step ? json_integer_value(step) : -1;
        w->ops->on_saved(w->arg, w->whole, w->whole_step, is_new, is_again);
    }
}

static void take_line(struct lead_watch *w, const char *text, size_t len)
{
    json_t *o = json_loadb(text, len, 0, NULL);
    const char *op = json_string_value(json_object_get(o, "op"));
    const char *say = json_string_value(json_object_get(o, "text"));

    if (!op) {
        agent_log(w->agent, "the watch over checkpoints says '%.*s'", (int)len,
                  text);
    } else if (strcmp(op, "whole") == 0) {
        take_whole(w, o);
    } else if (strcmp(op, "passed") == 0) {
        take_passed(w, o);
    } else if (strcmp(op, "chosen") == 0) {
        take_chosen(w, o);
    } else if (strcmp(op, "finished") == 0 && w->is_finishing) {
        finish(w);
    } else if (strcmp(op, "removed") == 0 && say) {
        event(w, "checkpoint_removed", "%s", say);
    } else if (strcmp(op, "trouble") == 0 && say) {
        event(w, "checkpoint_trouble", "%s", say);
    }
    json_decref(o);
}

/* --- the child --- */

static void free_line(uv_handle_t *h)
{
    struct lead_watch_line *l = h->data;

    buf_release(&l->text);
    free(l);
}

static void close_line(struct lead_watch *w)
{
    if (w->line) {
        w->line->watch = NULL;
        uv_close((uv_handle_t *)&w->line->pipe, free_line);
        w->line = NULL;
    }
    close_fd(&w->in);
}

static void on_nobody(void *arg, const struct child_exit *how)
{
    (void)arg;
    (void)how;
}

static void on_timer(uv_timer_t *t);

static void await_word(struct lead_watch *w)
{
    uint64_t ms = w->agent->config.job->heartbeat_timeout_ms;

    uv_timer_start(&w->timer, on_timer,
                   w->is_asked || w->is_finishing ? ms : ms * IDLE_SHARE, 0);
}

/* The child is left to itself, killed; it may take that in when it can. */
static void leave_child(struct lead_watch *w)
{
    if (w->pid > 0) {
        child_hand_over(w->agent->children, w->pid, on_nobody, NULL);
        child_kill(w->agent->children, w->pid, SIGKILL);
        w->pid = -1;
    }
    close_line(w);
    uv_timer_start(&w->timer, on_timer, AGAIN_MS, 0);
}

/* Whoever waits goes on with what was known before. */
static void give_up(struct lead_watch *w, const char *why)
{
    bool is_asked = w->is_asked;

    event(w, "checkpoint_trouble", "%s: %s%s", w->path, why,
          is_asked ? "; the newest checkpoint that is known has to do" : "");
    leave_child(w);
    if (is_asked && w->whole[0] &&
        (!w->told[0] || w->whole_step >= w->told_step)) {
        answer(w, w->whole, w->whole_step);
    } else if (is_asked) {
        answer(w, w->told, w->told_step);
    } else if (w->is_finishing) {
        finish(w);
    }
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct lead_watch *w = arg;
    char why[128];

    w->pid = -1;
    snprintf(why, sizeof(why), "the process that watches it has ended (%s %d)",
             how->signal ? "signal" : "status",
             how->signal ? how->signal : how->code);
    give_up(w, why);
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *ret)
{
    struct lead_watch_line *l = h->data;

    (void)size;
    *ret = uv_buf_init(l->bytes, sizeof(l->bytes));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct lead_watch_line *l = stream->data;
    const char *end;

    if (n < 0) {
        uv_read_stop(stream); /* on_exit_() follows */
        return;
    }
    buf_append(&l->text, buf->base, (size_t)n);
    while (l->watch && l->text.len &&
           (end = memchr(l->text.data, '\n', l->text.len))) {
        size_t len = (size_t)(end - l->text.data);

        await_word(l->watch);
        take_line(l->watch, l->text.data, len);
        buf_consume(&l->text, len + 1);
    }
    if (l->text.failed || l->text.len > MAX_LINE) {
        uv_read_stop(stream); /* and the silence is noticed */
    }
}

static int open_line(struct lead_watch *w, int fd)
{
    struct lead_watch_line *l = calloc(1, sizeof(*l));

    if (!l) {
        close(fd);
        return -ENOMEM;
    }
    uv_pipe_init(&w->agent->loop, &l->pipe, 0);
    l->pipe.data = l;
    l->watch = w;
    w->line = l;
    uv_pipe_open(&l->pipe, fd);
    uv_read_start((uv_stream_t *)&l->pipe, on_alloc, on_read);
    return 0;
}

static void add_rule(const struct lead_watch *w, struct strlist *argv)
{
    const struct job_checkpoint *k = &w->agent->config.job->checkpoint;

    if (k->prune_keep) {
        strlist_addf(argv, "--keep=%u", k->prune_keep);
        strlist_addf(argv, "--every=%u", k->prune_every);
    }
    if (k->prune_keep && k->prune_best) {
        strlist_addf(argv, "--best=%s", k->prune_best);
    }
    if (k->prune_goal == JOB_MAXIMIZE) {
        strlist_add(argv, "--highest");
    }
}

static int spawn(struct lead_watch *w, int in, int out, struct error *e)
{
    char program[PATH_MAX];
    _strlist_ struct strlist argv = {0};
    struct child_spec spec = {.path = program, .envp = environ,
                              .stdio = {in, out, -1}, .new_session = true};
    int rc = fs_program(program, sizeof(program), e);

    strlist_add(&argv, "muster");
    strlist_add(&argv, "ckpt-watch");
    add_rule(w, &argv);
    strlist_add(&argv, "--");
    strlist_add(&argv, w->path);
    if (rc == 0 && argv.failed) {
        rc = error_set(e, ENOMEM, "start a process");
    }
    spec.argv = argv.items;
    return rc < 0 ? rc : child_spawn(w->agent->children, &spec, on_exit_, w,
                                     &w->pid, e);
}

static bool tell(const struct lead_watch *w, const char *words)
{
    return write(w->in, words, strlen(words)) == (ssize_t)strlen(words);
}

/* The names of those that are in its directory: short, and together one write. */
static bool tell_avoided(const struct lead_watch *w)
{
    char lines[AVOID_LINES_BYTES], *rest = lines;
    _buf_ struct buf b = {0};

    str_copy(lines, sizeof(lines), w->avoided);
    buf_printf(&b, "avoid\n");
    for (char *line; (line = strsep(&rest, "\n"));) {
        char name[FOUND_NAME_BYTES];

        if (entry_of(w, line, name)) {
            buf_printf(&b, "avoid %s\n", name);
        }
    }
    return tell(w, buf_str(&b));
}

static bool tell_held(const struct lead_watch *w)
{
    char name[FOUND_NAME_BYTES];
    _buf_ struct buf b = {0};

    buf_printf(&b, "hold %s\n", entry_of(w, w->held, name) && !strchr(name, '\n') ? name : "");
    return tell(w, buf_str(&b));
}

static int start_child(struct lead_watch *w, struct error *e)
{
    int to[2], from[2], rc;

    if (pipe2(to, O_CLOEXEC) < 0) {
        return error_set(e, errno, "make a pipe");
    }
    if (pipe2(from, O_CLOEXEC) < 0) {
        rc = error_set(e, errno, "make a pipe");
        close(to[0]);
        close(to[1]);
        return rc;
    }
    w->in = to[1];
    fcntl(w->in, F_SETFL, O_NONBLOCK);
    rc = open_line(w, from[0]) < 0 ? error_set(e, ENOMEM, "watch checkpoints")
                                   : spawn(w, to[0], from[1], e);
    close(to[0]);
    close(from[1]);
    if (rc < 0) {
        close_line(w);
        return error_wrap(e, "watch %s", w->path);
    }
    await_word(w);
    if ((w->avoided[0] && !tell_avoided(w)) || (w->held[0] && !tell_held(w))) {
        agent_log(w->agent, "the watch over checkpoints does not listen");
    }
    return 0;
}

/* Silence, or time for another child. */
static void on_timer(uv_timer_t *t)
{
    struct lead_watch *w = t->data;
    struct error e = {0};

    if (w->pid > 0) {
        give_up(w, "the directory does not answer");
    } else if (start_child(w, &e) < 0) {
        agent_log(w->agent, "%s", e.text);
        uv_timer_start(&w->timer, on_timer, AGAIN_MS, 0);
    }
}

/* --- for the lead --- */

bool lead_watch_ask(struct lead_watch *w, const struct order *order,
                    const char *told, int64_t step)
{
    struct error e = {0};
    char words[64];
    unsigned n = 0;

    if (!w) {
        return false;
    }
    for (uint32_t i = 0; i < order->n_nodes; i++) {
        n += order->n_procs[i];
    }
    snprintf(words, sizeof(words), "choose\nranks %u\n", n);
    w->generation = order->generation;
    str_copy(w->told, sizeof(w->told), told);
    w->told_step = step;
    w->told_is_broken = false;
    w->n_others = 0;
    if (w->pid < 0 && start_child(w, &e) < 0) {
        event(w, "checkpoint_trouble", "%s", e.text);
        return false;
    }
    if (!tell(w, words)) {
        give_up(w, "nobody looks at it");
        return false;
    }
    w->is_asked = true;
    await_word(w);
    return true;
}

void lead_watch_avoid(struct lead_watch *w, const char *avoided)
{
    if (!w) {
        return;
    }
    str_copy(w->avoided, sizeof(w->avoided), avoided);
    if (w->pid > 0 && !tell_avoided(w)) {
        give_up(w, "nobody looks at it");
    }
}

void lead_watch_hold(struct lead_watch *w, const char *path)
{
    if (!w) {
        return;
    }
    str_copy(w->held, sizeof(w->held), path);
    if (w->pid > 0 && !tell_held(w)) {
        agent_log(w->agent, "the watch over checkpoints does not listen");
    }
}

bool lead_watch_finish(struct lead_watch *w, uint64_t limit_ms)
{
    struct error e = {0};

    if (!w || limit_ms == 0) {
        return false;
    }
    if (w->pid < 0 && start_child(w, &e) < 0) {
        event(w, "checkpoint_trouble", "%s", e.text);
        return false;
    }
    if (!tell(w, "finish\n")) {
        give_up(w, "nobody looks at it");
        return false;
    }
    w->is_finishing = true;
    last_wait_begin(w->wait, limit_ms);
    record_storing(w->record, w->path);
    await_word(w);
    return true;
}

bool lead_watch_forget(struct lead_watch *w)
{
    bool was_finishing = lead_watch_is_finishing(w);

    if (was_finishing) {
        event(w, "checkpoint_trouble", "%s: what was saved last has not been read: the run "
              "ends without", w->path);
        end_wait(w);
    }
    if (w) {
        w->is_asked = false;
    }
    return was_finishing;
}

bool lead_watch_is_finishing(const struct lead_watch *w)
{
    return w && w->is_finishing;
}

static void free_watch(uv_handle_t *h)
{
    free(h->data);
}

void lead_watch_destroy(struct lead_watch *w)
{
    if (w) {
        leave_child(w);
        last_wait_close(w->wait);
        uv_close((uv_handle_t *)&w->timer, free_watch);
    }
}

int lead_watch_create(struct agent *a, struct record *record,
                      const struct lead_watch_ops *ops, void *arg,
                      struct lead_watch **ret, struct error *e)
{
    const char *path = a->config.job->checkpoint.watch;
    struct lead_watch *w;
    int rc;

    if (!path) {
        return 0;
    }
    w = calloc(1, sizeof(*w));
    if (!w) {
        return error_set(e, ENOMEM, "watch %s", path);
    }
    w->wait = last_wait_create(&a->loop, on_wait, w);
    rc = w->wait ? outfit_path(a->config.job, a->config.cwd, path, w->path,
                               sizeof(w->path), e)
                 : error_set(e, ENOMEM, "watch %s", path);
    if (rc < 0) {
        last_wait_close(w->wait);
        free(w);
        return rc;
    }
    w->agent = a;
    w->record = record;
    w->ops = ops;
    w->arg = arg;
    w->in = w->pid = -1;
    uv_timer_init(&a->loop, &w->timer);
    w->timer.data = w;
    *ret = w;
    if (start_child(w, e) < 0) {
        lead_watch_destroy(w);
        *ret = NULL;
        return -e->code;
    }
    return 0;
}
