/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/watch.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/utf8.h"
#include "ckpt/avoided.h"
#include "ckpt/beside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { MAX_DEPTH = 8 };

void watch_release(struct watch *w)
{
    free(w->entries);
    w->entries = NULL;
    w->n = 0;
}

/* --- marks --- */

/* One file, as it is. No time is ever compared with a clock. */
static uint64_t mark_file(const char *name, const struct stat *st)
{
    const uint64_t facts[] = {
        XXH3_64bits(name, strlen(name)), (uint64_t)st->st_ino,
        (uint64_t)st->st_mode, S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
        (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec,
    };

    return XXH3_64bits(facts, sizeof(facts));
}

static int add_mark(int dir, const char *name, unsigned depth, uint64_t *mark);

static int add_names(int dir, const char *name, unsigned depth, uint64_t *mark)
{
    _close_ int fd = openat(dir, name,
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int rc = 0;

    if (!d) {
        return -errno;
    }
    take_fd(&fd);
    while (rc == 0 && (errno = 0, entry = readdir(d))) {
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0) {
            rc = add_mark(dirfd(d), entry->d_name, depth + 1, mark);
            rc = rc == -ENOENT ? 0 : rc; /* it is being written */
        }
    }
    rc = rc == 0 && !entry ? -errno : rc;
    closedir(d);
    return rc;
}

/* Sums, because names come in no order. */
static int add_mark(int dir, const char *name, unsigned depth, uint64_t *mark)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return -errno;
    }
    *mark += mark_file(name, &st) * (depth + 1);
    if (S_ISLNK(st.st_mode) && depth == 0) {
        return -ELOOP;
    }
    return S_ISDIR(st.st_mode) && depth < MAX_DEPTH
               ? add_names(dir, name, depth, mark) : 0;
}

int watch_mark(int dir, const char *name, uint64_t *ret)
{
    *ret = 0;
    return add_mark(dir, name, 0, ret);
}

/* Of what cannot be looked into, too, as far as it can: whoever checks it finds out. */
static int mark_of(int dir, const char *name, uint64_t *ret)
{
    int rc = watch_mark(dir, name, ret);

    return rc == -ENOENT || rc == -ELOOP ? rc : 0;
}

/* --- looking --- */

/* What the last look knew of it, where it is still the same. One that it did not know
 * is of the ranks that run now. */
static void recall(const struct watch *w, size_t *at, struct watch_entry *entry)
{
    while (*at < w->n &&
           found_compare(&w->entries[*at].found, &entry->found) < 0) {
        (*at)++;
    }
    if (*at == w->n ||
        found_compare(&w->entries[*at].found, &entry->found) != 0) {
        entry->found.world = w->has_looked ? w->world : 0;
        entry->is_new = w->has_looked;
        return;
    }
    entry->found.world = w->entries[*at].found.world;
    if (w->entries[*at].mark == entry->mark) {
        *entry = w->entries[*at];
        entry->is_still = true;
    } else {
        entry->is_new = true;
    }
}

/* Which are one together. What is not whole tells nothing of others, and what says itself
 * how many ranks there are needs no others. */
static int sort_sets(struct watch_entry *entries, size_t n)
{
    _free_ size_t *series = found_series(&entries->found, sizeof(*entries), n);
    _free_ struct found_set *sets = NULL;

    for (size_t i = 0; i < n; i++) {
        if (entries[i].is_checked && (entries[i].rc < 0 || entries[i].facts.is_counted)) {
            entries[i].found.n_ranks = 0;
        }
        if (entries[i].is_checked && entries[i].rc < 0) {
            entries[i].found.n_parts = 0;
        }
    }
    sets = series ? found_sets(&entries->found, sizeof(*entries), n, series) : NULL;
    for (size_t i = 0; i < n && sets; i++) {
        entries[i].series = series[i];
        entries[i].set = sets[i];
    }
    return sets ? 0 : -ENOMEM;
}

int watch_look(struct watch *w, int dir, struct error *e)
{
    _free_ struct found *all = NULL;
    _free_ struct watch_entry *entries = NULL;
    size_t n = 0, n_found = 0, at = 0;
    int rc = found_list(w->io, dir, &all, &n_found, e);

    if (rc < 0) {
        return rc;
    }
    entries = calloc(n_found + 1, sizeof(*entries));
    if (!entries) {
        return error_set(e, ENOMEM, "look at %zu checkpoints", n_found);
    }
    for (size_t i = 0; i < n_found; i++) {
        entries[n].found = all[i];
        if (!all[i].is_part &&
            mark_of(dir, all[i].name, &entries[n].mark) == 0) {
            recall(w, &at, &entries[n]);
            n++;
        }
    }
    if (sort_sets(entries, n) < 0) {
        return error_set(e, ENOMEM, "look at %zu checkpoints", n);
    }
    watch_release(w);
    w->entries = take_ptr(&entries);
    w->n = n;
    w->has_looked = true;
    return 0;
}

