/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OME kinds: own cases, and, where the project's shared folder lies beside
 * the sources, every YAML block of the documents that users know and the
 * samples of upstream.
 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static struct outcome resolve(const char *text, bool accept_runtime)
{
    return outcome_of(&(struct spec_request){
        .text = text, .text_name = "t", .accept_runtime = accept_runtime});
}

static const char job_text[] =
    "apiVersion: ome.io/v1beta1\n"
    "kind: TrainingJob\n"
    "metadata:\n"
    "  name: tune\n"
    "  labels: {team: nlp}\n"
    "  annotations: {muster/restart.max: '9', muster/hang.timeout: 5m,\n"
    "                other: kept, muster/env.X: 'yes'}\n"
    "spec:\n"
    "  runtimeRef: {name: rt, kind: ClusterTrainingRuntime}\n"
    "  trainer:\n"
    "    image: img:2\n"
    "    args: [--epochs, '10']\n"
    "    env: [{name: A, value: job}, {name: B, value: $(A)}]\n"
    "    numProcPerNode: '2'\n"
    "    resourcesPerNode:\n"
    "      requests: {cpu: '8', memory: 32Gi, nvidia.com/gpu: '2'}\n"
    "      limits: {cpu: 4, rdma/hca: 1}\n"
    "  modelConfig:\n"
    "    inputModel: base\n"
    "    outputModel: {storageUri: 'oci://b/o', parameters: {region: r}}\n"
    "  datasets: {storageUri: 'oci://b/d', storageKey: k}\n"
    "  hyperParameterTuningConfig:\n"
    "    method: random\n"
    "    maxTrials: 10\n"
    "    metric: {name: acc, goal: maximize}\n"
    "    parameters:\n"
    "      lr: {type: double, min: 0.0001, max: 0.01, scale: log}\n"
    "      drop: {type: double, values: [0.1, 0.2]}\n"
    "      strategy: lora\n"
    "  compartmentID: ocid1\n"
    "---\n"
    "apiVersion: ome.io/v1beta1\n"
    "kind: ClusterTrainingRuntime\n"
    "metadata: {name: rt, labels: {of: runtime}}\n"
    "spec:\n"
    "  mlPolicy:\n"
    "    torch: {numProcPerNode: gpu, elasticPolicy: {minNodes: 2,\n"
    "            maxNodes: 8, maxRestarts: 5}}\n"
    "  podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 600}}\n"
    "  template:\n"
    "    spec:\n"
    "      failurePolicy: {maxRestarts: 4}\n"
    "      replicatedJobs:\n"
    "      - name: dataset-initializer\n"
    "      - name: trainer-node\n"
    "        replicas: 1\n"
    "        template:\n"
    "          spec:\n"
    "            backoffLimit: 6\n"
    "            template:\n"
    "              spec:\n"
    "                restartPolicy: Never\n"
    "                nodeSelector: {a: b}\n"
    "                containers:\n"
    "                - name: sidecar\n"
    "                - name: trainer\n"
    "                  image: img:1\n"
    "                  command: [python, train.py]\n"
    "                  workingDir: /w\n"
    "                  env: [{name: A, value: runtime}, {name: R, value: r}]\n"
    "                  resources: {limits: {nvidia.com/gpu: 8}}\n";

