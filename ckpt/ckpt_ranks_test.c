/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C API by ranks that are threads: who differs from the others is told, and what any
 * number of them has saved any other number loads.
 */
#include <config.h>

#include "ckpt/api_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[API_BED_ROOT_BYTES];

static int expected[TEAM_MAX];
static char texts[TEAM_MAX][512];

/* Counts how much all tell each other at once. */
struct counted {
    const struct muster_ckpt_group *group;
    size_t most;
};

static int gather_counted(void *arg, const void *mine, void *all, size_t len)
{
    struct counted *c = arg;

    c->most = len > c->most ? len : c->most;
    return c->group->allgather(c->group->arg, mine, all, len);
}

static size_t most_at_once[TEAM_MAX];

static void save_differently(void *arg, const struct muster_ckpt_group *given)
{
    struct counted counted = {.group = given};
    const struct muster_ckpt_group own = {.rank = given->rank, .world = given->world,
                                          .allgather = gather_counted, .arg = &counted};
    const struct muster_ckpt_group *group = &own;
    struct muster_ckpt *ck = api_bed_open(root, "differ", group, NULL);
    const char *what = arg;
    const uint64_t shape[1] = {4}, other[1] = {5}, at[1] = {2}, len[1] = {2};
    float w[5] = {0};
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32,
                                   .n_dims = 1, .shape = shape, .data = w};
    char same[2] = {'x', (char)group->rank}, zeros[901] = {0}, json[] = "{\"j\":1}";
    char names[70][8], one[] = "1", two[] = "2";
    int64_t step = 1;
    unsigned flags = 0;

    if (strcmp(what, "shape") == 0 && group->rank == 1) {
        t.shape = other;
    }
    if (strcmp(what, "overlap") == 0 && group->rank == 1) {
        t.at = at;
        t.len = len;
    }
    if (strcmp(what, "step") == 0) {
        step = group->rank;
    }
    muster_ckpt_tensor(ck, &t);
    if (strcmp(what, "blob") == 0) {
        muster_ckpt_blob(ck, "b", same, 2, MUSTER_REPLICATED);
    }
    if (strcmp(what, "longer") == 0) {
        muster_ckpt_blob(ck, "a", same, 1, MUSTER_REPLICATED);
        muster_ckpt_blob(ck, "b", zeros, group->rank == 2 ? 901 : 900, MUSTER_REPLICATED);
    }
    if (strcmp(what, "json") == 0) {
        json[2] = group->rank == 1 ? 'k' : 'j';
        muster_ckpt_blob(ck, "j", json, strlen(json), MUSTER_JSON);
    }
    if (strcmp(what, "more") == 0 && group->rank == 2) {
        muster_ckpt_blob(ck, "one more", json, strlen(json), MUSTER_JSON);
    }
    if (strcmp(what, "many") == 0) {
        for (int i = 0; i < 70; i++) {
            snprintf(names[i], sizeof(names[i]), "n%d", i);
            muster_ckpt_blob(ck, names[i], i == 69 && group->rank == 2 ? two : one, 1,
                             MUSTER_JSON);
        }
    }
    if (strcmp(what, "lazily") == 0 && group->rank == 1) {
        flags = MUSTER_CKPT_LAZY;
    }
    if (strcmp(what, "list") == 0 && group->rank == 2) {
        muster_ckpt_blob(ck, "b", same, 2, MUSTER_PER_RANK);
    }
    if (strcmp(what, "death") == 0 && group->rank == 1) {
        muster_ckpt_close(ck);
        return;
    }
    if (strcmp(what, "refuse") == 0 && group->rank == 1) {
        muster_ckpt_clear(ck);
        flags = MUSTER_CKPT_REFUSE;
        step = 0;
    }
    expected[group->rank] = muster_ckpt_save(ck, step, flags, NULL);
    snprintf(texts[group->rank], sizeof(texts[0]), "%s",
             muster_ckpt_error_text(ck));
    muster_ckpt_close(ck);
    most_at_once[group->rank] = counted.most;
}

