/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a spec, and where; what is only odd; what is too much. */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <string.h>

static void test_bad_keys(void)
{
    static const struct {
        const char *keys, *error;
    } cases[] = {
        {"procPerNode: 4", "t:4:1: unknown key \"procPerNode\"; did you mean "
                           "procsPerNode"},
        {"xyzzy: 4", "t:4:1: unknown key \"xyzzy\"; expected one of name, "},
        {"restart: {maxx: 1}",
         "t:4:11: unknown key \"maxx\" in restart; did you mean max"},
        {"restart: {max: -1}",
         "t:4:16: restart.max is \"-1\"; expected a whole number from 0 to"},
        {"restart: {max: 08}", "restart.max is \"08\"; expected a whole number"},
        {"restart: {max: 1e3}", "restart.max is \"1e3\""},
        {"restart: {max: [1]}", "restart.max is a list; expected a whole"},
        {"restart: 5", "t:4:10: restart is \"5\"; expected a map"},
        {"restart: {policy: Sometimes}",
         "restart.policy is \"Sometimes\"; expected Never, OnFailure, Always "
         "or ExitCode"},
        {"restart: {exitCodes: [0]}",
         "restart.exitCodes is \"0\"; expected kubeflow, t9k, or a list"},
        {"restart: {backoff: 60s..1s}",
         "restart.backoff is \"60s..1s\"; expected two times"},
        {"nodes: two", "t:4:8: nodes is \"two\"; expected a whole number from "
                       "1 to 65536, or a range such as 2..8"},
        {"nodes: 0", "nodes is \"0\""},
        {"nodes: 8..2", "nodes is \"8..2\""},
        {"nodes: 70000", "nodes is \"70000\""},
        {"nodes: 0755", "nodes is \"0755\""},
        {"elastic: {minNodes: 2}", "elastic and nodes together are 2..1 nodes"},
        {"elastic: {excludeSlow: 1.2}", "elastic.excludeSlow is 1.2; expected "
                                        "0, which is never, or a factor of "
                                        "1.5"},
        {"elastic: {excludeSlow: -3}", "elastic.excludeSlow is -3; expected 0"},
        {"procsPerNode: all", "procsPerNode is \"all\"; expected auto, cpu, "
                              "gpu or a whole number"},
        {"gang: {timeout: 300}",
         "gang.timeout is \"300\"; expected a time such as 30s or 5m of at "
         "least 1s and at most 365d"},
        {"limits: {grace: 2d}", "limits.grace is \"2d\"; expected a time such as "
                                "30s or 5m of at most 1d"},
        {"limits: {deadline: 99999999999999h}", "of at least 1s and at most 36600d, or off"},
        {"gang: {timeout: off}", "gang.timeout is \"off\""},
        {"gang: {timeout: 0}", "of at least 1s"},
        {"hang: {timeout: maybe}", "or off"},
        {"suspend: 1", "suspend is \"1\"; expected true or false"},
        {"name: Upper", "name is \"Upper\"; expected a name of a-z, 0-9 and -"},
        {"name: [a]", "name is a list; expected a name"},
        {"env: a", "t:4:6: env is text; expected a map"},
        {"env: [a]", "t:4:7: text in env; expected a map with name and value"},
        {"env: [{value: x}]", "env.name is missing; expected text"},
        {"env: [{name: a, vlaue: x}]", "unknown key \"vlaue\" in env; did you "
                                       "mean value"},
        {"env: {A: [x]}", "env.A is a list; expected text"},
        {"env: {'A=B': x}", "env has the name \"A=B\"; expected"},
        {"env: {'': x}", "env has the name \"\""},
        {"env: [{name: a, valueFrom: {foo: x}}]", "expected a map of one of "
                                                  "secretKeyRef"},
        {"envFrom: {a: b}", "envFrom is a map; expected a list"},
        {"envFrom: [{file: /nonexistent/x}]", "envFrom: open /nonexistent/x"},
        {"stdin: all", "stdin is all; expected none"},
        {"args: x", "args is \"x\"; expected a list"},
        {"checkpoint: {levels: [tape]}",
         "checkpoint.levels is \"tape\"; expected a list of memory, partner or "
         "disk"},
        {"checkpoint: {keep: 0}", "from 1 to"},
        {"checkpoint: {partner: raid}",
         "checkpoint.partner is \"raid\"; expected copy, xor or rs"},
        {"checkpoint: {partner: xor, partnerGroup: 1}", "from 2 to 32"},
        {"checkpoint: {partnerEncrypt: ja}", "checkpoint.partnerEncrypt is \"ja\""},
        {"checkpoint: {partner: rs, partnerGroup: 3, partnerParities: 3}",
         "checkpoint.partnerParities is 3 in groups of 3 nodes; expected less"},
        {"checkpoint: {store: /mnt/store}",
         "checkpoint.store: '/mnt/store': expected s3://BUCKET/PREFIX"},
        {"checkpoint: {store: \"s3://b/run7\"}",
         "t:4:21: checkpoint.store: 's3://b/run7': expected s3://BUCKET/PREFIX, with a bucket of"},
        {"checkpoint: {watch: o, copy: {to: \"s3://bucket//o\"}}",
         "checkpoint.copy.to: 's3://bucket//o': no part of a prefix may be empty"},
        {"checkpoint:\n  keep: 5\n  store: s3:///run7",
         "t:6:10: checkpoint.store: 's3:///run7': expected s3://BUCKET/PREFIX"},
        {"checkpoint: {watch: o, copy: {to: o}}",
         "checkpoint.copy.to is checkpoint.watch itself"},
        {"checkpoint: {watch: \"s3://b/p\"}",
         "checkpoint.watch is \"s3://b/p\"; expected a directory"},
        {"inputs: {from: a}", "inputs is a map; expected a list of maps"},
        {"inputs: [{from: a}]", "t:4:10: inputs.to is missing; expected text"},
        {"inputs: [a]", "inputs is \"a\"; expected a list of maps"},
        {"search: {method: magic}", "search.method is \"magic\"; expected none,"
                                    " grid, random or bayes"},
        {"search: {method: random, parameters: {a: {min: 1, max: 2}}}",
         "search.maxTrials is missing"},
        {"search: {method: grid, parameters: {a: {min: 1, max: 2}}}",
         "search.metric.name is missing"},
        {"search: {method: grid, parameters: {a: {type: int}}}",
         "t:4:40: parameter a has no values; expected values, or min and max"},
        {"search: {method: grid, parameters: {a: {min: 3, max: 2}}}",
         "parameter a goes from 3 to 2"},
        {"search: {method: grid, parameters: {a: {min: 0, max: 2, "
         "scale: log}}}", "parameter a is logarithmic from 0"},
        {"search: {method: grid, parameters: {a: {type: int, min: 0.5, "
         "max: 2}}}", "parameter a goes from 0.5 to 2; expected whole"},
        {"search: {method: grid, parameters: {a: {type: int, values: [x]}}}",
         "parameter a has the value \"x\"; expected a number"},
        {"search: {method: grid, parameters: {a: [1, 2]}}",
         "parameter a is a list; expected values: [...]"},
        {"search: {parameters: {a: {type: double, min: .inf, max: 1}}}",
         "min is \".inf\"; expected a number"},
        {"search: {method: random, parameters: {a: {values: [1, 2]}}}",
         "search.maxTrials is missing"},
        {"search: {method: grid, parameters: {a: {min: 1, max: 2, step: -1}}}",
         "parameter a has step -1; expected one above 0"},
        {"search: {method: grid, parameters: {a: {type: categorical, min: 1, "
         "max: 2}}}", "parameter a is categorical; expected values"},
        {"resources: {memory: 32Gb}", "resources.memory is \"32Gb\"; expected "
                                      "an amount of memory such as 64Gi"},
        {"binding: thumbs", "binding is \"thumbs\"; expected auto, none, core"},
        {"heartbeat: {timeout: 500ms}", "of at least 1s"},
        {"runtime: nosuch", "t:4:10: runtime nosuch is not known; expected one "
                            "of pytorch-runtime"},
        {"runtime: pytorch-runtim", "did you mean pytorch-runtime"},
        {"metadata: {name: x}", "unknown key \"metadata\""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_keys(cases[i].keys);

        is_int(o.rc, -ERR_SPEC, "refused: %s", cases[i].keys);
        like(o.error.text, cases[i].error, "and says why");
        ok(!o.result.job, "no job");
    }
}

static void test_bad_documents(void)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "t: no job in it; expected one"},
        {"# a\n---\n", "t: no job in it"},
        {"a: 1", "t:1:1: apiVersion and kind are missing, so this is only a "
                 "part of a job"},
        {"apiVersion: muster/v1", "kind is missing"},
        {"kind: Job", "apiVersion is missing"},
        {"[a]", "t:1:1: a list; expected a job, which is a map"},
        {"hello", "t:1:1: text; expected a job"},
        {"apiVersion: muster/v2\nkind: Job",
         "t:1:13: apiVersion muster/v2 of a Job; expected muster/v1"},
        {"apiVersion: muster/v1\nkind: Jbo", "did you mean Job"},
        {"apiVersion: v1\nkind: ConfigMap", "kind ConfigMap of v1 is no "
                                            "training job that muster knows"},
        {"apiVersion: kubeflow.org/v1\nkind: PyTorchJob",
         "kind PyTorchJob of kubeflow.org/v1 cannot be run yet"},
        {"apiVersion: muster/v1\nkind: Job\nname: a\n",
         "t:1:1: command is missing; expected the program and its arguments"},
        {"apiVersion: muster/v1\nkind: Job\ncommand: []\n",
         "t:3:10: command is missing"},
        {"apiVersion: muster/v1\nkind: Job\ncommand: ['', b]\n",
         "t:3:10: command is missing"},
        {"apiVersion: muster/v1\nkind: Job\ncommand: python train.py\n",
         "t:3:10: command is \"python train.py\"; expected a list such as"},
        {"apiVersion: muster/v1\nkind: Job\ncommand: [a, [b]]\n",
         "command is a list; expected text"},
        {"apiVersion: muster/v1\nkind: Runtime\nname: r\n",
         "t:1:1: only the runtime r; expected a job that refers to it"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_text(cases[i].text);

        is_int(o.rc, -ERR_SPEC, "refused: %.40s", cases[i].text);
        like(o.error.text, cases[i].error, "and says why");
    }
}

