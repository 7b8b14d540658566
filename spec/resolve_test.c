/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char head[] = "apiVersion: muster/v1\nkind: Job\n";

static void test_short_form(void)
{
    _outcome_ struct outcome o = outcome_of_text(
        "apiVersion: muster/v1\n"
        "kind: Job\n"
        "name: tiny\n"
        "nodes: 2\n"
        "procsPerNode: gpu\n"
        "command: [python, train.py]\n"
        "args: [--lr, $(LR)]\n"
        "env:\n"
        "  - {name: LR, value: 1e-4}\n"
        "  - {name: BOTH, value: 'a$(LR)$(LATER)'}\n"
        "  - {name: LATER, value: x}\n"
        "  - name: EMPTY\n"
        "stdin: none\n"
        "hang: {timeout: off}\n"
        "limits: {deadline: none}\n");
    _free_ char *argv = NULL, *env = NULL;

    is_int(o.rc, 0, "resolves: %s", o.error.text);
    if (o.rc < 0) {
        return;
    }
    argv = joined(&o.result.job->command);
    env = joined(&o.result.job->env);
    is_str(argv, "python train.py --lr 1e-4", "argv, with $(LR) filled in");
    is_str(env, "LR=1e-4 BOTH=a1e-4$(LATER) LATER=x EMPTY=",
           "env sees earlier variables only");
    is_int(o.result.job->procs.mode, JOB_PROCS_GPU, "gpu");
    is_str(spec_origin_of(&o.result, "nodes"), "t:4:8", "origin of nodes");
    is_str(spec_origin_of(&o.result, "env.LR"), "t:9:23", "of a variable");
    is_str(spec_origin_of(&o.result, "restart.max"), "default", "of a default");
    ok(!spec_origin_of(&o.result, "nodess"), "of nothing");
    is_str(o.all,
           "note: t:10:25: $(LATER) is left as it is: env has no such variable "
           "before it\n",
           "nothing else to say");
}

/* A value is a template, and is put into others as one: it means the same
 * there. */
static void test_templates(void)
{
    _outcome_ struct outcome o = outcome_of_keys(
        "env: {A: x$$y, B: $(A)z, C: a$, D: $(C)(A), R: r$(RANK), S: $(R)}\n"
        "args: [$(B), $(D), $(S), $(MASTER_ADDR)]\n");
    _free_ char *env = o.rc == 0 ? joined(&o.result.job->env) : NULL;
    _free_ char *argv = o.rc == 0 ? joined(&o.result.job->command) : NULL;

    is_str(env, "A=x$$y B=x$$yz C=a$$ D=a$$(A) R=r$(RANK) S=r$(RANK)", "env");
    is_str(argv, "a x$$yz a$$(A) r$(RANK) $(MASTER_ADDR)", "argv");
    is_str(o.all, "", "names of the worker are nothing to tell of");
}

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
        {"procsPerNode: all", "procsPerNode is \"all\"; expected auto, cpu, "
                              "gpu or a whole number"},
        {"gang: {timeout: 300}",
         "gang.timeout is \"300\"; expected a time such as 30s or 5m"},
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
         "command is missing"},
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

