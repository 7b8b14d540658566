/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rank_meet.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 10,
    MAX_PAUSE_MS = 500,
    MAX_NOTE_BYTES = 256,       /* r<rank> */
    MAX_PUTS = 3,
    MAX_LIST_BYTES = 64 << 20,
};

struct meeting {
    const struct rank_meet *ask;
    struct meet_node self; /* where it speaks for its node */
    struct meet_list all;  /* rank 0: who came */
    pid_t parent;
    uint64_t until_ms;
    int pause_ms;
};

void rank_meet_dirs(const struct strlist *env, const struct rank_place *place,
                    struct strlist *to)
{
    const char *bases[] = {strlist_getenv(env, place->starter == RANK_BY_MPIRUN
                                                   ? "OMPI_MCA_initial_wdir"
                                                   : "SLURM_SUBMIT_DIR"),
                           strlist_getenv(env, "HOME")};

    for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
        if (bases[i] && bases[i][0] == '/' &&
            (i == 0 || !bases[0] || strcmp(bases[0], bases[i]) != 0)) {
            strlist_addf(to, "%s/.muster-mpi-%016llx", bases[i],
                         (unsigned long long)place->launch_id);
        }
    }
}

/* --- a directory --- */

/* Somebody else's would have us believe anything. */
static int check_dir(const char *dir, struct error *e)
{
    struct stat st;

    if (lstat(dir, &st) < 0) {
        return error_set(e, errno, "look at %s", dir);
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & 077)) {
        return error_text(e, EPERM, "%s is no private directory of this user: "
                          "remove it", dir);
    }
    return 0;
}

static int make_dir(const char *dir, struct error *e)
{
    if (mkdir(dir, 0700) < 0 && errno != EEXIST) {
        return error_set(e, errno, "make directory %s", dir);
    }
    return check_dir(dir, e);
}

/* Rank 0, which comes when it comes, empties the directory: a file that is being
 * written is gone then, and is written again. */
static int put(const char *dir, const char *name, const struct buf *b,
               struct error *e)
{
    char path[PATH_MAX];
    int rc = fs_path(path, sizeof(path), e, "%s/%s", dir, name);

    if (rc == 0 && b->failed) {
        rc = error_set(e, ENOMEM, "write %s", path);
    }
    for (int i = 0; rc == 0 && i < MAX_PUTS; i++) {
        int put_rc = fs_write_replace(path, b->data, b->len, e);

        if (put_rc != -ENOENT) {
            return put_rc;
        }
    }
    return rc < 0 ? rc : -ENOENT;
}

static int get(const char *dir, const char *name, size_t max,
               struct meet_list *ret)
{
    _free_ char *text = NULL;
    char path[PATH_MAX];
    size_t len;
    int rc = fs_path(path, sizeof(path), NULL, "%s/%s", dir, name);

    rc = rc < 0 ? rc : fs_read_regular(path, max, &text, &len, NULL);
    return rc < 0 ? rc : meet_list_parse(text, ret);
}

/* Files named by a letter and a rank. NULL in `take`: only counts. */
static unsigned each_rank(const char *dir, char letter,
                          void take(struct meeting *, const char *dir,
                                    const char *name), struct meeting *m)
{
    DIR *d = check_dir(dir, NULL) == 0 ? opendir(dir) : NULL;
    const struct dirent *entry;
    unsigned n = 0;
    uint64_t rank;

    while (d && (entry = readdir(d))) {
        if (entry->d_name[0] == letter &&
            str_to_u64(entry->d_name + 1, &rank) == 0) {
            n++;
            if (take) {
                take(m, dir, entry->d_name);
            }
        }
    }
    if (d) {
        closedir(d);
    }
    return n;
}

/* --- rank 0 --- */

static void empty(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    char path[PATH_MAX];

    while (d && (entry = readdir(d))) {
        if (entry->d_name[0] != '.' &&
            fs_path(path, sizeof(path), NULL, "%s/%s", dir,
                    entry->d_name) == 0) {
            unlink(path);
        }
    }
    if (d) {
        closedir(d);
    }
}

static void take_note(struct meeting *m, const char *dir, const char *name)
{
    _meet_list_ struct meet_list note = {0};

    for (uint32_t i = 0; i < m->all.n; i++) {
        if (m->all.nodes[i].rank == strtoul(name + 1, NULL, 10)) {
            return;
        }
    }
    if (get(dir, name, MAX_NOTE_BYTES, &note) == 0 && note.n == 1) {
        meet_list_add(&m->all, &note.nodes[0]);
    }
}

