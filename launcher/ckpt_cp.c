/* SPDX-License-Identifier: Apache-2.0 */
/* muster ckpt cp from one directory into another. */
#include <config.h>

#include "launcher/ckpt_verbs.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/copy.h"
#include "launcher/ckpt_progress.h"
#include "launcher/ckpt_stop.h"
#include "launcher/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What became of it. */
struct cp {
    struct found f;
    struct found_facts facts;
    bool was_there;
    size_t there; /* of the path that it goes to: what was there before */
};

static int tell(const struct ckpt_options *o, const struct cp *c, const char *to)
{
    const struct found_facts *facts = &c->facts;
    char size[32];

    if (o->format == SHOW_JSON || o->format == SHOW_YAML) {
        _buf_ struct buf text = {0};
        struct jsonw w = jsonw_start(&text);

        jsonw_object(&w, NULL);
        ckpt_json_name(&w, c->f.name);
        if (c->f.has_step) {
            jsonw_int(&w, "step", (int64_t)c->f.step);
        }
        jsonw_int(&w, "files", (int64_t)facts->n_files);
        jsonw_int(&w, "bytes", (int64_t)facts->bytes);
        jsonw_bool(&w, "was_there", c->was_there);
        jsonw_end_object(&w);
        return show_json(&text, o->format);
    }
    ckpt_format_bytes(facts->bytes, size, sizeof(size));
    fprintf(stderr, "muster: %s %s in %llu file%s\n",
            c->was_there ? "it was there already, the same:"
            : o->is_dry  ? "would have copied" : "copied", size,
            (unsigned long long)facts->n_files, facts->n_files == 1 ? "" : "s");
    ckpt_print_name(to, c->f.name);
    return EXIT_OK;
}

/* About how many bytes it has; 0: nobody knows. */
static uint64_t bytes_of(int dir, const struct found *f)
{
    struct found_facts facts = {0};

    return found_check(io_system(), dir, f, false, &facts, NULL) == 0 ? facts.bytes : 0;
}

/* Where there is something under its name it is read, and held against what is to be
 * copied. */
static int look(int from, struct cp *c, int dir, const char *to, uint64_t bytes,
                struct error *e)
{
    struct ckpt_progress p;
    int rc = copy_is_there(ckpt_progress_start(&p, "comparing", c->f.name, 3 * bytes), from,
                           &c->f, dir, to, &c->facts, e);

    ckpt_progress_end(&p);
    c->was_there = rc == 1;
    return rc;
}

static int read_only(int from, struct cp *c, uint64_t bytes, struct error *e)
{
    struct ckpt_progress p;
    int rc = found_check(ckpt_progress_start(&p, "reading", c->f.name, bytes), from, &c->f,
                         true, &c->facts, e);

    ckpt_progress_end(&p);
    return rc;
}

/* COMMIT says what of muster's own is copied. */
static void count(int from, struct cp *c)
{
    if (c->f.kind != FOUND_MUSTER) {
        copy_count(from, &c->f, &c->facts);
    }
}

static int copy(bool is_dry, int from, struct cp *c, const char *to, struct error *e)
{
    struct ckpt_progress p;
    uint64_t bytes = bytes_of(from, &c->f);
    _close_ int dir = -1;
    int rc = is_dry ? 0 : ckpt_place_make(to, &c->there, e);

    if (rc < 0) {
        return rc;
    }
    dir = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && !(is_dry && errno == ENOENT)) {
        return error_set(e, errno, "open %s", to);
    }
    rc = dir < 0 ? 0 : look(from, c, dir, to, bytes, e);
    if (rc != 0 || is_dry) {
        return rc != 0 ? rc : read_only(from, c, bytes, e);
    }
    /* It is read to be copied, and the copy to be verified. */
    rc = copy_checkpoint(ckpt_progress_start(&p, "copying", c->f.name, 2 * bytes), from,
                         &c->f, dir, to, &c->facts, e);
    ckpt_progress_end(&p);
    return rc;
}

/* What was whole there before, or could not be looked at, has stayed. */
static int say_stopped(const char *to, const char *name, struct error *e)
{
    char path[PATH_MAX];

    return fs_path(path, sizeof(path), NULL, "%s/%s", to, name) == 0 &&
                   faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0
               ? error_text(e, ECANCELED, "ended by a signal: what was in %s as %s is "
                            "still there", to, name)
               : error_text(e, ECANCELED, "ended by a signal, and nothing is left in %s",
                            to);
}

int ckpt_verb_cp(const struct ckpt_options *o, const char *from, const char *to)
{
    struct cp c = {.there = strlen(to)};
    struct error e = {0};
    _close_ int from_fd = ckpt_place_find(from, &c.f, &e);
    int rc = from_fd < 0 ? from_fd : copy_check_place(from_fd, &c.f, to, &e), status;

    rc = rc < 0 ? rc : ckpt_place_refuse_itself(to, &e);
    rc = rc < 0 ? rc : ckpt_place_refuse_renamed(from_fd, c.f.name, &e);
    ckpt_stop_begin();
    rc = rc < 0 ? rc : copy(o->is_dry, from_fd, &c, to, &e);
    if (rc >= 0) {
        count(from_fd, &c);
    }
    if (rc < 0 && ckpt_stop_came()) {
        say_stopped(to, c.f.name, &e);
    }
    if (rc < 0) {
        ckpt_place_unmake(to, c.there);
        error_wrap(&e, "not copied");
        status = command_fail(&e);
    } else {
        status = tell(o, &c, to);
    }
    ckpt_stop_end();
    return status;
}