/* --- checking --- */

static bool is_whole(const struct watch_entry *entry)
{
    return entry->is_checked && entry->rc == 0;
}

/* Of several files that are one. */
static bool is_first(const struct watch *w, size_t i)
{
    return w->entries[i].set.first == 0 || w->entries[i].set.first == i + 1;
}

/* The next one after the i-th of what begins at the first; n: there is none. They are of
 * one step. */
static size_t next_of_set(const struct watch *w, size_t first, size_t i)
{
    const struct watch_entry *of = &w->entries[first];

    for (i++; i < w->n && of->set.first && w->entries[i].found.step == of->found.step; i++) {
        if (w->entries[i].set.first == of->set.first) {
            return i;
        }
    }
    return w->n;
}

static bool is_set_whole(const struct watch *w, size_t first)
{
    bool is = !w->entries[first].set.is_short;

    for (size_t i = first; i < w->n && is; i = next_of_set(w, first, i)) {
        is = is_whole(&w->entries[i]);
    }
    return is;
}

struct watch_entry *watch_next(struct watch *w, size_t n_whole)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n && n < n_whole; i++) {
        struct watch_entry *entry = &w->entries[i];

        if (entry->is_still && !entry->is_checked) {
            return entry;
        }
        n += is_first(w, i) && !entry->found.is_inside && is_set_whole(w, i);
    }
    return NULL;
}

void watch_settle(struct watch *w)
{
    for (size_t i = 0; i < w->n; i++) {
        w->entries[i].is_still = true;
    }
}

/* Unfinished, because of so many ranks only those below wrote a file. */
static bool lacks_ranks(const struct watch_entry *entry)
{
    return entry->is_checked && entry->rc == -ENOENT && entry->facts.n_ranks &&
           entry->facts.n_ranks < entry->found.world;
}

/* Where a second one lacks as many that is how it is: workers that do not train. Both
 * are to be checked again then. */
static bool learn_ranks(struct watch *w, const struct watch_entry *entry)
{
    bool is_custom = false;

    for (size_t i = 0; i < w->n && lacks_ranks(entry); i++) {
        const struct watch_entry *other = &w->entries[i];

        is_custom = is_custom ||
                    (other != entry && lacks_ranks(other) &&
                     other->found.world == entry->found.world &&
                     other->facts.n_ranks == entry->facts.n_ranks);
    }
    for (size_t i = 0; i < w->n && is_custom; i++) {
        if (lacks_ranks(&w->entries[i])) {
            w->entries[i].is_checked = false;
        }
        w->entries[i].found.world = 0;
    }
    w->world = is_custom ? 0 : w->world;
    return is_custom;
}

/* What a run says of one, and hands over, is text. */
static int refuse_name(const char *name, struct error *e)
{
    _buf_ struct buf text = {0};

    utf8_put_printable(&text, name, 200);
    return error_text(e, EILSEQ, "%s: its name is no UTF-8, so that no run can start from "
                      "it", buf_str(&text));
}

static int check(struct watch *w, int dir, struct watch_entry *entry)
{
    uint64_t mark = 0;

    entry->why = (struct error){0};
    entry->facts = (struct found_facts){0};
    entry->rc = !watch_can_say(entry) ? refuse_name(entry->found.name, &entry->why)
                                      : found_check(w->io, dir, &entry->found, true,
                                                    &entry->facts, &entry->why);
    if (mark_of(dir, entry->found.name, &mark) < 0 || mark != entry->mark) {
        entry->is_still = entry->is_checked = false;
        return error_text(&entry->why, EAGAIN, "%s is being written",
                          entry->found.name);
    }
    entry->is_checked = true;
    return entry->rc;
}

int watch_check(struct watch *w, int dir, struct watch_entry *entry)
{
    int rc = check(w, dir, entry);

    return learn_ranks(w, entry) ? check(w, dir, entry) : rc;
}

/* --- choosing --- */

/* Another one of the same program, as names say, that is whole. */
static const struct watch_entry *like_it(const struct watch *w,
                                         const struct watch_entry *entry,
                                         size_t *at)
{
    for (; *at < w->n; (*at)++) {
        const struct watch_entry *other = &w->entries[*at];

        if (other != entry && is_whole(other) &&
            beside_is_like(other->found.name, entry->found.name)) {
            return other;
        }
    }
    return NULL;
}

bool watch_can_say(const struct watch_entry *entry)
{
    return utf8_is_valid(entry->found.name);
}

bool watch_is_of_ours(const struct watch *w, const struct watch_entry *entry)
{
    size_t at = 0;

    return is_whole(entry) || like_it(w, entry, &at) != NULL;
}

static void add_proof(struct watch_entry *entry, const char *whole,
                      const char *what)
{
    struct error why = entry->why;

    error_text(&entry->why, why.code, "%s; %s, which is whole, has %s", why.text,
               whole, what);
}