static int open_meeting(struct meeting *m, struct error *e)
{
    const struct strlist *dirs = m->ask->dirs;
    size_t n = 0;

    for (size_t i = 0; i < dirs->n; i++) {
        if (make_dir(dirs->items[i], e) == 0) {
            empty(dirs->items[i]);
            rank_meet_sweep(dirs->items[i]);
            n++;
        }
    }
    return n ? 0 : -e->code;
}

static int publish(struct meeting *m, struct rank_met *ret, struct error *e)
{
    const struct rank_meet *ask = m->ask;
    _buf_ struct buf b = {0};
    size_t n = 0;

    str_copy(m->all.addr, sizeof(m->all.addr), ask->addr);
    m->all.port = ask->port;
    meet_list_print(&m->all, &b);
    for (size_t i = 0; i < ask->dirs->n; i++) {
        n += put(ask->dirs->items[i], "all", &b, e) == 0;
    }
    if (n == 0) {
        return -e->code;
    }
    *ret = (struct rank_met){.n_nodes = m->all.n, .port = ask->port};
    str_copy(ret->addr, sizeof(ret->addr), ask->addr);
    return 1;
}

/* 1 when all are there. */
static int gather(struct meeting *m, struct rank_met *ret, struct error *e)
{
    for (size_t i = 0; i < m->ask->dirs->n; i++) {
        each_rank(m->ask->dirs->items[i], 'r', take_note, m);
    }
    return meet_list_ranks(&m->all) == m->ask->place->world
               ? publish(m, ret, e) : 0;
}

/* --- the others --- */

/* Again where rank 0 has thrown it out. */
static int leave_note(struct meeting *m, struct error *e)
{
    struct meet_list note = {.nodes = &m->self, .n = 1};
    _buf_ struct buf b = {0};
    const struct strlist *dirs = m->ask->dirs;
    size_t n = 0;
    char name[32];

    meet_list_print(&note, &b);
    snprintf(name, sizeof(name), "r%u", (unsigned)m->self.rank);
    for (size_t i = 0; i < dirs->n; i++) {
        _meet_list_ struct meet_list was = {0};
        const char *dir = dirs->items[i];

        n += make_dir(dir, e) == 0 &&
             ((get(dir, name, MAX_NOTE_BYTES, &was) == 0 && was.n == 1 &&
               was.nodes[0].nonce == m->self.nonce) ||
              put(dir, name, &b, e) == 0);
    }
    return n ? 0 : -e->code;
}

static bool is_ours(const struct meeting *m, const struct meet_node *node)
{
    return m->ask->place->local_rank == 0 ? node->nonce == m->self.nonce
                                          : node->daemon == m->self.daemon;
}

static bool find_self(const struct meeting *m, const char *dir,
                      struct rank_met *ret)
{
    _meet_list_ struct meet_list all = {0};
    struct buf none = {0};
    char name[32];

    if (check_dir(dir, NULL) < 0 ||
        get(dir, "all", MAX_LIST_BYTES, &all) < 0) {
        return false;
    }
    for (uint32_t i = 0; i < all.n; i++) {
        if (is_ours(m, &all.nodes[i])) {
            *ret = (struct rank_met){.node = i, .n_nodes = all.n,
                                     .port = all.port};
            str_copy(ret->addr, sizeof(ret->addr), all.addr);
            snprintf(name, sizeof(name), "g%u",
                     (unsigned)m->ask->place->rank);
            put(dir, name, &none, NULL);
            return true;
        }
    }
    return false;
}

static int look(struct meeting *m, struct rank_met *ret, struct error *e)
{
    int rc = m->ask->place->local_rank == 0 ? leave_note(m, e) : 0;

    for (size_t i = 0; rc == 0 && i < m->ask->dirs->n; i++) {
        rc = find_self(m, m->ask->dirs->items[i], ret);
    }
    return rc;
}

/* --- both --- */

static void rest(struct meeting *m)
{
    poll(NULL, 0, m->pause_ms);
    m->pause_ms = m->pause_ms * 2 < MAX_PAUSE_MS ? m->pause_ms * 2
                                                 : MAX_PAUSE_MS;
}