static void test_differ(void)
{
    static const struct {
        const char *what;
        int rc;
        const char *text;
    } cases[] = {
        {"shape", -EINVAL, "tensor 'w': [0:4] of rank 0 and [0:5] of rank 1 are "
                           "of tensors of different shapes"},
        {"overlap", -EINVAL, "tensor 'w': [0:4] of rank 0 and [2:4] of rank 1 "
                             "overlap"},
        {"step", -EINVAL, "ranks 0 and 1 do not make the same call: rank 0 saves step 0, and "
                          "rank 1 saves step 1: expected"},
        {"lazily", -EINVAL, "rank 0 saves step 1, and rank 1 saves step 1, lazily: expected"},
        {"blob", -EINVAL, "blob 'b' differs between rank 0 and rank 1 from byte 1 on"},
        {"longer", -EINVAL, "blob 'b' differs between rank 0 and rank 2 from byte 900 on"},
        {"json", -EINVAL, "blob 'j' differs between rank 0 and rank 1 from byte 2 on"},
        {"many", -EINVAL, "blob 'n69' differs between rank 0 and rank 2 from byte 0 on"},
        {"more", -EINVAL, "blob 'one more': rank 2 has it, and rank 0 has not"},
        {"list", -EINVAL, "blob 'b': ranks 0 and 2 have not"},
        {"refuse", -ECANCELED, "rank 1: it cannot save what it should"},
        {"death", -ECONNABORTED, "the others cannot be heard of"},
        {"nothing", 0, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        memset(expected, 0, sizeof(expected));
        memset(texts, 0, sizeof(texts));
        team_run(3, false, save_differently, (void *)cases[i].what);
        is_int(expected[0], cases[i].rc, "%s: rank 0", cases[i].what);
        is_int(expected[2], cases[i].rc, "%s: rank 2", cases[i].what);
        like(texts[0], cases[i].text, "%s: what", cases[i].what);
        ok(most_at_once[0] <= 4096, "and of many ranks it would fit into memory: %zu bytes of "
           "each at once", most_at_once[0]);
    }
}

/* Of a step that saves, how it goes with nothing, with something of one rank alone, and with
 * nothing again. */
static void save_nothing(void *arg, const struct muster_ckpt_group *group)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 1};
    struct muster_ckpt *ck = api_bed_open(root, "nothing", group, &o);
    int32_t v = 7;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32, .data = &v};
    int *rcs = (int *)arg + 6 * group->rank;
    int64_t step = -1;

    rcs[0] = muster_ckpt_save(ck, 1, 0, NULL);
    snprintf(texts[group->rank], sizeof(texts[0]), "%s", muster_ckpt_error_text(ck));
    if (group->rank == 1) {
        muster_ckpt_tensor(ck, &t);
    }
    rcs[1] = muster_ckpt_save(ck, 2, 0, NULL);
    muster_ckpt_clear(ck);
    rcs[2] = muster_ckpt_save(ck, 3, MUSTER_CKPT_LAZY, NULL);
    rcs[3] = muster_ckpt_fence(ck);
    rcs[4] = muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step);
    rcs[5] = (int)step;
    muster_ckpt_close(ck);
}

/* What one rank has of its own. */
struct own {
    int rc[3], read_rc[3];
    char loaded[3], read[3];
    uint32_t n_saved; /* ranks */
};

static void keep_own(void *arg, const struct muster_ckpt_group *group)
{
    struct muster_ckpt *ck = api_bed_open(root, "own", group, NULL);
    struct own *o = arg;
    bool saves = (uint32_t)group->world == o->n_saved;
    int r = group->rank;
    char all = saves ? '1' : 'x', own = saves ? (char)('a' + r) : 'x';
    size_t len = 0;

    muster_ckpt_blob(ck, "all", &all, 1, MUSTER_REPLICATED);
    muster_ckpt_blob(ck, "own", &own, 1, MUSTER_PER_RANK);
    o->rc[r] = saves ? muster_ckpt_save(ck, 1, MUSTER_CKPT_WAIT, NULL)
                     : muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, NULL);
    o->loaded[r] = all == '1' ? own : '?';
    o->read_rc[r] = muster_ckpt_read_blob(ck, 1, "own", &o->read[r], 1, &len);
    snprintf(texts[r], sizeof(texts[0]), "%s", muster_ckpt_error_text(ck));
    muster_ckpt_close(ck);
}

/* Of more ranks than there were the others have what they have: nobody's else. */
static void test_own(void)
{
    struct own o = {.n_saved = 2};

    team_run(2, false, keep_own, &o);
    ok(o.rc[0] == 0 && o.rc[1] == 0, "two ranks save: %s", texts[0]);
    ok(o.read[0] == 'a' && o.read[1] == 'b', "each reads its own of that");
    team_run(3, false, keep_own, &o);
    ok(o.rc[0] == 0 && o.rc[1] == 0 && o.rc[2] == 0, "three ranks load: %s", texts[2]);
    ok(o.loaded[0] == 'a' && o.loaded[1] == 'b', "who was there has its own");
    ok(o.loaded[2] == 'x', "who was not has what it had");
    is_int(o.read_rc[2], -ENODATA, "and nothing to read");
    like(texts[2], "blob 'own' is not in it", "which is told");
    team_run(1, false, keep_own, &o);
    ok(o.rc[0] == 0 && o.loaded[0] == 'a', "one alone has that of the first");
}

