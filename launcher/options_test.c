/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/options.h"

#include "base/cleanup.h"
#include "launcher/commands.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

struct set {
    bool follow, verbose;
    const char *nnodes;
    int64_t restarts;
    struct strlist sets;
    int n_calls;
    const char *maybe;
};

static int take_even(void *into, const struct option_def *def,
                     const char *value, struct error *e)
{
    struct set *s = into;

    (void)def;
    if (strlen(value) % 2) {
        return error_text(e, EINVAL, "expected an even length, found '%s'",
                          value);
    }
    s->n_calls++;
    return 0;
}

static const struct option_def table[] = {
    {"follow", NULL, "Wait for more.", OPTION_FLAG,
     offsetof(struct set, follow), NULL, 'f'},
    {"verbose", NULL, "Say more.", OPTION_FLAG, offsetof(struct set, verbose),
     NULL, 'v'},
    {"nnodes", "N|MIN:MAX", "Nodes.", OPTION_STR, offsetof(struct set, nnodes),
     NULL, 'n'},
    {"max-restarts", "N", "How often all workers may be started again after one "
     "of them failed, in the whole life of the job.", OPTION_INT,
     offsetof(struct set, restarts), NULL, 0},
    {"set", "PATH=VALUE", "Override.", OPTION_LIST, offsetof(struct set, sets),
     NULL, 's'},
    {"maybe", "WORD", "Perhaps with a word.", OPTION_MAYBE,
     offsetof(struct set, maybe), NULL, 0},
    {"even", "WORD", NULL, OPTION_CALL, 0, take_even, 0},
    {0},
};

enum { MAX_ARGS = 10 };