static void check_job(const struct job *job)
{
    _free_ char *argv = joined(&job->command), *env = joined(&job->env);
    _free_ char *labels = joined(&job->labels);
    _free_ char *annotations = joined(&job->annotations);

    is_str(job->name, "tune", "name");
    is_str(job->runtime, "rt", "runtime");
    is_str(argv, "python train.py --epochs 10", "command and args");
    is_str(env, "A=job R=r X=yes B=job", "env");
    is_str(labels, "team=nlp compartmentID=ocid1", "labels");
    is_str(annotations, "other=kept", "annotations");
    is_str(job->image, "img:2", "image");
    is_str(job->workdir, "/w", "workdir");
    ok(job->nodes.min == 2 && job->nodes.max == 8, "elastic");
    is_int(job->procs.n, 2, "procs");
    is_int(job->restart.max, 9, "an annotation sets what it names");
    is_int(job->restart.policy, JOB_RESTART_ON_FAILURE,
           "pods that never restart, in a set that does");
    is_int((intmax_t)job->hang_timeout_ms, 300000, "hang");
    is_int((intmax_t)job->gang_timeout_ms, 600000, "gang");
    is_int(job->resources.cpus_milli, 4000, "limits count");
    is_int(job->resources.gpus, 2, "the job's GPUs");
    is_int((intmax_t)(job->resources.memory_bytes >> 30), 32, "memory");
}

static void check_data(const struct job *job)
{
    const struct job_search *s = &job->search;

    is_int((int)job->n_inputs, 2, "model and dataset");
    is_str(job->inputs[0].from, "base", "model");
    is_str(job->inputs[1].credential, "k", "credential");
    is_int((int)job->n_outputs, 1, "output");
    is_str(job->outputs[0].to, "oci://b/o", "where to");
    is_str(job->outputs[0].parameters.items[0], "region=r", "parameters");
    is_int(s->method, JOB_SEARCH_RANDOM, "search");
    is_int(s->goal, JOB_MAXIMIZE, "goal");
    is_int((int)s->n_parameters, 3, "parameters");
    ok(s->parameters[0].max == 0.01 && s->parameters[0].scale == JOB_SCALE_LOG,
       "range");
    is_str(s->parameters[1].values.items[1], "0.2", "values");
    is_str(s->parameters[2].values.items[0], "lora", "a fixed value");
    is_int((int)s->parameters[2].values.n, 1, "is a list of one");
}

static void test_job(void)
{
    _outcome_ struct outcome o = resolve(job_text, false);

    is_int(o.rc, 0, "resolves: %s", o.error.text);
    if (o.rc < 0) {
        return;
    }
    check_job(o.result.job);
    check_data(o.result.job);
    like(o.all, "search is not acted on yet", "search is told");
    like(o.all, "inputs is not acted on yet", "so are inputs");
    like(o.all, "container is not acted on yet", "and the image");
    like(o.all, "dataset-initializer is not started", "and other jobs");
    like(o.all, "nodeSelector has no effect here", "and what pods need");
    like(o.all, "rdma/hca has no effect", "and other devices");
    is_str(spec_origin_of(&o.result, "workdir"), "t:59:31",
           "a value of the runtime");
}

static void test_budget(void)
{
    _outcome_ struct outcome o = outcome_of_text(
        "apiVersion: ome.io/v1beta1\nkind: TrainingJob\nmetadata: {name: a}\n"
        "spec: {runtimeRef: {name: r}, trainer: {command: [a]}}\n"
        "---\n"
        "apiVersion: ome.io/v1beta1\nkind: TrainingRuntime\n"
        "metadata: {name: r}\n"
        "spec:\n"
        "  mlPolicy: {numNodes: 4, torch: {elasticPolicy: {maxRestarts: 5}}}\n"
        "  template: {spec: {failurePolicy: {maxRestarts: 2}, replicatedJobs: "
        "[{name: x, template: {spec: {parallelism: 3, backoffLimit: 4}}}]}}\n");

    is_int(o.rc, 0, "resolves: %s", o.error.text);
    if (o.rc == 0) {
        is_int(o.result.job->restart.max, 2, "the smallest budget counts");
        is_int(o.result.job->nodes.min, 4, "numNodes beats parallelism");
        like(o.all, "parallelism 3 differs from numNodes 4", "with a warning");
    }
}

#define JOB(spec)                                                     \
    "apiVersion: ome.io/v1beta1\nkind: TrainingJob\nmetadata: {name: a}\n" \
    "spec: " spec "\n"