static void test_layers(void)
{
    static const struct spec_override over[] = {
        {"restart.max", "7", "--max-restarts"},
        {"env.A", "cli", "--set"},
        {"env.NEW", "", "--set"},
        {"args", "[--fast]", "--set"},
        {"labels.a.b/c", "x", "--set"},
    };
    static const char text[] =
        "apiVersion: muster/v1\nkind: Runtime\nname: r\n"
        "nodes: 4\nprocsPerNode: 2\ncommand: [python, r.py]\nargs: [--slow]\n"
        "env: {A: runtime, B: runtime, C: runtime}\n"
        "restart: {policy: Always, max: 1}\nworkdir: /r\n"
        "---\napiVersion: muster/v1\nkind: Job\nname: j\nruntime: r\n"
        "nodes: 3\nenv: {B: job, C: }\nrestart: {max: 2}\nworkdir: ~\n";
    _outcome_ struct outcome o =
        outcome_of(&(struct spec_request){.text = text,
                                          .text_name = "t",
                                          .overrides = over,
                                          .n_overrides = ARRAY_SIZE(over)});
    _free_ char *argv = NULL, *env = NULL, *labels = NULL;

    is_int(o.rc, 0, "resolves: %s", o.error.text);
    if (o.rc < 0) {
        return;
    }
    argv = joined(&o.result.job->command);
    env = joined(&o.result.job->env);
    labels = joined(&o.result.job->labels);
    is_str(o.result.job->name, "j", "the runtime's name is not the job's");
    is_int(o.result.job->nodes.min, 3, "the job beats the runtime");
    is_int(o.result.job->procs.n, 2, "the runtime beats the default");
    is_int(o.result.job->restart.max, 7, "the command line beats the job");
    is_int(o.result.job->restart.policy, JOB_RESTART_ALWAYS, "maps merge");
    is_str(argv, "python r.py --fast", "lists do not");
    is_str(env, "A=cli B=job NEW=", "variables merge by name, null deletes");
    is_str(labels, "a.b/c=x", "a label's name may have dots");
    ok(!o.result.job->workdir, "null takes the runtime's value away");
    is_str(spec_origin_of(&o.result, "restart.max"), "--max-restarts",
           "origin: option");
    is_str(spec_origin_of(&o.result, "procsPerNode"), "t:5:15",
           "origin: runtime");
    like(o.all, "args are put behind a command from elsewhere", "a mixture is "
                                                                "told");
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

static void test_names(void)
{
    static const struct {
        const char *argv[6], *name;
    } cases[] = {
        {{"/opt/My.Prog_1", "x"}, "my"},
        {{"python3", "-u", "src/Train_lm.py", "-m"}, "train-lm"},
        {{"/v/bin/python3.11", "-W", "ignore", "-m", "pkg.train"}, "train"},
        {{"python", "-c", "print()"}, "python"},
        {{"python", "-"}, "python"},
        {{"python3"}, "python3"},
        {{"python3", "-m"}, "python3"},
        {{"pythonista", "x.py"}, "pythonista"},
        {{"./.prog", "x"}, "prog"},
        {{"..."}, "job"},
        {{"0123456789012345678901234567890123456789012345678901234567890123456"},
         "012345678901234567890123456789012345678901234567890123456789012"},
        {{"torchrun", "--nproc-per-node=2", "train.py"}, "train"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_argv(cases[i].argv);

        is_str(o.rc == 0 ? o.result.job->name : "", cases[i].name,
               "the name of %s %s", cases[i].argv[0],
               cases[i].argv[1] ? cases[i].argv[1] : "");
    }
}

static void test_requests(void)
{
    static const char *const argv[] = {"/opt/My.Prog_1.py", "a$$b", "$(A)",
                                       NULL};
    static const char *const bad[] = {"a", "\xff", NULL};
    static const char *const none[] = {NULL};
    static const struct spec_override nameless = {"", "x", NULL};
    _outcome_ struct outcome o = outcome_of_argv(argv);
    _outcome_ struct outcome raw = outcome_of_argv(bad);
    _outcome_ struct outcome empty = outcome_of_argv(none);
    _outcome_ struct outcome nothing = outcome_of(&(struct spec_request){0});
    _outcome_ struct outcome both = outcome_of(
        &(struct spec_request){.path = "x", .text = head});
    _outcome_ struct outcome missing =
        outcome_of(&(struct spec_request){.path = "/nonexistent/x.yaml"});
    _outcome_ struct outcome unnamed = outcome_of(&(struct spec_request){
        .text = head, .overrides = &nameless, .n_overrides = 1});

    is_int(o.rc, 0, "an argv resolves");
    is_str(o.result.job->command.items[1], "a$$$b",
           "nothing in it will be expanded");
    is_str(o.result.job->command.items[2], "$$(A)", "not even a name");
    is_str(o.result.job->name, "my-prog-1", "named by the program");
    is_int(raw.rc, -ERR_SPEC, "not UTF-8");
    like(raw.error.text, "argument 2 is not UTF-8", "which one");
    is_int(empty.rc, -ERR_USAGE, "an empty argv");
    is_int(nothing.rc, -ERR_USAGE, "nothing asked");
    is_int(both.rc, -ERR_USAGE, "too much asked");
    is_int(unnamed.rc, -ERR_USAGE, "an override without a path");
    is_int(missing.rc, -ENOENT, "no such file");
    like(missing.all, "error: open /nonexistent/x.yaml", "is a message too");
}

static void test_many_jobs(void)
{
    static const char text[] =
        "apiVersion: muster/v1\nkind: Job\nname: a\ncommand: [x]\n"
        "---\napiVersion: v1\nkind: ConfigMap\n"
        "---\napiVersion: muster/v1\nkind: Job\nname: b\ncommand: [y]\n";
    _outcome_ struct outcome which = outcome_of_text(text);
    _outcome_ struct outcome b = outcome_of(
        &(struct spec_request){.text = text, .text_name = "t", .job = "b"});
    _outcome_ struct outcome c = outcome_of(
        &(struct spec_request){.text = text, .text_name = "t", .job = "c"});

    like(which.error.text, "t: 2 jobs in it; expected the name of one of a, b",
         "one has to be chosen");
    is_int(b.rc, 0, "by name");
    is_str(b.rc == 0 ? b.result.job->name : "", "b", "that one");
    like(b.all, "note: t:6:1: kind ConfigMap is skipped", "others are told");
    like(c.error.text, "no job c in it; expected one of a, b", "no such name");
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
        {"restart: {preload: [torch]}", "note: t:4:20: restart.preload is not "
                                        "acted on yet: every worker"},
        {"elastic: {spares: 1}", "note: t:4:19: elastic.spares is not acted"},
        {"elastic: {growInterval: 1m}", "elastic.growInterval is not acted on"},
        {"nodes: 2..4", "note: t:4:8: nodes 2..4 is not acted on yet while a "
                        "run goes on"},
        {"container: img", "note: t:4:12: container is not acted on yet: the "
                           "job runs on the host"},
        {"hang: {timeout: 5m}", "note: t:4:17: hang.timeout is not acted on"},
        {"limits: {nodeFailures: 1}", "limits.nodeFailures is not acted on"},
        {"checkpoint: {every: 5m}", "note: t:4:13: checkpoint is not acted on "
                                    "yet: muster makes none"},
        {"inputs: [{from: a, to: b}]", "inputs is not acted on yet: nothing"},
        {"outputs: [{from: a, to: b}]", "outputs is not acted on yet: nothing"},
        {"search: {method: grid, parameters: {a: 1}}",
         "search is not acted on yet: the job runs once"},
        {"resources: {gpus: 1}", "resources is not acted on yet: hosts are"},
        {"binding: core", "binding is not acted on yet: workers are bound"},
        {"preflight: full", "preflight is not acted on yet: of a host it"},
        {"store: tree", "note: t:4:8: store is not acted on yet: workers"},
        {"slurm: {partition: p}", "slurm is not acted on yet: no batch script"},
        {"suspend: true", "suspend is not acted on yet: muster run refuses"},
        {"program: mpi", "warning: t:4:10: program mpi is not acted on yet: "
                         "muster run refuses the job"},
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

static void test_one_trial(void)
{
    _outcome_ struct outcome o = outcome_of_keys(
        "search: {method: random, maxTrials: 1, parameters: {a: 1}}");

    is_int(o.rc, 0, "a search for nothing");
    ok(!strstr(o.all, "could vary"), "is no surprise where it has one trial");
}

/* What says no more than the default is nothing to tell of. */
static void test_no_notes(void)
{
    static const char *const keys[] = {
        "restart: {policy: Never, max: 0, preload: []}",
        "restart: {policy: ExitCode, exitCodes: t9k}",
        "elastic: {spares: 0, growInterval: 10m}",
        "nodes: 3..3",
        "container: none",
        "hang: {timeout: none}",
        "limits: {nodeFailures: 3, deadline: 1h, grace: 1s}",
        "checkpoint: {every: auto, keep: 3, store: none, watch: off}",
        "checkpoint: {levels: [memory, partner, disk]}",
        "inputs: []\noutputs: []",
        "search: {method: none}",
        "resources: {gpus: 0}",
        "binding: auto",
        "preflight: quick",
        "logs: {show: '0,3-5', prefix: host, format: json, files: node}",
        "logs: {prefix: '[{host} {local_rank}] '}",
        "store: direct",
        "heartbeat: {timeout: 3s}",
        "detach: {timeout: never}",
        "slurm: {time: off}",
        "suspend: false",
        "program: workers",
        "labels: {a: b}\nannotations: {c: d}",
        "runtime: none",
        "args: [$(OMPI_COMM_WORLD_RANK), $(PET_X), $(MUSTER_X), $(RANK)]",
        "args: [$(TORCHELASTIC_X), $(MASTER_ADDR)]",
    };

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        _outcome_ struct outcome o = outcome_of_keys(keys[i]);

        is_int(o.rc, 0, "resolves: %s", o.error.text);
        is_str(o.all, "", "%s", keys[i]);
    }
}

static void write_text(const char *path, const char *text)
{
    struct error e = {0};

    if (fs_write_replace(path, text, strlen(text), &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void test_secrets(void)
{
    static const char *const env[] = {"TOKX=no", "TOK=from$(P_ONE)outer", NULL};
    char dir[] = "/tmp/muster-spec-XXXXXX";
    _buf_ struct buf text = {0};
    _outcome_ struct outcome o = {0};
    _free_ char *got = NULL, *yaml = NULL;
    char path[64];

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/vars", dir);
    write_text(path, "# c\n\nONE=1$(X)\n TWO= b c\n");
    buf_printf(&text,
               "%scommand: [a]\nenvFrom: [{file: %s, prefix: P_}]\n"
               "env: [{name: TOK, valueFrom: {secretKeyRef: {name: s, key: k}}}"
               ", {name: P_ONE, value: mine}]\n",
               head, path);
    o = outcome_of(&(struct spec_request){
        .text = buf_str(&text),
        .text_name = "t",
        .env = (char *const *)(uintptr_t)env});
    is_int(o.rc, 0, "resolves: %s", o.error.text);
    if (o.rc == 0) {
        got = joined(&o.result.job->env);
        is_str(got, "P_ONE=mine P_TWO= b c TOK=from$$(P_ONE)outer",
               "env beats envFrom; a secret comes from outside");
        ok(job_env_is_secret(o.result.job, "TOK"), "and is known as one");
        ok(job_env_is_secret(o.result.job, "P_TWO"), "as are a file's values");
        yaml = job_write_yaml(o.result.job);
        ok(!strstr(yaml, "outer") && !strstr(yaml, "b c"), "none is shown");
    }
    for (size_t i = 0; i < 2; i++) {
        write_text(path, i ? "A=1\n\nB=2\n=x\n" : "A=1\n\nB=2\nnovalue");
        outcome_release(&o);
        o = outcome_of_text(buf_str(&text));
        like(o.error.text, "vars:4:1: no assignment; expected NAME=VALUE",
             "a bad file is placed");
    }
    fs_remove_tree(dir, NULL);
}

static void test_environment(void)
{
    static const struct {
        const char *env[4];
        const char *keys;
        const char *want; /* nodes, processes, restarts; or the error */
    } cases[] = {
        {{"PET_NNODES=2:4", "PET_NPROC_PER_NODE=3", "PET_MAX_RESTARTS=9"}, "",
         "2..4 x 3 r9"},
        {{"PET_NNODES=4", "PET_NPROC_PER_NODE=", NULL}, "nodes: 2",
         "2..2 x auto r3"},
        {{"PET_NNODES=4", "PET_NPROC_PER_NODE=2", NULL},
         "command: [torchrun, --nnodes=3, t.py]", "3..3 x 2 r3"},
        {{"PET_NNODES=4", "MUSTER_RUN_ID=x", NULL}, "", "1..1 x auto r3"},
        {{"XPET_NNODES=4", "PET_NNODES_=5", NULL}, "", "1..1 x auto r3"},
        {{"PET_NNODES=many", NULL}, "",
         "environment PET_NNODES: nodes is \"many\"; expected"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *env[5] = {cases[i].env[0], cases[i].env[1],
                              cases[i].env[2]};
        bool has_command = strstr(cases[i].keys, "command");
        _buf_ struct buf text = {0}, got = {0};
        _outcome_ struct outcome o = {0};
        const struct job *job;

        buf_printf(&text, "%s%s%s\n", head,
                   has_command ? "" : "command: [a]\n", cases[i].keys);
        o = outcome_of(&(struct spec_request){
            .text = buf_str(&text), .text_name = "t",
            .env = (char *const *)(uintptr_t)env});
        job = o.result.job;
        if (!job) {
            like(o.error.text, cases[i].want, "refused: %s", env[0]);
            continue;
        }
        buf_printf(&got, "%u..%u x ", job->nodes.min, job->nodes.max);
        if (job->procs.mode == JOB_PROCS_FIXED) {
            buf_printf(&got, "%u", job->procs.n);
        } else {
            buf_puts(&got, "auto");
        }
        buf_printf(&got, " r%u", job->restart.max);
        is_str(buf_str(&got), cases[i].want, "%s with \"%s\"", env[0],
               cases[i].keys);
        if (i == 0) {
            is_str(spec_origin_of(&o.result, "nodes"),
                   "environment PET_NNODES", "the origin is");
        }
    }
}

static void test_log_format(void)
{
    static const struct {
        const char *env, *keys;
        enum job_log_format want;
    } cases[] = {
        {"LOG_FORMAT=json", "", JOB_LOG_JSON},
        {"LOG_FORMAT=JSON", "logs: {files: node}", JOB_LOG_JSON},
        {"LOG_FORMAT=json", "logs: {format: text}", JOB_LOG_TEXT},
        {"LOG_FORMAT=logfmt", "", JOB_LOG_TEXT},
        {"LOG_FORMAT=", "logs: {format: json}", JOB_LOG_JSON},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *env[] = {cases[i].env, NULL};
        _buf_ struct buf text = {0};
        _outcome_ struct outcome o = {0};

        buf_printf(&text, "%scommand: [a]\n%s\n", head, cases[i].keys);
        o = outcome_of(&(struct spec_request){
            .text = buf_str(&text), .text_name = "t",
            .env = (char *const *)(uintptr_t)env});
        is_int(o.result.job ? (int)o.result.job->logs.format : -1,
               cases[i].want, "%s with \"%s\"", cases[i].env, cases[i].keys);
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
    like(all.error.text, "t:40:8: more than 114304 bytes with", "all of them together");
}

static void test_table(void)
{
    _buf_ struct buf table = {0};

    spec_print_table(&table);
    like(buf_str(&table), "*restart\\.max*", "keys are in the table");
    like(buf_str(&table), "Default: 3", "with defaults");
    like(buf_str(&table), "*search\\.parameters\\.NAME\\.min*", "inner ones too");
}

static void test_files(void)
{
    char dir[] = "/tmp/muster-spec-XXXXXX";
    const char *dirs[] = {dir, NULL};
    _outcome_ struct outcome o = {0};
    char path[64], bad[64];

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/b.yaml", dir);
    snprintf(bad, sizeof(bad), "%s/a.yaml", dir);
    write_text(bad, "a: [");
    write_text(path, "apiVersion: muster/v1\nkind: Runtime\nname: site\n"
                     "workdir: /w\n");
    o = outcome_of(&(struct spec_request){
        .text = "apiVersion: muster/v1\nkind: Job\nruntime: site\n"
                "command: [a]\n",
        .text_name = "t",
        .runtime_dirs = dirs});
    is_int(o.rc, 0, "a runtime in a directory: %s", o.error.text);
    is_str(o.rc == 0 ? o.result.job->workdir : "", "/w", "is used");
    like(o.all, "warning: a file of runtimes is skipped", "a bad one is told");
    fs_remove_tree(dir, NULL);
}

/* What is given to users as an example resolves, without a warning. */
static void test_examples(void)
{
    static const struct {
        const char *file, *command;
    } examples[] = {
        {"charlm.yaml", "charlm --steps 300 --checkpoint-every 50"},
        {"ddp.yaml", "python3 examples/ddp.py --steps 300"},
        {"ome-job.yaml", "python3 -u examples/ddp.py --steps 300"},
    };
    const char *srcdir = getenv("MUSTER_SRCDIR");
    char path[4096];

    for (size_t i = 0; i < ARRAY_SIZE(examples); i++) {
        _outcome_ struct outcome o = {0};
        _free_ char *command = NULL;

        fs_path(path, sizeof(path), NULL, "%s/examples/%s",
                srcdir ? srcdir : "..", examples[i].file);
        o = outcome_of(&(struct spec_request){.path = path});
        is_int(o.rc, 0, "%s resolves: %s", examples[i].file, o.error.text);
        command = o.rc == 0 ? joined(&o.result.job->command) : NULL;
        is_str(command, examples[i].command, "to its command");
        ok(!strstr(o.all, "warning"), "without a warning");
    }
}

int main(void)
{
    test_short_form();
    test_templates();
    test_bad_keys();
    test_bad_documents();
    test_many_errors();
    test_layers();
    test_bad_overrides();
    test_names();
    test_requests();
    test_many_jobs();
    test_warnings();
    test_one_trial();
    test_no_notes();
    test_secrets();
    test_environment();
    test_log_format();
    test_expansion_limits();
    test_sizes();
    test_table();
    test_files();
    test_examples();
    return tap_done();
}
