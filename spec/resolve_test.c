/* SPDX-License-Identifier: Apache-2.0 */
/* From a text, layers and requests to one job. */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

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
        "checkpoint: {levels: [disk]}",
        "checkpoint: {partner: copy, partnerGroup: 8, partnerParities: 2}",
        "checkpoint: {partner: xor, partnerGroup: 4}",
        "checkpoint: {partner: rs, partnerGroup: 4, partnerParities: 3}",
        "checkpoint: {store: s3://bkt/p, storeEvery: auto}",
        "checkpoint: {partnerEncrypt: true}",
        "checkpoint: {partnerEvery: auto, diskEvery: 30m}",
        "checkpoint: {partnerEvery: 0s, diskEvery: 0s}",
        "checkpoint: {every: 10m, everySteps: 1000}",
        "checkpoint: {keepEvery: 0, keepBest: off, keepGoal: minimize}",
        "checkpoint: {alarm: {after: off, then: tell}}",
        "checkpoint: {prune: {keep: 0, every: 0, best: off, goal: minimize}}",
        "checkpoint: {copy: {to: none, every: 30m, keep: 0}}",
        "inputs: []\noutputs: []",
        "search: {method: none}",
        "resources: {gpus: 0}",
        "binding: auto",
        "preflight: quick",
        "logs: {show: '0,3-5', prefix: host, format: json, files: node}",
        "logs: {prefix: '[{host} {local_rank}] ', fold: true}",
        "store: auto",
        "heartbeat: {timeout: 3s}",
        "detach: {timeout: never}",
        "slurm: {time: off}",
        "slurm: {margin: off, requeue: true}",
        "suspend: false",
        "suspend: true",
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

static void test_table(void)
{
    _buf_ struct buf table = {0};

    spec_print_table(&table);
    like(buf_str(&table), "*restart\\.max*", "keys are in the table");
    like(buf_str(&table), "Default: 3", "with defaults");
    like(buf_str(&table), "*search\\.parameters\\.NAME\\.min*",
         "inner ones too");
}

int main(void)
{
    test_short_form();
    test_templates();
    test_layers();
    test_names();
    test_requests();
    test_many_jobs();
    test_one_trial();
    test_no_notes();
    test_table();
    return tap_done();
}