#define RUNTIME(spec)                                                 \
    "apiVersion: ome.io/v1beta1\nkind: TrainingRuntime\n"                  \
    "metadata: {name: a}\nspec: " spec "\n"

static void test_bad(void)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"apiVersion: ome.io/v1beta1\nkind: TrainingJob\n",
         "t:1:1: metadata is missing; expected a map"},
        {JOB("5"), "t:4:7: spec is \"5\"; expected a map"},
        {JOB("{trainr: {}}"),
         "t:4:8: unknown key \"trainr\" in spec; did you mean trainer"},
        {JOB("{trainer: {numNodes: 0}}"),
         "spec.trainer.numNodes is \"0\"; expected a whole number from 1"},
        {JOB("{trainer: {numProcPerNode: many}}"),
         "spec.trainer.numProcPerNode is \"many\"; expected auto, cpu, gpu"},
        {JOB("{trainer: {command: python}}"),
         "spec.trainer.command is \"python\"; expected a list"},
        {JOB("{trainer: {resourcesPerNode: {cpu: 1}}}"),
         "resourcesPerNode has \"cpu\"; expected requests and limits"},
        {JOB("{trainer: {resourcesPerNode: {limits: {memory: lots}}}}"),
         "memory is \"lots\"; expected an amount of memory"},
        {JOB("{runtimeRef: {}}"), "spec.runtimeRef.name is missing"},
        {JOB("{runtimeRef: {name: nope}, trainer: {command: [a]}}"),
         "t:4:27: runtime nope is not known"},
        {JOB("{datasets: {parameters: {a: b}}}"),
         "spec.datasets has neither storageUri nor path"},
        {JOB("{hyperParameterTuningConfig: {method: guess}}"),
         "method is \"guess\"; expected grid, random or bayes"},
        {JOB("{hyperParameterTuningConfig: {maxTrials: 3}}"),
         "hyperParameterTuningConfig.method is missing"},
        {JOB("{trainer: {}}"), "command is missing; expected the program"},
        {"apiVersion: ome.io/v1beta1\nkind: TrainingJob\nmetadata: {name: a, "
         "annotations: {muster/nodez: 3}}\nspec: {}\n",
         "t:3:49: unknown key \"nodez\"; did you mean nodes"},
        {RUNTIME("{mlPolicy: {torch: {}, mpi: {}}}"),
         "spec.mlPolicy has both torch and mpi; expected one of them"},
        {RUNTIME("{mlPolicy: {torch: {elasticPolicy: {minNodes: 4, "
                 "maxNodes: 2}}}}"),
         "minNodes..maxNodes is 4..2; expected minNodes at most maxNodes"},
        {RUNTIME("{template: {spec: {replicatedJobs: [{name: a}, {name: b}]}}}"),
         "replicatedJobs has the names a, b; expected one item, or one named "
         "trainer-node, trainer or launcher"},
        {RUNTIME("{template: {spec: {replicatedJobs: []}}}"), "has no items"},
        {RUNTIME("{template: {spec: {replicatedJobs: 5}}}"),
         "replicatedJobs is text; expected a list of maps"},
        {RUNTIME("{podGroupPolicy: {coscheduling: {scheduleTimeout: 5}}}"),
         "expected one of scheduleTimeoutSeconds"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = resolve(cases[i].text, true);

        is_int(o.rc, -ERR_SPEC, "refused: %s", strchr(cases[i].text, ':'));
        like(o.error.text, cases[i].error, "and says why");
    }
}