static int give_up(const struct meeting *m, struct error *e)
{
    const struct rank_place *place = m->ask->place;
    const struct strlist *dirs = m->ask->dirs;
    char who[64] = "rank 0 is not seen";

    if (place->rank == 0) {
        snprintf(who, sizeof(who), "%llu of %u ranks %s seen",
                 (unsigned long long)meet_list_ranks(&m->all), place->world,
                 meet_list_ranks(&m->all) == 1 ? "is" : "are");
    }
    return error_text(e, ETIMEDOUT, "%s in %s%s%s after %llu s "
                      "(--gang-timeout): start mpirun in a directory that all "
                      "nodes share, or the program by `muster run --hosts ... "
                      "-- mpirun -n %u PROGRAM`, which needs none", who,
                      dirs->items[0], dirs->n > 1 ? " or " : "",
                      dirs->n > 1 ? dirs->items[1] : "",
                      (unsigned long long)m->ask->timeout_ms / 1000,
                      place->world);
}

static int wait_for_others(struct meeting *m, struct rank_met *ret,
                           struct error *e)
{
    bool leads = m->ask->place->rank == 0;
    int rc = leads ? open_meeting(m, e) : 0;

    while (rc == 0) {
        rc = leads ? gather(m, ret, e) : look(m, ret, e);
        if (rc == 0 && clock_mono_ms() >= m->until_ms) {
            rc = give_up(m, e);
        } else if (rc == 0 && getppid() != m->parent) {
            rc = error_text(e, ERR_LOST, "mpirun, or its daemon here, is gone");
        } else if (rc == 0) {
            rest(m);
        }
    }
    return rc < 0 ? rc : 0;
}

static struct meeting meeting_of(const struct rank_meet *ask)
{
    return (struct meeting){
        .ask = ask, .parent = getppid(), .pause_ms = FIRST_PAUSE_MS,
        .until_ms = clock_mono_ms() + ask->timeout_ms,
        .self = {.rank = ask->place->rank, .n_ranks = ask->place->local_world,
                 .daemon = ask->place->daemon},
    };
}

int rank_meet(const struct rank_meet *ask, struct rank_met *ret,
              struct error *e)
{
    struct meeting m = meeting_of(ask);
    int rc = 0;

    if (ask->dirs->n == 0) {
        return error_text(e, ENOENT, "no directory to meet ranks of other "
                          "nodes in: HOME is not set");
    }
    if (getrandom(&m.self.nonce, sizeof(m.self.nonce), 0) < 0) {
        return error_set(e, errno, "make a nonce");
    }
    if (ask->place->rank == 0 && !meet_list_add(&m.all, &m.self)) {
        return error_set(e, ENOMEM, "meet the others");
    }
    rc = wait_for_others(&m, ret, e);
    meet_list_release(&m.all);
    if (rc < 0 || ask->place->rank != 0) {
        rank_meet_clean(ask);
    }
    return rc;
}

void rank_meet_clean(const struct rank_meet *ask)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < ask->dirs->n; i++) {
        const char *dir = ask->dirs->items[i];

        if (check_dir(dir, NULL) < 0) {
            continue;
        }
        if (ask->place->rank == 0) {
            fs_remove_tree(dir, NULL);
        } else if (ask->place->local_rank == 0 &&
                   fs_path(path, sizeof(path), NULL, "%s/r%u", dir,
                           (unsigned)ask->place->rank) == 0) {
            unlink(path);
            rmdir(dir); /* where others of this launch do not come */
        }
    }
}

/* Or nobody can any more, because somebody has removed it. */
static bool all_have_read(const struct rank_meet *ask)
{
    unsigned n = 0, n_there = 0;

    for (size_t i = 0; i < ask->dirs->n; i++) {
        n += each_rank(ask->dirs->items[i], 'g', NULL, NULL);
        n_there += check_dir(ask->dirs->items[i], NULL) == 0;
    }
    return n >= ask->place->world - 1 || n_there == 0;
}

void rank_meet_end(const struct rank_meet *ask)
{
    struct meeting m = meeting_of(ask);

    while (!all_have_read(ask) && clock_mono_ms() < m.until_ms &&
           getppid() == m.parent) {
        rest(&m);
    }
    rank_meet_clean(ask);
}