/* An empty one would be the newest, and the ones before would go for it. */
/* Closed before all ranks have met at a fence. */
static void save_and_leave(void *arg, const struct muster_ckpt_group *group)
{
    struct muster_ckpt *ck = api_bed_open(root, "left", group, NULL);
    int32_t v = 1;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32, .data = &v};
    int *rcs = arg;

    rcs[group->rank] = muster_ckpt_tensor(ck, &t) |
                       muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL);
    muster_ckpt_close(ck);
}

static void test_left(void)
{
    char pattern[API_BED_ROOT_BYTES + 32];
    int rcs[2] = {-1, -1};
    glob_t found = {0};

    team_run(2, false, save_and_leave, rcs);
    ok(rcs[0] == 0 && rcs[1] == 0, "a lazy save of two ranks, which both close it at once");
    snprintf(pattern, sizeof(pattern), "%s/left/step-*", root);
    is_int(glob(pattern, 0, NULL, &found), GLOB_NOMATCH, "comes to nothing, which leaves nothing");
    globfree(&found);
}

static void test_nothing(void)
{
    static const char *const what[6] = {"nothing", "something of one rank", "lazily nothing",
                                        "with no fence to come", "the newest", "is that one"};
    static const int should[6] = {-EINVAL, 0, -EINVAL, 0, 0, 2};
    int rcs[2][6];

    team_run(2, false, save_nothing, rcs);
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 6; i++) {
            is_int(rcs[r][i], should[i], "rank %d: %s", r, what[i]);
        }
        is_str(texts[r], "save step 1: nothing is registered to be saved on any rank", "said");
    }
}

/* What is in the place of the directory, by what rank 0 does; all wait for that. */
static void put_there(const struct muster_ckpt_group *group, const char *from, const char *to)
{
    char a[5000], b[5000];
    int done[2];

    snprintf(a, sizeof(a), "%s/%s", root, from ? from : to);
    snprintf(b, sizeof(b), "%s/%s", root, to);
    if (group->rank == 0 && (from ? rename(a, b) : mkdir(b, 0700)) < 0) {
        bail_out("%s: %s", b, strerror(errno));
    }
    group->allgather(group->arg, &group->rank, done, sizeof(done[0]));
}

static int latest(struct muster_ckpt *ck)
{
    int64_t step = -1;
    int rc = muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step);

    return rc < 0 ? rc : (int)step;
}

static int load(struct muster_ckpt *ck)
{
    int64_t step = -1;
    int rc = muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step);

    return rc < 0 ? rc : (int)step;
}

static void move_root(void *arg, const struct muster_ckpt_group *group)
{
    struct muster_ckpt *ck = api_bed_open(root, "moved", group, NULL);
    int32_t v = 7;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32, .data = &v};
    int *got = (int *)arg + 14 * group->rank;

    muster_ckpt_tensor(ck, &t);
    got[0] = muster_ckpt_save(ck, 1, 0, NULL);
    got[1] = load(ck);
    put_there(group, "moved", "moved.away");
    got[2] = latest(ck);
    got[3] = load(ck);
    snprintf(texts[group->rank], sizeof(texts[0]), "%s", muster_ckpt_error_text(ck));
    got[4] = muster_ckpt_save(ck, 2, 0, NULL);
    got[5] = muster_ckpt_read(ck, 1, &t); /* the one that was loaded is open */
    put_there(group, NULL, "moved");
    got[6] = latest(ck);
    got[7] = load(ck);
    got[8] = muster_ckpt_read(ck, 1, &t);
    got[9] = muster_ckpt_save(ck, 3, MUSTER_CKPT_LAZY, NULL);
    got[10] = load(ck);
    put_there(group, "moved", "moved.too");
    put_there(group, "moved.away", "moved");
    got[11] = muster_ckpt_save(ck, 2, 0, NULL);
    got[12] = latest(ck);
    got[13] = load(ck);
    muster_ckpt_close(ck);
}