static void test_many_errors(void)
{
    _outcome_ struct outcome three =
        outcome_of_keys("nodes: x\nstore: y\nfoo: z\n");
    _outcome_ struct outcome many = {0};
    _buf_ struct buf keys = {0};

    _outcome_ struct outcome mixed = outcome_of_keys("env: 5\nnodes: x\n");

    is_int((int)mixed.result.n_errors, 2, "of every kind");
    is_int((int)three.result.n_errors, 3, "all errors are found at once");
    like(three.error.text, "t:4:8: nodes is \"x\"", "the first is told");
    like(three.error.text, "(and 2 more)", "and how many there are");

    for (int i = 0; i < 50; i++) {
        buf_printf(&keys, "key%d: 1\n", i);
    }
    many = outcome_of_keys(buf_str(&keys));
    is_int((int)many.result.n_messages, 20, "but not more than 20");

    _outcome_ struct outcome more = {0}, notes = {0};

    buf_clear(&keys);
    buf_puts(&keys, "search: {parameters: {");
    for (int i = 0; i < 50; i++) {
        buf_printf(&keys, "p%d: [1], ", i);
    }
    buf_puts(&keys, "}}\n");
    more = outcome_of_keys(buf_str(&keys));
    is_int((int)more.result.n_messages, 21, "20 where there are more");
    like(more.all, "error: and 30 more errors\n", "and how many there are");

    buf_clear(&keys);
    buf_puts(&keys, "args: [");
    for (int i = 0; i < 250; i++) {
        buf_printf(&keys, "$(X%d), ", i);
    }
    buf_puts(&keys, "]\n");
    notes = outcome_of_keys(buf_str(&keys));
    is_int((int)notes.result.n_messages, 200, "200 notes are enough");
}