static void test_parse(void)
{
    static const struct {
        const char *argv[MAX_ARGS];
        bool stops, rest;
        size_t min, max;
        int want;          /* of options_parse() */
        const char *error; /* part of the text */
        struct set set;
        size_t n_sets, n_words, n_rest;
    } cases[] = {
        {.argv = {"x"}, .want = 0},
        {.argv = {"x", "--follow"}, .set = {.follow = true}},
        {.argv = {"x", "-fv"}, .set = {.follow = true, .verbose = true}},
        {.argv = {"x", "--nnodes=2"}, .set = {.nnodes = "2"}},
        {.argv = {"x", "--nnodes", "2"}, .set = {.nnodes = "2"}},
        {.argv = {"x", "--nnodes="}, .want = -ERR_USAGE,
         .error = "--nnodes: expected N|MIN:MAX, found ''"},
        {.argv = {"x", "--nnodes", "-1"}, .set = {.nnodes = "-1"}},
        {.argv = {"x", "-n2"}, .set = {.nnodes = "2"}},
        {.argv = {"x", "-n", "2"}, .set = {.nnodes = "2"}},
        {.argv = {"x", "-fn2"}, .set = {.follow = true, .nnodes = "2"}},
        {.argv = {"x", "--nnodes=1", "--nnodes=a=b"}, .set = {.nnodes = "a=b"}},
        {.argv = {"x", "--max_restarts=3"}, .set = {.restarts = 3}},
        {.argv = {"x", "--max-restarts", "-3"}, .set = {.restarts = -3}},
        {.argv = {"x", "--max-restarts=three"}, .want = -ERR_USAGE,
         .error = "--max-restarts: expected a whole number, found 'three'"},
        {.argv = {"x", "--max-restarts=99999999999999999999"},
         .want = -ERR_USAGE, .error = "whole number"},
        {.argv = {"x", "-s", "a=1", "--set", "b=2"}, .n_sets = 2},
        {.argv = {"x", "--even=ab"}, .set = {.n_calls = 1}},
        {.argv = {"x", "--even=abc"}, .want = -ERR_USAGE,
         .error = "option --even: expected an even length, found 'abc'"},
        {.argv = {"x", "--folow"}, .want = -ERR_USAGE,
         .error = "unknown option --folow (did you mean --follow?)"},
        {.argv = {"x", "--evne=1"}, .want = -ERR_USAGE,
         .error = "unknown option --evne"},
        {.argv = {"x", "--foll"}, .want = -ERR_USAGE, .error = "unknown"},
        {.argv = {"x", "--max-restart=1"}, .want = -ERR_USAGE,
         .error = "unknown option --max-restart (did you mean "
                  "--max-restarts?)"},
        {.argv = {"x", "-follow"}, .want = -ERR_USAGE,
         .error = "unknown option -follow (did you mean --follow?)"},
        {.argv = {"x", "--num_nodes=3"}, .want = -ERR_USAGE,
         .error = "unknown option --num_nodes (here it is --nnodes)"},
        {.argv = {"x", "--machinefile", "f"}, .want = -ERR_USAGE,
         .error = "unknown option --machinefile"}, /* without --hostfile */
        {.argv = {"x", "-x", "A=1"}, .want = -ERR_USAGE,
         .error = "unknown option -x (here it is --set env.NAME=VALUE"},
        {.argv = {"x", "-N"}, .want = -ERR_USAGE,
         .error = "unknown option -N (here it is --nnodes, or --nproc-per-node"},
        {.argv = {"x", "-=1"}, .want = -ERR_USAGE, .error = "unknown option -="},
        {.argv = {"x", "-q"}, .want = -ERR_USAGE, .error = "unknown option -q"},
        {.argv = {"x", "-fq"}, .want = -ERR_USAGE,
         .error = "unknown option -q"},
        {.argv = {"x", "--nnodes"}, .want = -ERR_USAGE,
         .error = "--nnodes needs a value: N|MIN:MAX"},
        {.argv = {"x", "-n"}, .want = -ERR_USAGE, .error = "needs a value"},
        {.argv = {"x", "--follow=1"}, .want = -ERR_USAGE,
         .error = "--follow takes no value, found '1'"},
        {.argv = {"x", "-h"}, .want = OPTIONS_HELP},
        {.argv = {"x", "--help", "--nonsense"}, .want = OPTIONS_HELP},
        {.argv = {"x", "word"}, .want = -ERR_USAGE,
         .error = "unexpected argument 'word'"},
        {.argv = {"x"}, .min = 1, .max = 1, .want = -ERR_USAGE,
         .error = "missing argument: muster x RUN"},
        {.argv = {"x", "a", "-f", "b"}, .max = 2, .set = {.follow = true},
         .n_words = 2},
        {.argv = {"x", "-f", "a", "-f", "b"}, .max = SIZE_MAX, .stops = true,
         .set = {.follow = true}, .n_words = 3},
        {.argv = {"x", "-", "-f"}, .max = 1, .set = {.follow = true},
         .n_words = 1},
        {.argv = {"x", "--", "-f"}, .max = 1, .n_words = 1},
        {.argv = {"x", "a", "--", "p", "-f", "--"}, .max = 1, .rest = true,
         .n_words = 1, .n_rest = 3},
        {.argv = {"x", "--nnodes", "--"}, .set = {.nnodes = "--"}},
        {.argv = {"x", "--", "p"}, .max = 0, .want = -ERR_USAGE,
         .error = "unexpected argument 'p'"},
        {.argv = {"x", "--="}, .want = -ERR_USAGE, .error = "unknown option"},
        {.argv = {"x", "--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
         .want = -ERR_USAGE, .error = "unknown option --aaaa"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _option_args_ struct option_args args = {0};
        struct options o = {
            .command = "x", .usage = "RUN", .about = "A test.", .table = table,
            .stops_at_positional = cases[i].stops, .min_args = cases[i].min,
            .max_args = cases[i].max, .takes_rest = cases[i].rest,
        };
        char *argv[MAX_ARGS + 1] = {NULL};
        struct set set = {0};
        struct error e = {0};
        int argc = 0;

        for (; cases[i].argv[argc]; argc++) {
            argv[argc] = (char *)cases[i].argv[argc];
        }
        is_int(options_parse(&o, argc, argv, &set, &args, &e), cases[i].want,
               "case %zu: result", i);
        if (cases[i].error) {
            like(e.text, cases[i].error, "case %zu: text", i);
        }
        if (cases[i].want == 0) {
            ok(set.follow == cases[i].set.follow &&
               set.verbose == cases[i].set.verbose &&
               set.restarts == cases[i].set.restarts &&
               set.n_calls == cases[i].set.n_calls, "case %zu: values", i);
            is_str(set.nnodes, cases[i].set.nnodes, "case %zu: string", i);
            is_int(set.sets.n, cases[i].n_sets, "case %zu: list", i);
            is_int(args.words.n, cases[i].n_words, "case %zu: words", i);
            is_int(args.rest.n, cases[i].n_rest, "case %zu: rest", i);
        }
        strlist_release(&set.sets);
    }
}

static void test_empty_table(void)
{
    static const struct options o = {
        .command = "x", .usage = "", .about = "A test.",
    };
    _option_args_ struct option_args args = {0};
    struct error e = {0};
    char x[] = "x", help[] = "-h", typo[] = "--hepl";
    char *asks[] = {x, help, NULL}, *errs[] = {x, typo, NULL};

    is_int(options_parse(&o, 0, NULL, NULL, &args, &e), 0, "no argv at all");
    is_int(options_parse(&o, 2, asks, NULL, &args, &e), OPTIONS_HELP,
           "help without a table");
    is_int(options_parse(&o, 2, errs, NULL, &args, &e), -ERR_USAGE,
           "typo without a table");
    like(e.text, "did you mean --help?", "nearest without a table");
}

/* What bad usage is to whoever reads the exit status. */
static void test_status(void)
{
    static const struct options o = {.command = "x", .usage = "", .about = "",
                                     .table = table, .max_args = 1};
    static const struct {
        int code, want;
    } cases[] = {{ERR_USAGE, EXIT_USAGE}, {ERR_SPEC, EXIT_USAGE},
                 {ENOENT, EXIT_FAILED},   {ERR_LOST, EXIT_FAILED},
                 {ERR_LOCKED, EXIT_FAILED}};
    char *good[] = {(char *)"x", (char *)"-v", NULL};
    char *bad[] = {(char *)"x", (char *)"--nonsense", NULL};
    _option_args_ struct option_args args = {0};
    struct set set = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e = {0};

        error_text(&e, cases[i].code, "an error to be printed");
        is_int(command_fail(&e), cases[i].want, "code %d", cases[i].code);
    }
    is_int(options_start(&o, 2, good, &set, &args), -1, "goes on");
    is_int(options_start(&o, 2, bad, &set, &args), EXIT_USAGE, "a bad option");
    strlist_release(&set.sets);
}

/* A value only by "=": the next word is not taken. */
static void test_maybe(void)
{
    char x[] = "x", bare[] = "--maybe", full[] = "--maybe=a", word[] = "b";
    const struct options o = {.command = "x", .table = table, .max_args = 1};
    char *argvs[][3] = {{x, bare, word}, {x, full, word}};
    const char *want[] = {"", "a"};

    for (size_t i = 0; i < 2; i++) {
        _option_args_ struct option_args args = {0};
        struct set set = {0};

        is_int(options_parse(&o, 3, argvs[i], &set, &args, NULL), 0, "maybe");
        is_str(set.maybe, want[i], "its value");
        is_str(args.words.items[0], "b", "the word after it");
    }
}

/* --pair takes two words, and -p one that may be attached. */
static int values_elsewhere(const char *word)
{
    return strcmp(word, "--pair") == 0 ? 2
           : strcmp(word, "-p") == 0   ? 1
           : strncmp(word, "-p", 2) == 0 ? 0
                                         : -1;
}

static void test_others(void)
{
    static const struct {
        const char *argv[MAX_ARGS];
        int want;
        const char *others, *words;
    } cases[] = {
        {{"x", "--pair", "-a", "b", "w"}, 0, "--pair -a b", "w"},
        {{"x", "-p", "1", "-f", "-p2", "w"}, 0, "-p 1 -p2", "w"},
        {{"x", "w", "--pair", "a"}, 0, "--pair a", "w"},
        {{"x", "--", "--pair"}, 0, "", "--pair"},
        {{"x", "--other"}, -ERR_USAGE, "", ""},
        {{"x", "-fp"}, -ERR_USAGE, "", ""},
    };
    const struct options o = {.command = "x", .table = table, .max_args = 1,
                              .n_values_elsewhere = values_elsewhere};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _option_args_ struct option_args args = {0};
        char *argv[MAX_ARGS] = {0};
        struct set set = {0};
        struct error e = {0};
        int argc = 0;

        while (cases[i].argv[argc]) {
            argv[argc] = (char *)(uintptr_t)cases[i].argv[argc];
            argc++;
        }
        is_int(options_parse(&o, argc, argv, &set, &args, &e), cases[i].want,
               "case %zu: %s", i, e.text);
        if (cases[i].want == 0) {
            _free_ char *others = args.others.n
                                      ? str_shell_join(args.others.items)
                                      : strdup("");

            is_str(others, cases[i].others, "what is somebody else's");
            is_str(args.words.n ? args.words.items[0] : "", cases[i].words,
                   "and what is not");
        }
        strlist_release(&set.sets);
    }
}

