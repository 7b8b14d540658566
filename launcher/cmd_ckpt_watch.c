/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster ckpt-watch: looks at the checkpoints that a program writes by itself, for
 * the agent that leads (launcher/agent_watch.h). A process of its own, because the
 * filesystem may hang: whoever hears nothing from it for some time does without it.
 *
 * On stdin it is told, a line each: "ranks N", how many will write from now on, and
 * asked: "choose"; "avoid NAME", not that one (AVOID_MAX at most), and "avoid", all again;
 * "hold NAME": that one is read by somebody, and stays; "hold ": none is;
 * "finish": nobody writes any more, nor will.
 * On stdout it says, a JSON object a line, by "op":
 *
 *   alive                     nothing new
 *   whole   path, kind, step, new  one that was verified; new: it was written since this
 *           looks, and since nobody is to start from what had that name
 *   passed  name, state, why, aside, aside_why   on "choose": one that is not whole
 *   chosen  n, path, step     the answer, of n; without a path: none is whole
 *           others, likely    and of n = 0 how many names there are of something else; likely:
 *                             some say a step or an epoch
 *           trouble           or it could not be looked at, as was told
 *   finished                  the answer: the newest that is whole was told
 *   removed text              one that is not to be kept
 *   trouble text              the directory cannot be read
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/found.h"
#include "ckpt/watch.h"
#include "launcher/ckpt_verbs.h"
#include "launcher/jsonw.h"
#include "launcher/options.h"
#include "rendezvous/avoid.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000,
    LOOK_SHARE = 20, /* of the time at most is spent on looking */
    ALIVE_MS = 1000,
};

/* Reading may take long: whoever waits is told that it goes on. */
struct alive {
    struct io io;
    struct io_ops ops;
    uint64_t last_ms; /* when it was said last */
};

struct keep_options {
    int64_t keep, every;
    const char *best;
    bool is_highest;
};

struct ckpt_watch {
    struct alive alive;
    const char *path;
    int dir; /* -1: it is not there */
    struct watch watch;
    const struct keep_options *keep;
    bool has_new; /* whole ones, or less to hold, since it was looked which are to be kept */
    char chosen[FOUND_NAME_BYTES]; /* workers may still read it */
    char held[FOUND_NAME_BYTES];
    char avoided[AVOID_LINES_BYTES];
    struct error trouble; /* that was said last */
    bool has_chosen;
};

#define AT(member) offsetof(struct keep_options, member)

static const struct option_def table[] = {
    {"keep", "N", "remove all but the newest N", OPTION_INT, AT(keep), NULL, 0},
    {"every", "N", "and those whose step is a multiple", OPTION_INT, AT(every),
     NULL, 0},
    {"best", "METRIC", "and the best one by that", OPTION_STR, AT(best), NULL, 0},
    {"highest", NULL, "of which the highest is best", OPTION_FLAG, AT(is_highest),
     NULL, 0},
    {0},
};