/* Agents go by its path, and so does who loads, and who writes without one. */
static void test_moved(void)
{
    static const struct {
        const char *what;
        int rc;
    } should[14] = {
        {"a save", 0}, {"is loaded", 1},
        {"its directory is moved: what is the newest", -ESTALE}, {"a load", -ESTALE},
        {"a save", -ESTALE}, {"of what is open more is read", 0},
        {"there is another one: it has none", -ENOENT}, {"none to load", -ENOENT},
        {"nor to read", -ENOENT}, {"it is saved there, lazily", 0}, {"and loaded", 3},
        {"the first is back: a save", 0}, {"is the newest there", 2}, {"and loaded", 2},
    };
    int got[2][14];

    team_run(2, false, move_root, got);
    for (int r = 0; r < 2; r++) {
        for (size_t i = 0; i < ARRAY_SIZE(should); i++) {
            is_int(got[r][i], should[i].rc, "rank %d: %s", r, should[i].what);
        }
        like(texts[r], "/moved is no directory any more", "said");
    }
}

/* As where each host has a disk of its own by that name. */
static void save_apart(void *arg, const struct muster_ckpt_group *group)
{
    struct muster_ckpt *ck = api_bed_open(root, group->rank ? "apart1" : "apart0", group, NULL);
    const uint64_t shape[1] = {4};
    float w[4] = {1};
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32, .n_dims = 1,
                                   .shape = shape, .data = w};

    (void)arg;
    muster_ckpt_tensor(ck, &t);
    expected[group->rank] = muster_ckpt_save(ck, 1, 0, NULL);
    snprintf(texts[group->rank], sizeof(texts[0]), "%s", muster_ckpt_error_text(ck));
    muster_ckpt_close(ck);
}

static void test_apart(void)
{
    char path[API_BED_ROOT_BYTES + 16];

    for (int r = 0; r < 2; r++) {
        snprintf(path, sizeof(path), "%s/apart%d", root, r);
        mkdir(path, 0700);
    }
    team_run(2, false, save_apart, NULL);
    for (int r = 0; r < 2; r++) {
        is_int(expected[r], -ENOENT, "directories of their own: rank %d", r);
        like(texts[r], "rank 1: step-000000000001-", "which has it is said, ...");
        like(texts[r], "is not there; expected a directory that all ranks see", "and why");
    }
}

/* One rank finds it damaged, and another one refuses it, each before it loads. */
static void load_refused(void *arg, const struct muster_ckpt_group *group)
{
    static const uint64_t flags[3] = {MUSTER_CKPT_CANNOT, 0, MUSTER_CKPT_UNFIT};
    struct muster_ckpt *ck = api_bed_open(root, "refused", group, NULL);
    const uint64_t shape[1] = {4};
    float w[4] = {1};
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32, .n_dims = 1,
                                   .shape = shape, .data = w};

    (void)arg;
    muster_ckpt_tensor(ck, &t);
    muster_ckpt_save(ck, 1, MUSTER_CKPT_WAIT, NULL);
    if (flags[group->rank]) {
        muster_ckpt_clear(ck);
    }
    expected[group->rank] = muster_ckpt_load(ck, 1, flags[group->rank], NULL);
    muster_ckpt_close(ck);
}

/* That one raises what it likes, and so comes to no other call: nobody looks for an older
 * one. */
static void test_refused(void)
{
    memset(expected, 0, sizeof(expected));
    team_run(3, false, load_refused, NULL);
    for (int i = 0; i < 3; i++) {
        is_int(expected[i], -ENODATA, "rank %d: a refusal counts for more than damage", i);
    }
}

/* MUSTER_CKPT_CHECK: the last of three ranks has other numbers, in a box or with gaps. */
static void save_unlike(void *arg, const struct muster_ckpt_group *group)
{
    struct muster_ckpt *ck = api_bed_open(root, "unlike", group, NULL);
    const uint64_t shape[1] = {4}, len[1] = {2}, at[1] = {group->rank > 0 ? 2 : 0};
    const int64_t strides[1] = {2};
    char own[1] = {(char)group->rank};
    float w[2] = {3, 4}, gaps[8] = {0};
    struct muster_ckpt_tensor box = {.name = "w", .dtype = MUSTER_F32, .n_dims = 1,
                                     .shape = shape, .at = at, .len = len, .data = w};
    struct muster_ckpt_tensor spread = {.name = "spread", .dtype = MUSTER_F32, .n_dims = 1,
                                        .shape = shape, .data = gaps, .strides = strides};

    gaps[1] = (float)group->rank; /* between what is registered */
    if (group->rank == 2) {
        w[1] = strcmp(arg, "box") == 0 ? 5 : 4;
        gaps[2] = strcmp(arg, "spread") == 0 ? 6 : 0;
    }
    muster_ckpt_tensor(ck, &box);
    muster_ckpt_tensor(ck, &spread);
    muster_ckpt_blob(ck, "own", own, 1, MUSTER_PER_RANK);
    expected[group->rank] = muster_ckpt_save(ck, 1, 0, NULL);
    snprintf(texts[group->rank], sizeof(texts[0]), "%s", muster_ckpt_error_text(ck));
    muster_ckpt_close(ck);
}