static void test_n_values(void)
{
    static const struct {
        const char *word;
        int want;
    } cases[] = {
        {"--follow", 0}, {"--nnodes", 1},  {"--nnodes=2", 0}, {"-n", 1},
        {"-n2", 0},      {"-fn", 1},       {"-fv", 0},        {"-fx", -1},
        {"--maybe", 0},  {"--other", -1},  {"-x", -1},        {"word", -1},
        {"-", -1},       {"--help", 0},    {"-h", 0},         {"--", -1},
        {"--max_restarts", 1},
    };
    const struct options o = {.command = "x", .table = table};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(options_n_values(&o, cases[i].word), cases[i].want,
               "words behind %s", cases[i].word);
    }
}

static void test_help(void)
{
    static const struct options o = {
        .command = "x", .usage = "RUN\n-- PROGRAM", .about = "A test.",
        .table = table,
    };
    _buf_ struct buf b = {0};

    options_help(&o, &b);
    like(buf_str(&b), "usage: muster x RUN\n       muster x -- PROGRAM\n\n"
                      "A test.\n\noptions:\n", "usage lines");
    like(buf_str(&b), "\n  -n, --nnodes N|MIN:MAX    Nodes.\n", "an option");
    like(buf_str(&b), "\n      --max-restarts N      How often all workers",
         "one without a letter");
    like(buf_str(&b), "\n  -h, --help ", "help itself");
    like(buf_str(&b), "--maybe[=WORD] ", "a value that may be left out");
    ok(!strstr(buf_str(&b), "--even"), "hidden ones are hidden");
    for (const char *line = buf_str(&b); *line;) {
        size_t len = strcspn(line, "\n");

        if (len >= 80) {
            ok(false, "line too long: %.*s", (int)len, line);
        }
        line += len + (line[len] != '\0');
    }
}

/* The usage of several subcommands is as many lines. */
static void test_missing(void)
{
    static const struct {
        const char *word, *error;
    } cases[] = {
        {NULL, "missing argument: muster x ls PLACE, or others"},
        {"cp", "missing argument: muster x cp FROM TO"},
        {"c", "missing argument: muster x ls PLACE, or others"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _option_args_ struct option_args args = {0};
        struct options o = {.command = "x", .usage = "ls PLACE\ncp FROM TO\nrm PLACE",
                            .about = "A test.", .table = table, .min_args = 2,
                            .max_args = 3};
        char *argv[] = {(char *)"x", (char *)cases[i].word};
        struct set set = {0};
        struct error e = {0};

        is_int(options_parse(&o, cases[i].word ? 2 : 1, argv, &set, &args, &e), -ERR_USAGE,
               "something is missing");
        is_str(e.text, cases[i].error, "which is told in one line");
    }
}

int main(void)
{
    test_parse();
    test_empty_table();
    test_status();
    test_maybe();
    test_others();
    test_n_values();
    test_help();
    test_missing();
    return tap_done();
}