static void test_bad_overrides(void)
{
    static const struct {
        struct spec_override over;
        const char *error;
    } cases[] = {
        {{"nodess", "3", "--set"},
         "--set: unknown key \"nodess\"; did you mean nodes"},
        {{"restart.mx", "3", "--set"}, "--set: unknown key \"restart.mx\"; "
                                       "expected a key under restart"},
        {{"nodes", "x", "--nnodes"}, "--nnodes: nodes is \"x\"; expected"},
        {{"command", "[a", "--set"}, "--set: did not find expected ',' or ']'"},
        {{"command", "a", "--set"}, "command is \"a\"; expected a list"},
        {{"command", "[a]\n---\n[b]", "--set"}, "--set: 2 values; expected one"},
        {{"resources.cpus", "[a", "--set"},
         "--set: resources.cpus is \"[a\"; expected a number of CPUs"},
        {{"env", "5", "--set"}, "--set: env is text"},
        {{"nodes.min", "5", "--set"}, "unknown key \"nodes.min\""},
        {{"runtime", "nosuch", "--runtime"}, "--runtime: runtime nosuch"},
        {{"name", "\xff", "--name"}, "--name: name is not UTF-8"},
    };
    static const char *const argv[] = {"a", NULL};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of(&(struct spec_request){
            .argv = (char *const *)(uintptr_t)argv,
            .overrides = &cases[i].over,
            .n_overrides = 1});

        is_int(o.rc, -ERR_SPEC, "refused: %s", cases[i].over.path);
        like(o.error.text, cases[i].error, "and says why");
    }
}

