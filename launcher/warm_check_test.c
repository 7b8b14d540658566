/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker may have otherwise than the interpreter that it comes from. */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/warm_priv.h"
#include "tests/lib/tap.h"

#include <string.h>

static char *const argv_was[] = {
    (char *)"python3", (char *)"-u", (char *)"t.py", (char *)"--lr",
    (char *)"1", NULL};

static void make_past(struct warm_past *p)
{
    char *const envp[] = {(char *)"PATH=/bin", (char *)"OMP_NUM_THREADS=1",
        (char *)"RANK=0", (char *)"MUSTER_RUN_ID=r", (char *)"MUSTER_SOCKET=s0",
        (char *)"odd", NULL};

    strlist_add_all(&p->argv, argv_was);
    p->n_args = 2;
    warm_base_env(envp, &p->env);
    strlist_add(&p->names, "LOCAL_RANK");
    strlist_add(&p->names, "PATH");
}

static void test_base(void)
{
    struct warm_past p = {0};

    make_past(&p);
    is_str(strlist_getenv(&p.env, "PATH"), "/bin", "what is the user's stays");
    is_str(strlist_getenv(&p.env, "MUSTER_RUN_ID"), "r", "and what sweeps "
           "look for");
    ok(!strlist_getenv(&p.env, "RANK"), "a worker's own goes");
    ok(!strlist_getenv(&p.env, "MUSTER_SOCKET"), "likewise");
    warm_past_release(&p);
}

static void test_env(void)
{
    static const struct {
        const char *entry; /* instead of, or beside, the usual ones */
        enum warm_fit fit;
        const char *why;
    } cases[] = {
        {"RANK=7", WARM_FITS, ""},
        {"MASTER_PORT=7", WARM_FITS, ""},
        {"MUSTER_SOCKET=s9", WARM_FITS, ""},
        {"odd", WARM_FITS, ""},
        {"LOCAL_RANK=1", WARM_NEVER, "look at LOCAL_RANK"},
        {"OMP_NUM_THREADS=2", WARM_OLD, "OMP_NUM_THREADS is not as it was"},
        {"LR=3", WARM_OLD, "LR is not as it was"},
        {"CUDA_VISIBLE_DEVICES=1", WARM_OLD, "CUDA_VISIBLE_DEVICES is not"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *const envp[] = {(char *)"PATH=/bin", (char *)"MUSTER_RUN_ID=r",
            (char *)(uintptr_t)cases[i].entry,
            (char *)(strncmp(cases[i].entry, "OMP", 3) ? "OMP_NUM_THREADS=1"
                                                       : "X"), NULL};
        struct warm_past p = {0};
        struct error e = {0};

        make_past(&p);
        is_int(warm_past_check(&p, argv_was, envp, &e), cases[i].fit, "%s",
               cases[i].entry);
        like(e.text, cases[i].why, "and says why");
        warm_past_release(&p);
    }
}

static void test_missing(void)
{
    char *const envp[] = {(char *)"PATH=/bin", (char *)"MUSTER_RUN_ID=r", NULL};
    struct warm_past p = {0};
    struct error e = {0};

    make_past(&p);
    is_int(warm_past_check(&p, argv_was, envp, &e), WARM_OLD,
           "a variable that is gone");
    like(e.text, "OMP_NUM_THREADS was set", "and says which");
    warm_past_release(&p);
}

static void test_argv(void)
{
    static const struct {
        char *argv[7];
        enum warm_fit fit;
    } cases[] = {
        {{(char *)"python3", (char *)"-u", (char *)"t.py"}, WARM_FITS},
        {{(char *)"python3", (char *)"-u", (char *)"t.py", (char *)"a",
          (char *)"b", (char *)"c"}, WARM_FITS},
        {{(char *)"python3", (char *)"-u", (char *)"u.py", (char *)"--lr",
          (char *)"1"}, WARM_OLD},
        {{(char *)"python3", (char *)"t.py"}, WARM_OLD},
        {{(char *)"python3"}, WARM_OLD},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *const envp[] = {(char *)"PATH=/bin", (char *)"MUSTER_RUN_ID=r",
                              (char *)"OMP_NUM_THREADS=1", NULL};
        struct warm_past p = {0};

        make_past(&p);
        is_int(warm_past_check(&p, cases[i].argv, envp, NULL), cases[i].fit,
               "command %zu", i);
        warm_past_release(&p);
    }
}

int main(void)
{
    test_base();
    test_env();
    test_missing();
    test_argv();
    return tap_done();
}