/* Whether another one has as few kinds of files: then that may be how it is. */
static bool is_usual(const struct watch *w, const struct watch_entry *entry)
{
    for (size_t i = 0; i < w->n; i++) {
        const struct found *other = &w->entries[i].found;

        if (strcmp(other->name, entry->found.name) != 0 && other->n_parts > 0 &&
            other->n_parts <= entry->found.n_parts &&
            beside_is_like(other->name, entry->found.name)) {
            return true;
        }
    }
    return false;
}

bool watch_is_broken(const struct watch *w, int dir, struct watch_entry *entry)
{
    const struct watch_entry *other;
    char what[128];
    size_t at = 0;

    if (entry->found.kind == FOUND_MUSTER || !entry->found.has_step ||
        entry->found.is_inside || !entry->is_checked ||
        (entry->set.lacks_parts && is_usual(w, entry))) {
        return false;
    }
    if (entry->rc == -ERR_FORMAT) {
        return (entry->found.is_step && !entry->facts.is_foreign) ||
               like_it(w, entry, &at) != NULL;
    }
    for (; entry->rc == -ENOENT && (other = like_it(w, entry, &at)); at++) {
        if (found_lacks(w->io, dir, &entry->found, &other->found, what,
                        sizeof(what))) {
            add_proof(entry, other->found.name, what);
            return true;
        }
    }
    return false;
}

/* Something else with such a name: nobody wants to hear of it. */
static bool is_something_else(const struct watch *w,
                              const struct watch_entry *entry)
{
    return entry->facts.is_foreign && !watch_is_of_ours(w, entry);
}

size_t watch_count(const struct watch *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n; i++) {
        n += !is_something_else(w, &w->entries[i]);
    }
    return n;
}

/* Whether that name is avoided, or one of the files that are one with it. */
static bool is_avoided(const struct watch *w, size_t first)
{
    bool is = false;

    for (size_t i = first; i < w->n && !is; i = next_of_set(w, first, i)) {
        is = avoided_has_name(w->avoided, w->entries[i].found.name);
    }
    return is;
}

/* Of several files, as far as the first that is not. A directory may say itself that it
 * is not short. */
static bool check_set(struct watch *w, int dir, size_t first)
{
    bool is_short = w->entries[first].set.is_short;
    bool is = !is_short || !found_is_file(&w->entries[first].found);

    for (size_t i = first; i < w->n && is; i = next_of_set(w, first, i)) {
        struct watch_entry *entry = &w->entries[i];

        is = (entry->is_checked ? entry->rc : watch_check(w, dir, entry)) == 0;
    }
    return is && !is_short;
}

/* The newest that is whole and may be used; how many were looked at. */
static size_t find_whole(struct watch *w, int dir, struct watch_entry **ret)
{
    size_t n = 0;

    *ret = NULL;
    for (; n < w->n && !*ret; n++) {
        if (is_first(w, n) && !is_avoided(w, n) && check_set(w, dir, n)) {
            *ret = &w->entries[n];
        }
    }
    return n;
}

static size_t count_short(const struct watch *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n; i++) {
        n += w->entries[i].set.is_short;
    }
    return n;
}

/* What begins there and was passed over, file by file; those that are whole are not at
 * fault. */
static void tell_passed(struct watch *w, size_t first,
                        void (*on_passed)(void *arg, struct watch_entry *entry), void *arg)
{
    struct watch_entry lacking = w->entries[first];

    if (lacking.set.is_short && (!lacking.is_checked || lacking.rc == 0)) {
        lacking.is_checked = lacking.is_checked && lacking.set.lacks_parts;
        lacking.rc = found_tell_short(&lacking.found, &lacking.set, &lacking.why);
        on_passed(arg, &lacking);
        return;
    }
    for (size_t i = first; i < w->n; i = next_of_set(w, first, i)) {
        struct watch_entry *entry = &w->entries[i];

        if ((entry->is_checked ? entry->rc < 0 : entry->why.code > 0) &&
            !is_something_else(w, entry)) {
            on_passed(arg, entry);
        }
    }
}

int watch_choose(struct watch *w, int dir,
                 void (*on_passed)(void *arg, struct watch_entry *entry),
                 void *arg, struct watch_entry **ret, struct error *e)
{
    int rc = watch_look(w, dir, e);
    unsigned world = w->world;
    size_t n = 0, n_short;

    *ret = NULL;
    if (rc < 0) {
        return rc;
    }
    n = find_whole(w, dir, ret);
    n_short = count_short(w);
    if (sort_sets(w->entries, w->n) < 0) {
        return error_set(e, ENOMEM, "look at %zu checkpoints", w->n);
    }
    if (w->world != world || count_short(w) != n_short) { /* newer ones may be whole then */
        n = find_whole(w, dir, ret);
    }
    for (size_t i = 0; i < n; i++) {
        if (&w->entries[i] != *ret && is_first(w, i) && !is_avoided(w, i)) {
            tell_passed(w, i, on_passed, arg);
        }
    }
    return 0;
}