static void test_unlike(void)
{
    static const struct {
        const char *what;
        int rc;
        const char *text;
    } cases[] = {
        {"box", -EINVAL, "'w' is not the same on ranks 1 and 2"},
        {"spread", -EINVAL, "'spread' is not the same on ranks 0 and 2"},
        {"nothing", 0, ""},
    };

    setenv("MUSTER_CKPT_CHECK", "1", 1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        team_run(3, false, save_unlike, (void *)cases[i].what);
        for (int r = 0; r < 3; r++) {
            is_int(expected[r], cases[i].rc, "%s, checked: rank %d", cases[i].what, r);
            like(texts[r], cases[i].text, "what");
        }
    }
    unsetenv("MUSTER_CKPT_CHECK");
    team_run(3, false, save_unlike, (void *)"spread");
    is_int(expected[0], 0, "without it nobody looks");
}

/* As if the other rank had the same, whatever it is. */
static int gather_alike(void *arg, const void *mine, void *all, size_t len)
{
    memcpy(all, mine, len);
    memcpy((char *)all + len, mine, len);
    ++*(int *)arg;
    return 0;
}

/* What other ranks wait for is its parent's to say. */
static void test_forked(void)
{
    int n_gathered = 0, before, status = -1;
    const struct muster_ckpt_group group = {.rank = 0, .world = 2, .arg = &n_gathered,
                                            .allgather = gather_alike};
    struct muster_ckpt *ck = api_bed_open(root, "forked", &group, NULL);
    int64_t step;
    pid_t pid;

    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), -ENOENT, "nothing there");
    before = n_gathered;
    pid = fork();
    if (pid == 0) {
        bool is_refused = muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step) == -EOPNOTSUPP &&
                          muster_ckpt_save(ck, 1, 0, NULL) == -EOPNOTSUPP &&
                          strstr(muster_ckpt_error_text(ck), "open its own") &&
                          muster_ckpt_wait(ck, 0, MUSTER_CKPT_DURABLE, 0) == -EOPNOTSUPP;

        muster_ckpt_close(ck);
        _exit(!is_refused || n_gathered != before);
    }
    is_int(waitpid(pid, &status, 0), pid, "a child");
    is_int(status, 0, "is refused, and tells the other ranks nothing");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), -ENOENT, "its parent goes on");
    muster_ckpt_close(ck);
}

static bool went_well(const struct api_trip *t, int world)
{
    for (int r = 0; r < world; r++) {
        if (t->rc[r] != 0 || t->n_wrong[r] != 0) {
            diag("rank %d of %d: %d, %llu wrong: %s", r, world, t->rc[r],
                 (unsigned long long)t->n_wrong[r], t->text[r]);
            return false;
        }
    }
    return true;
}

static void test_matrix(int most)
{
    int n_bad = 0;

    for (int n = 1; n <= most; n++) {
        struct api_trip out = {.root = root, .name = "matrix", .step = n,
                               .seed = (uint64_t)n, .is_save = true};

        team_run(n, false, api_bed_travel, &out);
        n_bad += !went_well(&out, n);
        for (int k = 1; k <= most; k++) {
            struct api_trip back = {.root = root, .name = "matrix", .step = n,
                                    .seed = (uint64_t)(n * 100 + k)};

            team_run(k, false, api_bed_travel, &back);
            n_bad += !went_well(&back, k);
        }
    }
    is_int(n_bad, 0, "saved by 1 to %d ranks, loaded by 1 to %d", most, most);
}

int main(int argc, char **argv)
{
    (void)argv;
    api_bed_begin(root);
    test_differ();
    test_nothing();
    test_left();
    test_own();
    test_moved();
    test_apart();
    test_refused();
    test_unlike();
    test_forked();
    test_matrix(argc > 1 ? atoi(argv[1]) : tap_valgrind() ? 3 : 17);
    return api_bed_end(root);
}