static const struct options options = {
    .command = "ckpt-watch",
    .usage = "[OPTION...] DIRECTORY",
    .about = "Looks at the checkpoints that a program writes; run by the agent "
             "that leads.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

/* --- saying --- */

static struct jsonw begin(struct buf *b, const char *op)
{
    struct jsonw w = jsonw_start(b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "op", op);
    return w;
}

static void say(struct jsonw *w)
{
    jsonw_end_object(w);
    buf_putc(w->to, '\n');
    if (w->to->failed || fs_write_all(STDOUT_FILENO, w->to->data,
                                      w->to->len) < 0) {
        exit(EXIT_FAILED); /* nobody listens any more */
    }
}

static void say_alive(struct alive *a)
{
    _buf_ struct buf b = {0};
    struct jsonw w;

    if (clock_mono_ms() - a->last_ms >= ALIVE_MS) {
        a->last_ms = clock_mono_ms();
        w = begin(&b, "alive");
        say(&w);
    }
}

static void say_trouble(struct ckpt_watch *c, const struct error *e)
{
    _buf_ struct buf b = {0};
    struct jsonw w;

    if (strcmp(c->trouble.text, e->text) != 0) {
        c->trouble = *e;
        w = begin(&b, "trouble");
        jsonw_str(&w, "text", e->text);
        say(&w);
    }
}

/* The directory could not be looked at. */
static void say_unseen(struct ckpt_watch *c, const struct error *e)
{
    struct error unseen;

    error_text(&unseen, e->code, "%s: checkpoints there are not seen", e->text);
    say_trouble(c, &unseen);
}

/* Where it is and of which step. */
static void put_place(struct jsonw *w, const struct ckpt_watch *c,
                      const struct watch_entry *entry)
{
    _buf_ struct buf path = {0};

    buf_printf(&path, "%s/%s", c->path, entry->found.name);
    jsonw_str(w, "path", buf_str(&path));
    jsonw_str(w, "kind", found_kind_name(entry->found.kind));
    if (entry->found.has_step) {
        jsonw_int(w, "step", (int64_t)entry->found.step);
    }
}

static void say_whole(const struct ckpt_watch *c, struct watch_entry *entry)
{
    _buf_ struct buf b = {0};
    struct jsonw w = begin(&b, "whole");

    put_place(&w, c, entry);
    jsonw_int(&w, "bytes", (int64_t)entry->facts.bytes);
    jsonw_bool(&w, "new", entry->is_new);
    say(&w);
    entry->is_told = true;
}

static ssize_t read_alive(struct io *io, int fd, void *to, size_t len,
                          uint64_t at)
{
    say_alive((struct alive *)io);
    return io_system()->ops->read(io_system(), fd, to, len, at);
}

/* --- the directory --- */

static bool is_same(int fd, const char *path)
{
    struct stat here, there;

    return fd >= 0 && stat(path, &there) == 0 && fstat(fd, &here) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

/* Another run may write there, too, and what is broken to us may be unfinished to
 * it. The lock goes with this process. Where there are no locks on directories (on
 * NFS) nobody knows of the other. */
static bool is_ours(int dir)
{
    return flock(dir, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/* The program makes it when it likes, and may make it anew. What is kept there nobody
 * removes by hand, from the first look on. */
static int open_directory(struct ckpt_watch *c, struct error *e)
{
    if (!is_same(c->dir, c->path)) {
        close_fd(&c->dir);
        c->dir = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (c->dir < 0) {
        return error_set(e, errno, "open %s", c->path);
    }
    if (c->keep->keep > 0) {
        (void)is_ours(c->dir);
    }
    return 0;
}

static void remove_one(void *arg, const struct watch_entry *entry)
{
    struct ckpt_watch *c = arg;
    _buf_ struct buf b = {0}, text = {0};
    struct error e = {0};
    struct jsonw w;

    if (watch_remove(c->dir, c->path, entry->found.name, &e) < 0) {
        say_trouble(c, &e);
        return;
    }
    w = begin(&b, "removed");
    buf_printf(&text, "%s/%s is not kept any longer", c->path,
               entry->found.name);
    jsonw_str(&w, "text", buf_str(&text));
    say(&w);
}

static void keep_some(struct ckpt_watch *c)
{
    const struct retain_rule rule = {
        .keep = (uint64_t)c->keep->keep, .every = (uint64_t)c->keep->every,
        .is_highest = c->keep->is_highest};
    struct error e = {0};

    if (c->keep->keep > 0 && is_ours(c->dir)) {
        if (watch_sweep(c->dir, c->path, &e) < 0) {
            say_trouble(c, &e);
        }
        if (watch_retain(&c->watch, c->dir, &rule, c->keep->best, c->chosen, remove_one,
                         c) == -ENODATA) {
            error_text(&e, ENODATA, "none in %s has a metric '%s', by which the best is to "
                       "stay (checkpoint.prune.best): older ones go as if there were none", c->path,
                       c->keep->best);
            say_trouble(c, &e);
        }
    }
}

/* Of several files that are written one after the other each is whole as it comes: what
 * older ones have is awaited. Older ones go after each that was found whole: where one comes
 * for each look there is no time at which all are known. */
static void look(struct ckpt_watch *c)
{
    struct error e = {0};
    struct watch_entry *entry;
    bool is_settled;

    if (open_directory(c, &e) < 0 || watch_look(&c->watch, c->dir, &e) < 0) {
        if (e.code != ENOENT) {
            say_unseen(c, &e);
        }
        c->watch.has_looked |= e.code == ENOENT; /* there was nothing */
        watch_release(&c->watch);
        return;
    }
    entry = watch_next(&c->watch, c->keep->keep > 1 ? (size_t)c->keep->keep : 1);
    is_settled = !entry;
    if (entry && watch_check(&c->watch, c->dir, entry) == 0) {
        if (!entry->set.lacks_parts) {
            say_whole(c, entry);
            c->has_new = is_settled = true;
        }
    }
    if (is_settled && c->has_new) {
        c->has_new = false;
        keep_some(c);
    }
}

/* --- choosing --- */

static void set_aside(struct ckpt_watch *c, const struct watch_entry *entry,
                      struct jsonw *w)
{
    char to[FOUND_NAME_BYTES];
    struct error e = {0};

    if (!is_ours(c->dir)) {
        jsonw_str(w, "aside_why", "another run watches this directory");
    } else if (watch_set_aside(c->dir, entry->found.name, entry->why.text, to,
                               &e) < 0) {
        jsonw_str(w, "aside_why", e.text);
    } else {
        jsonw_str(w, "aside", to);
    }
}

static void on_passed(void *arg, struct watch_entry *entry)
{
    struct ckpt_watch *c = arg;
    _buf_ struct buf b = {0};
    struct jsonw w = begin(&b, "passed");
    bool is_broken = watch_is_broken(&c->watch, c->dir, entry);

    jsonw_str(&w, "name", entry->found.name);
    jsonw_str(&w, "state", found_state_name(entry->rc));
    jsonw_str(&w, "why", entry->why.text);
    if (is_broken) {
        set_aside(c, entry, &w);
    }
    say(&w);
}

/* Again for each generation, but not beside what a look before the first one has told. */
static void say_unchosen(struct ckpt_watch *c, const struct error *e)
{
    if (c->has_chosen) {
        c->trouble = (struct error){0};
    }
    say_unseen(c, e);
}

/* Whoever names the checkpoint to start from finds nothing in it, and would not hear why. A
 * directory whose name says no step may have a model beside what is saved there. */
static bool say_itself(struct ckpt_watch *c)
{
    _close_ int above = -1;
    struct found_facts facts;
    struct found f = {0};
    struct error e = {0};

    if (ckpt_place_itself(c->path, &above, &f, NULL) <= 0 || !f.is_step ||
        found_check(io_system(), above, &f, false, &facts, NULL) < 0) {
        return false;
    }
    error_text(&e, EINVAL, "%s is a checkpoint itself, and none is in it: expected the "
               "directory that it is in (checkpoint.watch)", c->path);
    say_trouble(c, &e);
    return true;
}

/* What is there is not known here, or nothing is. */
static void put_others(struct jsonw *w, const struct ckpt_watch *c)
{
    size_t n = 0, n_likely = 0;

    if (watch_count(&c->watch) == 0 &&
        found_count_names(io_system(), c->dir, &n, &n_likely) == 0 && n > 0) {
        jsonw_int(w, "others", (int64_t)n);
        jsonw_bool(w, "likely", n_likely > 0);
    }
}

static void choose(struct ckpt_watch *c)
{
    struct watch_entry *entry = NULL;
    _buf_ struct buf b = {0};
    struct error e = {0};
    bool is_itself = false;
    struct jsonw w;
    int rc = open_directory(c, &e);

    if (rc < 0) {
        watch_release(&c->watch);
    } else {
        rc = watch_choose(&c->watch, c->dir, on_passed, c, &entry, &e);
    }
    if (rc < 0 && e.code != ENOENT) {
        say_unchosen(c, &e);
    } else if (rc == 0 && !entry) {
        is_itself = say_itself(c);
    }
    c->has_chosen = true;
    w = begin(&b, "chosen");
    jsonw_int(&w, "n", (int64_t)watch_count(&c->watch));
    if (rc < 0 && e.code != ENOENT) {
        jsonw_bool(&w, "trouble", true);
    } else if (entry) {
        put_place(&w, c, entry);
    } else if (rc == 0 && !is_itself) {
        put_others(&w, c);
    }
    str_copy(c->chosen, sizeof(c->chosen), entry ? entry->found.name : "");
    say(&w);
}

/* --- the end --- */

/* Of those that stay by the rule only what is whole counts. */
static void keep_last(struct ckpt_watch *c)
{
    struct watch_entry *entry;

    watch_settle(&c->watch);
    do {
        entry = watch_next(&c->watch, (size_t)c->keep->keep);
        if (entry) {
            watch_check(&c->watch, c->dir, entry);
        }
    } while (entry && entry->is_checked);
    c->has_new = false;
    keep_some(c);
}

/* What is not whole may be looked into, or written on, by whoever comes next. */
static void on_left(void *arg, struct watch_entry *entry)
{
    (void)arg;
    (void)entry;
}

static void finish(struct ckpt_watch *c)
{
    struct watch_entry *entry = NULL;
    _buf_ struct buf b = {0};
    struct error e = {0};
    struct jsonw w;
    int rc = open_directory(c, &e);

    rc = rc < 0 ? rc : watch_choose(&c->watch, c->dir, on_left, c, &entry, &e);
    if (rc < 0 && e.code != ENOENT) {
        say_unseen(c, &e);
    }
    if (entry && !entry->is_told) {
        say_whole(c, entry);
        c->has_new = true;
    }
    if (rc == 0 && c->has_new && c->keep->keep > 0) {
        keep_last(c);
    }
    w = begin(&b, "finished");
    say(&w);
}

/* --- the loop --- */

static void avoid(struct ckpt_watch *c, const char *name)
{
    size_t at = strlen(c->avoided);
    int n = snprintf(c->avoided + at, sizeof(c->avoided) - at, "/%s\n", name);

    if (n < 0 || (size_t)n >= sizeof(c->avoided) - at) {
        c->avoided[at] = '\0';
    }
    for (size_t i = 0; i < c->watch.n; i++) {
        struct watch_entry *entry = &c->watch.entries[i];

        entry->is_new = entry->is_new && strcmp(entry->found.name, name) != 0;
    }
}

static void take_line(struct ckpt_watch *c, const char *line)
{
    static const char ranks[] = "ranks ", one[] = "avoid ", hold[] = "hold ";
    uint64_t n = 0;

    if (strcmp(line, "choose") == 0) {
        choose(c);
    } else if (strcmp(line, "finish") == 0) {
        finish(c);
    } else if (strcmp(line, "avoid") == 0) {
        c->avoided[0] = '\0';
    } else if (str_starts(line, one)) {
        avoid(c, line + strlen(one));
    } else if (str_starts(line, hold)) {
        c->has_new |= c->held[0] != '\0'; /* that may go now */
        str_copy(c->held, sizeof(c->held), line + strlen(hold));
    } else if (str_starts(line, ranks) &&
               str_to_u64(line + strlen(ranks), &n) == 0 && n <= UINT_MAX) {
        c->watch.world = (unsigned)n;
    }
}

/* False: nobody asks any more. Lines are short, and come whole. */
static bool take_words(struct ckpt_watch *c)
{
    char text[4096], *rest = text;
    ssize_t n = read(STDIN_FILENO, text, sizeof(text) - 1);

    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    text[n] = '\0';
    for (char *line; (line = strsep(&rest, "\n"));) {
        take_line(c, line);
    }
    return true;
}

static int run_watch(struct ckpt_watch *c)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t next_ms = 0, began_ms, took_ms;

    for (;;) {
        int n = poll(&p, 1, next_ms ? LOOK_MS : 0);

        if (n > 0 && !take_words(c)) {
            return EXIT_OK;
        }
        began_ms = clock_mono_ms();
        if (began_ms >= next_ms) {
            look(c);
            took_ms = (clock_mono_ms() - began_ms) * LOOK_SHARE;
            next_ms = clock_mono_ms() + (took_ms > LOOK_MS ? took_ms : LOOK_MS);
        }
        say_alive(&c->alive);
    }
}

int cmd_ckpt_watch(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct keep_options keep = {0};
    int status = options_start(&options, argc, argv, &keep, &args);
    struct ckpt_watch c = {.dir = -1, .keep = &keep,
                           .alive.ops = *io_system()->ops};

    if (status >= 0) {
        return status;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    c.alive.ops.read = read_alive;
    c.alive.io.ops = &c.alive.ops;
    c.watch.io = &c.alive.io;
    c.watch.avoided = c.avoided;
    c.watch.held = c.held;
    c.path = args.words.items[0];
    status = run_watch(&c);
    watch_release(&c.watch);
    close_fd(&c.dir);
    return status;
}
