/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/resume_arg.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_words(void)
{
    static const struct {
        const char *argv, *arg, *path, *want;
    } cases[] = {
        {"python t.py", "--resume_from_checkpoint={path}", "/c/5",
         "python t.py --resume_from_checkpoint=/c/5"},
        {"python t.py", "--resume=", "/c/5", "python t.py --resume=/c/5"},
        {"python t.py", "--load {path}", "/c/5", "python t.py --load /c/5"},
        {"python t.py", "--load", "/c/5", "python t.py --load /c/5"},
        {"python t.py", " --load  {path} --strict", "/c/5",
         "python t.py --load /c/5 --strict"},
        {"python t.py", "{path}", "/c/5", "python t.py /c/5"},
        {"python t.py", "trainer.ckpt={path}", "/c/5",
         "python t.py trainer.ckpt=/c/5"},
        {"python t.py --resume=/old --lr 1", "--resume={path}", "/c/5",
         "python t.py --lr 1 --resume=/c/5"},
        {"python t.py --resume /old --lr 1", "--resume={path}", "/c/5",
         "python t.py --lr 1 --resume=/c/5"},
        {"python t.py --resume --lr 1", "--resume={path}", "/c/5",
         "python t.py --lr 1 --resume=/c/5"},
        {"python t.py --resume", "--resume {path}", "/c/5",
         "python t.py --resume /c/5"},
        {"python t.py --resume_all x", "--resume={path}", "/c/5",
         "python t.py --resume_all x --resume=/c/5"},
        {"python t.py", "--load {path} --tag=", "/c/5", "python t.py --load /c/5 --tag="},
        {"python t.py", "--tag= --load", "/c/5", "python t.py --tag= --load /c/5"},
        {"python t.py trainer.ckpt=/old", "trainer.ckpt={path}", "/c/5",
         "python t.py trainer.ckpt=/old trainer.ckpt=/c/5"},
        {"--load t.py", "--load {path}", "/c/5", "--load t.py --load /c/5"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _strlist_ struct strlist argv = {0};
        _free_ char *copy = strdup(cases[i].argv), *got = NULL;
        char *rest = copy, *word;
        struct error e = {0};

        while ((word = strsep(&rest, " "))) {
            strlist_add(&argv, word);
        }
        is_int(resume_arg_apply(cases[i].arg, cases[i].path, &argv, &e), 0,
               "'%s' for '%s'", cases[i].arg, cases[i].argv);
        got = str_shell_join(argv.items);
        is_str(got, cases[i].want, "comes out so");
    }
}

/* A path is one word, whatever is in it, and is not looked into. */
static void test_odd_path(void)
{
    _strlist_ struct strlist argv = {0};

    strlist_add(&argv, "t");
    is_int(resume_arg_apply("--load {path}", "/a b/{path}\n$(HOME)", &argv,
                            NULL), 0, "an odd path");
    is_int((int)argv.n, 3, "is one word");
    is_str(argv.items[2], "/a b/{path}\n$(HOME)", "as it is");
}

int main(void)
{
    test_words();
    test_odd_path();
    return tap_done();
}