/* What keys say together, and what is nothing. */
static void test_settled(void)
{
    static const struct {
        const char *spec; /* of the runtime */
        const char *want; /* nodes, restart, grace, gang */
        const char *message;
    } cases[] = {
        {"{}", "1..1 OnFailure 3 30000 300000", ""},
        {"{mlPolicy: {torch: {elasticPolicy: {minNodes: 2}}}}",
         "2..2 OnFailure 3 30000 300000", ""},
        {"{mlPolicy: {torch: {elasticPolicy: {maxNodes: 3, minNodes: }}}}",
         "3..3 OnFailure 3 30000 300000", ""},
        {"{mlPolicy: {torch: {elasticPolicy: {maxRestarts: 7}}, mpi: }}",
         "1..1 OnFailure 7 30000 300000", ""},
        {"{mlPolicy: {numNodes: 1, torch: {elasticPolicy: {minNodes: 2, "
         "maxNodes: 4}}}}", "2..4 OnFailure 3 30000 300000",
         "numNodes 1 is outside of elasticPolicy's 2..4; the latter counts"},
        {"{mlPolicy: {numNodes: 5, torch: {elasticPolicy: {minNodes: 2, "
         "maxNodes: 4}}}}", "2..4 OnFailure 3 30000 300000",
         "numNodes 5 is outside of elasticPolicy's 2..4; the latter counts"},
        {"{mlPolicy: {numNodes: 2, torch: {elasticPolicy: {minNodes: 2, "
         "maxNodes: 2}}}}", "2..2 OnFailure 3 30000 300000", ""},
        {"{mlPolicy: {torch: {elasticPolicy: {minNodes: 2, maxNodes: 4, metrics: "
         "[{type: Resource, resource: {name: cpu}}]}}}}",
         "2..4 OnFailure 3 30000 300000", "warning: t:4:78: "
         "spec.mlPolicy.torch.elasticPolicy.metrics is not honoured: muster does not "
         "scale by load. The job has as many of its 2 to 4 nodes as there are"},
        {"{mlPolicy: {torch: {elasticPolicy: {minNodes: 2, metrics: [{type: x}]}}}}",
         "2..2 OnFailure 3 30000 300000", "elasticPolicy.metrics is not honoured, and "
         "would change nothing: the number of nodes is fixed"},
        {"{mlPolicy: {torch: {elasticPolicy: {metrics: 5}}}}",
         "1..1 OnFailure 3 30000 300000", "warning: "},
        {"{mlPolicy: {torch: {elasticPolicy: {minNodes: 2, maxNodes: 4, metrics: []}}}}",
         "2..4 OnFailure 3 30000 300000", ""},
        {"{mlPolicy: {torch: {elasticPolicy: {minNodes: 2, maxNodes: 4, metrics: }}}}",
         "2..4 OnFailure 3 30000 300000", ""},
        {"{podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 0}}}",
         "1..1 OnFailure 3 30000 300000", ""},
        {"{podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 60}}}",
         "1..1 OnFailure 3 30000 60000", ""},
        {"{template: {spec: {replicatedJobs: [{name: a, replicas: 1, template: "
         "{spec: {parallelism: 3}}}]}}}", "3..3 OnFailure 3 30000 300000", ""},
        {"{template: {spec: {replicatedJobs: [{name: a, replicas: 2, template: "
         "{spec: {parallelism: 0, completions: 0}}}]}}}",
         "1..1 OnFailure 3 30000 300000",
         "a.replicas is 2; muster starts one group"},
        {"{template: {spec: {replicatedJobs: [{name: launcher, template: "
         "{spec: {parallelism: 2}}}, {name: b}]}}}",
         "1..1 OnFailure 3 30000 300000", "b is not started: muster starts "
         "launcher only"},
        {"{template: {spec: {replicatedJobs: [{name: launcher}, {name: "
         "trainer-node, template: {spec: {parallelism: 2}}}]}}}",
         "2..2 OnFailure 3 30000 300000", "launcher is not started"},
        {"{template: {spec: {failurePolicy: {maxRestarts: 4}, replicatedJobs: "
         "[{name: a, template: {spec: {backoffLimit: 4, template: {spec: "
         "{restartPolicy: Never}}}}}]}}}",
         "1..1 OnFailure 4 30000 300000", ""},
        {"{template: {spec: {failurePolicy: {maxRestarts: 0}, replicatedJobs: "
         "[{name: a, template: {spec: {backoffLimit: 4, template: {spec: "
         "{restartPolicy: Never}}}}}]}}}",
         "1..1 Never 0 30000 300000", ""},
        {"{template: {spec: {replicatedJobs: [{name: a, template: {spec: "
         "{template: {spec: {restartPolicy: Never, "
         "terminationGracePeriodSeconds: 0}}}}}]}}}",
         "1..1 Never 3 0 300000", ""},
        {"{template: {spec: {replicatedJobs: [{name: a, template: {spec: "
         "{template: {spec: {terminationGracePeriodSeconds: 5}}}}}]}}}",
         "1..1 OnFailure 3 5000 300000", ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf text = {0}, got = {0};
        _outcome_ struct outcome o = {0};

        buf_printf(&text, RUNTIME("%s") "---\n"
                   JOB("{runtimeRef: {name: a}, trainer: {command: [x]}}"),
                   cases[i].spec);
        o = resolve(buf_str(&text), false);
        if (o.rc == 0) {
            const struct job *j = o.result.job;

            buf_printf(&got, "%u..%u %s %u %d %d", j->nodes.min, j->nodes.max,
                       j->restart.policy == JOB_RESTART_NEVER ? "Never"
                                                              : "OnFailure",
                       j->restart.max, (int)j->limits.grace_ms,
                       (int)j->gang_timeout_ms);
        }
        is_str(o.rc == 0 ? buf_str(&got) : o.error.text, cases[i].want, "%s",
               cases[i].spec);
        like(o.all, cases[i].message, "and what is told");
        ok(cases[i].message[0] || !strstr(o.all, "warning"), "no warning");
    }
}

static void test_generated_name(void)
{
    static const char *const cases[][2] = {
        {"{generateName: ft-}", "ft"},
        {"{generateName: ft}", "ft"},
        {"{generateName: ft-, name: own}", "own"},
        {"{name: own, generateName: ft-}", "own"},
        {"{generateName: Ft-}", "t:3:26: name is \"Ft\"; expected a name of a-z, "
                                "0-9 and -, at most 63 of them"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf text = {0};
        _outcome_ struct outcome o = {0};

        buf_printf(&text, "apiVersion: ome.io/v1beta1\nkind: TrainingJob\n"
                   "metadata: %s\nspec: {trainer: {command: [x]}}\n",
                   cases[i][0]);
        o = resolve(buf_str(&text), false);
        is_str(o.rc == 0 ? o.result.job->name : o.error.text, cases[i][1],
               "%s", cases[i][0]);
    }
}

static void test_trainer(void)
{
    static const struct {
        const char *spec, *want; /* inputs and GPUs, or an error */
    } cases[] = {
        {"datasets: {path: /d, storageKey: , key: k}", "/d>dataset:k 0"},
        {"datasets: {storageUri: 's3://b', path: /d, storageKey: n, key: k}",
         "s3://b>dataset:n 0"},
        {"datasets: {storageUri: , path: /d}", "/d>dataset:- 0"},
        {"datasets: {storageUri: null, path: ~}",
         "t:4:43: spec.datasets has neither storageUri nor path; expected one "
         "of them"},
        {"modelConfig: {inputModel: m}", "m>model:- 0"},
        {"hyperParameterTuningConfig: {method: grid, metric: {name: m}, "
         "parameters: {a: {type: discrete, values: [1, 2]}}}", " 0"},
        {"trainer: {command: [a], resourcesPerNode: {requests: {hygon.com/dcu: "
         "3}}}", " 3"},
        {"trainer: {command: [a], resourcesPerNode: {requests: {amd.com/gpu: "
         "3}, limits: }}", " 3"},
        {"trainer: {command: [a], resourcesPerNode: {requests: {"
         "nvidia.com/gpu: 3}, limits: {nvidia.com/gpu: '4'}}}", " 4"},
        {"trainer: {command: [a], resourcesPerNode: {limits: {"
         "nvidia.com/gpu: 3}, requests: {nvidia.com/gpu: '2'}}}", " 3"},
        {"trainer: {command: [a], resourcesPerNode: [x]}",
         "t:4:50: spec.trainer.resourcesPerNode is a list; expected a map of "
         "requests and limits"},
        {"trainer: {command: [a], resourcesPerNode: 5}",
         "t:4:50: spec.trainer.resourcesPerNode is text; expected a map of "
         "requests and limits"},
        {"trainer: {command: [a], resourcesPerNode: {limits: [x]}}",
         "t:4:59: spec.trainer.resourcesPerNode.limits is a list; expected a "
         "map"},
        {"trainer: {command: [a], resourcesPerNode: {limits: {nvidia.com/gpu: "
         "0.5}}}", "t:4:76: spec.trainer.resourcesPerNode.gpu is \"0.5\"; "
         "expected a whole number from 0 to 1024, in decimal"},
        {"trainer: {command: [a], numNodes: '2', env: [{name: A, value: x, "
         "valueFrom: {secretKeyRef: {}}}]}",
         "t:4:84: env has value and valueFrom for A; expected one of them"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf text = {0}, got = {0};
        _outcome_ struct outcome o = {0};

        buf_printf(&text, JOB("{%s%s}"),
                   strstr(cases[i].spec, "trainer") ? "" :
                   "trainer: {command: [a]}, ", cases[i].spec);
        o = resolve(buf_str(&text), false);
        for (size_t k = 0; o.rc == 0 && k < o.result.job->n_inputs; k++) {
            const struct job_transfer *t = &o.result.job->inputs[k];

            buf_printf(&got, "%s>%s:%s", t->from, t->to,
                       t->credential ? t->credential : "-");
        }
        if (o.rc == 0) {
            buf_printf(&got, " %u", o.result.job->resources.gpus);
        }
        is_str(o.rc == 0 ? buf_str(&got) : o.error.text, cases[i].want, "%s",
               cases[i].spec);
    }
}

static void test_built_in(void)
{
    static const char *const names[] = {
        "pytorch-runtime", "pytorch-distributed-runtime", "mpi-runtime"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _buf_ struct buf text = {0};
        _outcome_ struct outcome o = {0};

        buf_printf(&text,
                   JOB("{runtimeRef: {name: %s}, trainer: {command: [a]}}"),
                   names[i]);
        o = resolve(buf_str(&text), false);
        is_int(o.rc, 0, "%s is built in: %s", names[i], o.error.text);
        is_int(o.rc == 0 && o.result.job->program == JOB_MPI, i == 2,
               "and is of its kind");
    }
}

/* --- documents and samples of others --- */

static void check_block(const char *text, const char *name, unsigned number,
                        const char *expect_error)
{
    _outcome_ struct outcome o = resolve(text, true);

    if (!strstr(text, "apiVersion:")) {
        is_int(o.rc, -ERR_SPEC, "%s block %u is a part, and refused", name,
               number);
        like(o.error.text, "apiVersion and kind are missing", "as such");
    } else if (expect_error) {
        is_int(o.rc, -ERR_SPEC, "%s block %u is refused", name, number);
        like(o.error.text, expect_error, "with the reason");
    } else {
        is_int(o.rc, 0, "%s block %u resolves: %s", name, number,
               o.error.text);
    }
}

/* What is wrong with a block that is a whole document. */
static const char *known_fault(const char *text)
{
    if (strstr(text, "kind: Role")) {
        return "kind Role of rbac.authorization.k8s.io/v1 is no training job";
    }
    if (strstr(text, "kind: TrainingJob") && !strstr(text, "command:")) {
        return "command is missing, in the job and in runtime";
    }
    return NULL;
}

/* Each ```yaml ... ``` of a document. */
static void check_document(const char *path, const char *name)
{
    _free_ char *text = NULL;
    unsigned number = 0;

    if (fs_read(path, 1 << 20, &text, NULL, NULL) < 0) {
        skip("%s is not there", name);
        return;
    }
    for (char *at = text, *end; (at = strstr(at, "```yaml\n")); at = end + 1) {
        at += strlen("```yaml\n");
        end = strstr(at, "```");
        if (!end) {
            break;
        }
        *end = '\0';
        check_block(at, name, ++number, known_fault(at));
    }
    ok(number >= 12, "%s had %u blocks", name, number);
}

static void check_sample(const char *path, const char *const *dirs,
                         const char *error)
{
    _outcome_ struct outcome o = outcome_of(&(struct spec_request){
        .path = path, .accept_runtime = true, .runtime_dirs = dirs});

    if (error) {
        is_int(o.rc, -ERR_SPEC, "%s is refused", strrchr(path, '/') + 1);
        like(o.error.text, error, "with the reason");
    } else {
        is_int(o.rc, 0, "%s resolves: %s", strrchr(path, '/') + 1,
               o.error.text);
    }
}

static void check_samples(const char *root)
{
    static const struct {
        const char *file, *error;
    } samples[] = {
        {"samples/training/llama-3-70b-instruct-training-job.yaml",
         "command is missing, in the job and in runtime llama-3-70b"},
        {"samples/training/command-52b-v14-2-0-training-job-tfew.yaml", NULL},
        {"samples/training/command-6b-v15-6-0-training-job-vanilla.yaml",
         "runtime cohere-command-light-ft is not known"},
        {"samples/training/"
         "command2-35b-v19-0-0-float32-v1-2-16k-training-job.yaml",
         "runtime cohere-command-r-ft is not known; did you mean "
         "cohere-command-ft"},
        {"runtimes/vllm/llama-3-70b-instruct-ft-rt.yaml", NULL},
        {"runtimes/vllm/llama-3-3-70b-instruct-ft-rt.yaml", NULL},
        {"runtimes/cohere/cohere-command-ft.yaml", NULL},
        {"crd/minimal/ome.io_trainingjobs.yaml",
         "kind CustomResourceDefinition"},
    };
    char vllm[4096], cohere[4096], path[4096];
    const char *const dirs[] = {vllm, cohere, NULL};

    fs_path(vllm, sizeof(vllm), NULL, "%s/config/runtimes/vllm", root);
    fs_path(cohere, sizeof(cohere), NULL, "%s/config/runtimes/cohere", root);
    for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
        fs_path(path, sizeof(path), NULL, "%s/config/%s", root,
                samples[i].file);
        check_sample(path, dirs, samples[i].error);
    }
}

static void test_shared(void)
{
    const char *srcdir = getenv("MUSTER_SRCDIR");
    char path[4096];
    _free_ struct dirent **names = NULL;
    int n;

    fs_path(path, sizeof(path), NULL, "%s/../shared/seeds",
            srcdir ? srcdir : ".");
    n = scandir(path, &names, NULL, alphasort);
    if (n < 0) {
        skip("no shared folder beside the sources");
        return;
    }
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;

        if (strncmp(name, "000", 3) == 0 || strncmp(name, "001", 3) == 0) {
            fs_path(path, sizeof(path), NULL, "%s/../shared/seeds/%s", srcdir,
                    name);
            check_document(path, name);
        }
        free(names[i]);
    }
    fs_path(path, sizeof(path), NULL, "%s/../shared/fixtures/specs/ome",
            srcdir);
    check_samples(path);
}

int main(void)
{
    test_job();
    test_budget();
    test_bad();
    test_settled();
    test_generated_name();
    test_trainer();
    test_built_in();
    test_shared();
    return tap_done();
}