static void test_shell_lines(void)
{
    static const struct {
        const char *command;
        bool is_warned;
    } cases[] = {
        {"[sh, -c, x]", true}, {"[/bin/bash, -c, 'x y']", true},
        {"[bash, x]", false}, {"[a, -c, x]", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf text = {0};

        buf_printf(&text, "apiVersion: muster/v1\nkind: Job\ncommand: %s\n"
                   "checkpoint: {resumeArg: --r}\n", cases[i].command);
        {
            _outcome_ struct outcome o = outcome_of_text(buf_str(&text));

            ok((strstr(o.all, "checkpoint.resumeArg is put behind the text") !=
                NULL) == cases[i].is_warned, "resumeArg of %s",
               cases[i].command);
        }
    }
}

/* An option at the end of a command is none behind a -- of the script's own. */
static void test_resume_place(void)
{
    static const struct {
        const char *command, *arg;
        bool is_warned;
    } cases[] = {
        {"[python3, t.py, --, data]", "--r", true},
        {"[python3, -u, a/t.py, --lr, '1', --, data, more]", "'--r={path}'", true},
        {"[python3, t.py, --, data]", "'{path}'", false},
        {"[python3, t.py, data]", "--r", false},
        {"[uv, run, --, python3, t.py]", "--r", false},
        {"[uv, run, --, t.py, --, data]", "--r", true},
        {"[python3, start.py, --, /usr/bin/python3.11, t.py]", "--r", false},
        {"[python3, start.py, --, t.py]", "--r", false},
        {"[./t, --, data]", "--r", false}, /* nobody knows */
        {"[python3, t.py, --]", "' --r'", true},
        {"[python3, start.py, --, t.py, --, x]", "--r", true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf text = {0};

        buf_printf(&text, "apiVersion: muster/v1\nkind: Job\ncommand: %s\n"
                   "checkpoint: {resumeArg: %s}\n", cases[i].command, cases[i].arg);
        {
            _outcome_ struct outcome o = outcome_of_text(buf_str(&text));

            ok((strstr(o.all, "behind the -- that ends the options of") != NULL) ==
               cases[i].is_warned, "resumeArg of %s", cases[i].command);
        }
    }
}

static void test_warnings(void)
{
    static const struct {
        const char *keys, *message;
    } cases[] = {
        {"env: {A: yes}", "warning: t:4:10: env.A is yes without quotes"},
        {"env: {A: 0755}", "taken as the text \"0755\""},
        {"env: {RANK: 3}", "warning: t:4:13: env has RANK, which muster sets"},
        {"args: [$(NOPE)]", "note: t:4:8: $(NOPE) is left as it is: env has no"},
        {"env: [{name: A, value: x}, {name: A, value: y}]",
         "env has A again, first on line 4; this one counts"},
        {"container: img", "note: t:4:12: container is not acted on yet: the "
                           "job runs on the host"},
        {"checkpoint: {levels: [memory]}",
         "warning: t:4:22: checkpoint.levels is without disk"},
        {"checkpoint: {levels: [partner, disk]}",
         "warning: t:4:22: partner of checkpoint.levels has no effect without"},
        {"checkpoint: {levels: [disk], diskEvery: 30m}",
         "warning: t:4:41: checkpoint.diskEvery has no effect without memory"},
        {"checkpoint: {levels: [memory, disk], partnerEvery: 1m}",
         "warning: t:4:52: checkpoint.partnerEvery has no effect without partner"},
        {"checkpoint: {storeKeep: 2}",
         "warning: t:4:25: checkpoint.storeKeep has no effect without"},
        {"checkpoint: {storeEvery: 30m}",
         "warning: t:4:26: checkpoint.storeEvery has no effect without"},
        {"checkpoint: {partner: xor, levels: [memory, disk]}",
         "warning: t:4:23: checkpoint.partner has no effect without partner"},
        {"checkpoint: {partnerEncrypt: true, levels: [memory, disk]}",
         "warning: t:4:30: checkpoint.partnerEncrypt has no effect without partner"},
        {"checkpoint: {partnerGroup: 4}",
         "warning: t:4:28: checkpoint.partnerGroup has no effect with "
         "checkpoint.partner: copy"},
        {"checkpoint: {partner: xor, partnerParities: 3}",
         "warning: t:4:45: checkpoint.partnerParities has no effect with "
         "checkpoint.partner: xor"},
        {"checkpoint: {keepGoal: maximize}",
         "warning: t:4:24: checkpoint.keepGoal has no effect without"},
        {"checkpoint: {prune: {keep: 2}}",
         "warning: t:4:21: checkpoint.prune has no effect without"},
        {"checkpoint: {copy: {to: /b}}",
         "warning: t:4:20: checkpoint.copy has no effect without"},
        {"checkpoint: {levels: [disk], keep: 5}",
         "checkpoint.keep has no effect without memory in checkpoint.levels"},
        {"checkpoint: {levels: [disk], keepBest: loss}",
         "checkpoint.keepBest has no effect without memory in checkpoint.levels"},
        {"checkpoint: {keepBest: \"metrics.loss:max\"}",
         "taken as a metric of the name \"metrics.loss:max\"; expected the name alone, and "
         "checkpoint.keepGoal: maximize"},
        {"checkpoint: {watch: o, prune: {keep: 2, best: \"loss:min\"}}",
         "expected the name alone, and checkpoint.prune.goal: minimize"},
        {"checkpoint: {watch: o, prune: {every: 100}}",
         "checkpoint.prune.every has no effect without checkpoint.prune.keep"},
        {"checkpoint: {watch: o, prune: {best: loss}}",
         "checkpoint.prune.best has no effect without checkpoint.prune.keep"},
        {"checkpoint: {watch: o, prune: {keep: 2, goal: maximize}}",
         "checkpoint.prune.goal has no effect without checkpoint.prune.best"},
        {"checkpoint: {alarm: {then: stop}}",
         "checkpoint.alarm.then has no effect without checkpoint.alarm.after"},
        {"checkpoint: {alarm: {after: 30m}, diskEvery: 1h}",
         "checkpoint.alarm.after is no longer than checkpoint.diskEvery"},
        {"checkpoint: {alarm: {after: 30m}, every: 30m}",
         "checkpoint.alarm.after is no longer than checkpoint.every"},
        {"checkpoint: {watch: o, copy: {keep: 2}}",
         "checkpoint.copy.keep has no effect without checkpoint.copy.to"},
        {"checkpoint: {watch: o, copy: {every: 5m}}",
         "checkpoint.copy.every has no effect without checkpoint.copy.to"},
        {"checkpoint:\n  keep: 5\n  watch: ~/out",
         "warning: t:6:10: checkpoint.watch is \"~/out\", which is taken as it is"},
        {"checkpoint: {watch: o, copy: {to: $SCRATCH/o}}",
         "checkpoint.copy.to is \"$SCRATCH/o\", which is taken as it is"},
        {"checkpoint: {watch: o, resumeArg: \"--load {PATH}\"}",
         "checkpoint.resumeArg has {PATH}, which the program gets as it is"},
        {"checkpoint: {watch: o, resumeArg: \"--load={}\"}",
         "checkpoint.resumeArg has {}, which the program gets as it is"},
        {"checkpoint: {watch: o, resumeArg: \"--load='{path}'\"}",
         "checkpoint.resumeArg has quotes"},
        {"inputs: [{from: a, to: b}]", "inputs is not acted on yet: nothing"},
        {"outputs: [{from: a, to: b}]", "outputs is not acted on yet: nothing"},
        {"search: {method: grid, parameters: {a: 1}}",
         "search is not acted on yet: the job runs once"},
        {"resources: {gpus: 1}", "resources is not acted on yet: hosts are"},
        {"binding: core", "binding is not acted on yet: workers are bound"},
        {"preflight: full", "preflight is not acted on yet: of a host it"},
        {"slurm: {partition: p}",
         "slurm.partition is not acted on yet: no batch script"},
        {"program: mpi\nnodes: 2..4", "warning: t:5:8: an MPI program does not "
                                       "change its size: nodes is taken as 2"},
        {"envFrom: [{secretRef: {name: s}}]", "envFrom has no effect"},
        {"env: [{name: A, valueFrom: {fieldRef: {fieldPath: x}}}]",
         "variable A is not set"},
        {"search: {method: bayes}", "no parameter that could vary"},
        {"search: {method: bayes, maxTrials: 2, parameters: {a: 1}}",
         "no parameter that could vary"},
        {"program: mpi\nnodes: 2..4", "an MPI program does not change its "
                                      "size: nodes is taken as 2"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_keys(cases[i].keys);

        is_int(o.rc, 0, "resolves: %s", cases[i].keys);
        like(o.all, cases[i].message, "with a message");
    }
}

static void test_expansion_limits(void)
{
    _buf_ struct buf text = {0};
    _outcome_ struct outcome o = {0};

    buf_printf(&text, "env:\n  A0: xxxxxxxxxxxxxxxx\n");
    for (int i = 1; i < 60; i++) {
        buf_printf(&text, "  A%d: $(A%d)$(A%d)\n", i, i - 1, i - 1);
    }
    o = outcome_of_keys(buf_str(&text));
    is_int(o.rc, -ERR_SPEC, "doubling 60 times is refused");
    like(o.error.text, "with its variables filled in; expected less", "so");

    outcome_release(&o);
    buf_clear(&text);
    buf_puts(&text, "args: ['");
    for (int i = 0; i < 30000; i++) {
        buf_puts(&text, "$(A)");
    }
    buf_puts(&text, "']\n");
    o = outcome_of_keys(buf_str(&text));
    like(o.error.text, "more than 20000 variables to fill in", "many of them");

    outcome_release(&o);
    buf_clear(&text);
    buf_puts(&text, "env:\n");
    for (int i = 0; i < 4097; i++) {
        buf_printf(&text, "- {name: A%d}\n", i);
    }
    o = outcome_of_keys(buf_str(&text));
    like(o.error.text, "4097 variables; expected at most 4096", "a long env");
}

static void repeat(struct buf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_puts(b, s);
    }
}

/* Lists that are longer than a map may be, and values that grow. */
static void test_sizes(void)
{
    static const char *const cases[][3] = {
        {"secrets: [", "x, ", "4097 secrets; expected at most 4096"},
        {"search: {parameters: [", "{name: a}, ",
         "4097 parameters; expected at most 4096"},
    };
    _buf_ struct buf text = {0};
    _outcome_ struct outcome one = {0}, all = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = {0};

        buf_clear(&text);
        buf_puts(&text, cases[i][0]);
        repeat(&text, cases[i][1], 4097);
        buf_puts(&text, i ? "]}\n" : "]\n");
        o = outcome_of_keys(buf_str(&text));
        like(o.error.text, cases[i][2], "%s", cases[i][0]);
    }
    buf_clear(&text);
    buf_puts(&text, "env:\n  A: ");
    repeat(&text, "x", 70000);
    buf_puts(&text, "\n  B: $(A)$(A)\n");
    one = outcome_of_keys(buf_str(&text));
    like(one.error.text, "t:6:6: more than 131072 bytes with its variables",
         "one value");
    buf_clear(&text);
    buf_puts(&text, "env:\n  A: ");
    repeat(&text, "x", 120000);
    for (int i = 0; i < 40; i++) {
        buf_printf(&text, "\n  B%d: $(A)", i);
    }
    all = outcome_of_keys(buf_str(&text));
    like(all.error.text, "t:40:8: more than 114304 bytes with",
         "all of them together");
}

int main(void)
{
    test_bad_keys();
    test_bad_documents();
    test_many_errors();
    test_bad_overrides();
    test_shell_lines();
    test_resume_place();
    test_warnings();
    test_expansion_limits();
    test_sizes();
    return tap_done();
}
