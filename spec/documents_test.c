/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of several documents and of several dialects: which one is the job,
 * which runtime it gets, and what is said of the others.
 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define JOB(name) \
    "apiVersion: muster/v1\nkind: Job\nname: " name "\ncommand: [a]\n"
#define USER(keys) "apiVersion: muster/v1\nkind: Job\nruntime: r\n" keys
#define RUNTIME(name, keys) \
    "apiVersion: muster/v1\nkind: Runtime\nname: " name "\n" keys
#define OME_RUNTIME(kind, dir)                                       \
    "apiVersion: ome.io/v1beta1\nkind: " kind "\nmetadata: {name: r}\n" \
    "spec: {template: {spec: {replicatedJobs: [{name: node, template: {" \
    "spec: {template: {spec: {containers: [{name: trainer, workingDir: " \
    dir "}]}}}}}]}}}\n"
#define OME_JOB(ref)                                                  \
    "apiVersion: ome.io/v1beta1\nkind: TrainingJob\nmetadata: {name: a}\n" \
    "spec: {runtimeRef: " ref ", trainer: {command: [a]}}\n"
#define KNOWN                                                        \
    "expected one of Job of muster/v1, Runtime of muster/v1, TrainingJob of " \
    "ome.io/v1beta1, TrainingRuntime of ome.io/v1beta1, " \
    "ClusterTrainingRuntime of ome.io/v1beta1"

static struct outcome resolve(const char *text)
{
    return outcome_of(&(struct spec_request){
        .text = text, .text_name = "t", .accept_runtime = true});
}

/* Each of these is the whole error. */
static void test_kinds(void)
{
    static const struct {
        const char *version, *kind, *error;
    } cases[] = {
        {"kubeflow.org/v1", "PyTorchJob",
         "t:2:7: kind PyTorchJob of kubeflow.org/v1 cannot be run yet; " KNOWN},
        {"kubeflow.org/v2beta1", "MPIJob",
         "t:2:7: kind MPIJob of kubeflow.org/v2beta1 cannot be run yet; " KNOWN},
        {"jobset.x-k8s.io/v1alpha2", "JobSet",
         "t:2:7: kind JobSet of jobset.x-k8s.io/v1alpha2 cannot be run yet; "
         KNOWN},
        {"trainer.kubeflow.org/v1alpha1", "TrainJob",
         "t:2:7: kind TrainJob of trainer.kubeflow.org/v1alpha1 cannot be run "
         "yet; " KNOWN},
        {"trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime",
         "t:2:7: kind ClusterTrainingRuntime of trainer.kubeflow.org/v1alpha1 "
         "cannot be run yet; " KNOWN},
        {"kubeflow.org/v1beta1", "Experiment",
         "t:2:7: kind Experiment of kubeflow.org/v1beta1 cannot be run yet; "
         KNOWN},
        {"batch.tensorstack.dev/v1beta1", "PyTorchTrainingJob",
         "t:2:7: kind PyTorchTrainingJob of batch.tensorstack.dev/v1beta1 "
         "cannot be run yet; " KNOWN},
        {"batch/v1", "Job", "t:2:7: kind Job of batch/v1 is no training job "
                            "that muster knows; " KNOWN},
        {"v1", "ConfigMap", "t:2:7: kind ConfigMap of v1 is no training job "
                            "that muster knows; " KNOWN},
        {"rbac.authorization.k8s.io/v1", "Role",
         "t:2:7: kind Role of rbac.authorization.k8s.io/v1 is no training job "
         "that muster knows; " KNOWN},
        {"ome.io/v1beta1", "TrainngJob",
         "t:2:7: kind TrainngJob of ome.io/v1beta1; did you mean TrainingJob? "
         KNOWN},
        {"muster/v1", "Jbo", "t:2:7: kind Jbo of muster/v1; did you mean Job? "
                             KNOWN},
        {"ome.io/v1", "TrainingJob",
         "t:1:13: apiVersion ome.io/v1 of a TrainingJob; expected "
         "ome.io/v1beta1"},
        {"muster/v2", "Job",
         "t:1:13: apiVersion muster/v2 of a Job; expected muster/v1"},
        {"muster", "Job", "t:2:7: kind Job of muster is no training job that "
                          "muster knows; " KNOWN},
        {"muster/v1", "~", "t:1:1: kind is missing, so this is only a part of "
                           "a job; expected a whole one, such as apiVersion: "
                           "muster/v1 and kind: Job"},
        {"muster/v1", "''", "t:1:1: kind is missing, so this is only a part of "
                            "a job; expected a whole one, such as apiVersion: "
                            "muster/v1 and kind: Job"},
        {"null", "Job", "t:1:1: apiVersion is missing, so this is only a part "
                        "of a job; expected a whole one, such as apiVersion: "
                        "muster/v1 and kind: Job"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf text = {0};
        _outcome_ struct outcome o = {0};

        buf_printf(&text, "apiVersion: %s\nkind: %s\nspec: {x: 1}\n",
                   cases[i].version, cases[i].kind);
        o = resolve(buf_str(&text));
        is_int(o.rc, -ERR_SPEC, "refused: %s of %s", cases[i].kind,
               cases[i].version);
        is_str(o.error.text, cases[i].error, "and says why");
    }
}

static void test_which_job(void)
{
    static const struct {
        const char *text, *want, *all; /* a name, or the beginning of an error */
    } cases[] = {
        {RUNTIME("r", "") "---\n" USER("command: [a]\nname: j\n"), "j", ""},
        {USER("command: [a]\nname: j\n") "---\n" RUNTIME("r", "workdir: /w\n"),
         "j", ""},
        {JOB("j") "---\n", "j", ""},
        {"---\n---\n" JOB("j") "...\n", "j", ""},
        {JOB("j") "---\napiVersion: v1\nkind: ConfigMap\n", "j",
         "note: t:6:1: kind ConfigMap is skipped: it is no training job that "
         "muster knows\n"},
        {"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n---\n" JOB("j"), "j",
         "note: t:1:1: kind PyTorchJob is skipped: it cannot be run yet\n"},
        {"apiVersion: batch/v1\nkind: Job\n---\n" JOB("j"), "j",
         "note: t:1:1: kind Job is skipped: it is no training job that muster "
         "knows\n"},
        {JOB("j") "---\napiVersion: ome.io/v1beta1\nkind: TrainngJob\n", "j",
         "warning: t:6:1: kind TrainngJob is skipped; did you mean TrainingJob "
         "of ome.io/v1beta1?\n"},
        {JOB("j") "---\napiVersion: muster/v1\nkind: Jobs\n",
         "t:7:7: kind Jobs of muster/v1; did you mean Job?", NULL},
        {JOB("j") "---\na: 1\n", "t:6:1: apiVersion and kind are missing",
         NULL},
        {JOB("j") "---\n[1]\n", "t:6:1: a list; expected a job", NULL},
        {JOB("a") "---\n" JOB("b"),
         "t: 2 jobs in it; expected the name of one of a, b", NULL},
        {JOB("a") "---\n" JOB("a"),
         "t: 2 jobs in it; expected the name of one of a, a", NULL},
        {RUNTIME("r", "") "---\napiVersion: ome.io/v1beta1\nkind: TrainngJob\n",
         "r", NULL},
        {"apiVersion: v1\nkind: Secret\n---\napiVersion: ome.io/v1beta1\n"
         "kind: TrainngJob\n",
         "t:5:7: kind TrainngJob of ome.io/v1beta1; did you mean TrainingJob?",
         NULL},
        {"apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Pod\n",
         "t:2:7: kind Secret of v1 is no training job", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = resolve(cases[i].text);

        if (cases[i].want[0] == 't' && cases[i].want[1] == ':') {
            is_int(o.rc, -ERR_SPEC, "case %zu is refused", i);
            like(o.error.text, cases[i].want, "and says why");
        } else {
            is_str(o.rc == 0 ? o.result.job->name : o.error.text,
                   cases[i].want, "case %zu: the job", i);
        }
        if (cases[i].all) {
            is_str(o.all, cases[i].all, "and what is told");
        }
    }
}

static void test_by_name(void)
{
    static const char text[] = JOB("a") "---\n" JOB("b") "---\n" JOB("a")
        "---\napiVersion: ome.io/v1beta1\nkind: TrainingJob\n"
        "metadata: {name: c}\nspec: {trainer: {command: [x]}}\n";
    static const struct {
        const char *job, *want, *error;
    } cases[] = {
        {"b", "b", NULL},
        {"c", "c", NULL},
        {"a", NULL, "t:11:1: job a again, first on line 1; expected one of "
                    "that name"},
        {"d", NULL, "t: no job d in it; expected one of a, b, a, c"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of(&(struct spec_request){
            .text = text, .text_name = "t", .job = cases[i].job});

        if (cases[i].error) {
            is_str(o.error.text, cases[i].error, "--job %s", cases[i].job);
        } else {
            is_str(o.rc == 0 ? o.result.job->name : o.error.text,
                   cases[i].want, "--job %s", cases[i].job);
        }
    }
}

/* Which of several runtimes of one name is taken: told by its workdir. */
static void test_which_runtime(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {USER("command: [a]\n") "---\n" RUNTIME("x", "workdir: /x\n") "---\n"
         RUNTIME("r", "workdir: /r\n"), "/r"},
        {USER("command: [a]\n") "---\n" RUNTIME("r", "workdir: /1\n") "---\n"
         RUNTIME("r", "workdir: /2\n"),
         "t:11:1: runtime r again, first on line 6; expected one of that name"},
        {OME_JOB("{name: r}") "---\n"
         OME_RUNTIME("ClusterTrainingRuntime", "/c") "---\n"
         OME_RUNTIME("TrainingRuntime", "/n"), "/n"},
        {OME_JOB("{name: r, kind: ClusterTrainingRuntime}") "---\n"
         OME_RUNTIME("TrainingRuntime", "/n") "---\n"
         OME_RUNTIME("ClusterTrainingRuntime", "/c"), "/c"},
        {OME_JOB("{name: r, kind: TrainingRuntime}") "---\n"
         OME_RUNTIME("ClusterTrainingRuntime", "/c"), "/c"},
        {OME_JOB("{name: r, kind: ClusterTrainingRuntime}") "---\n"
         OME_RUNTIME("TrainingRuntime", "/n"), "/n"},
        {OME_JOB("{name: r, kind: ClusterTrainingRuntime}") "---\n"
         OME_RUNTIME("ClusterTrainingRuntime", "/c") "---\n"
         OME_RUNTIME("TrainingRuntime", "/n") "---\n"
         OME_RUNTIME("ClusterTrainingRuntime", "/d"),
         "t:16:1: runtime r again, first on line 6; expected one of that name"},
        {OME_JOB("{name: r, kind: ClusterTrainingRuntime}") "---\n"
         OME_RUNTIME("TrainingRuntime", "/n") "---\n"
         OME_RUNTIME("TrainingRuntime", "/m") "---\n"
         OME_RUNTIME("ClusterTrainingRuntime", "/d"), "/d"},
        {OME_JOB("{name: r, kind: Runtme}"),
         "t:4:36: spec.runtimeRef.kind is \"Runtme\"; expected TrainingRuntime "
         "or ClusterTrainingRuntime"},
        {OME_JOB("{name: r, apiGroup: trainer.kubeflow.org}"),
         "t:4:40: spec.runtimeRef.apiGroup is \"trainer.kubeflow.org\"; "
         "expected ome.io"},
        {OME_JOB("{name: }"), "t:4:20: spec.runtimeRef.name is missing; "
                              "expected text"},
        {RUNTIME("r", "runtime: pytorch-runtime\n"),
         "t:4:10: runtime pytorch-runtime of a runtime; expected none"},
        {USER("command: [a]\n") "---\n" RUNTIME("r", "runtime: none\n"
                                                     "workdir: /w\n"), "/w"},
        {USER("command: [a]\nworkdir: ~\n") "---\n"
         RUNTIME("r", "workdir: /w\n"), ""},
        {USER("command: [a]\n") "---\n" RUNTIME("rr", ""),
         "t:3:10: runtime r is not known; did you mean rr"},
        {USER("command: [a]\n") "---\n" RUNTIME("site", ""),
         "t:3:10: runtime r is not known; expected one of site, "
         "pytorch-runtime, pytorch-distributed-runtime, mpi-runtime"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = resolve(cases[i].text);
        const char *dir = o.rc == 0 ? o.result.job->workdir : o.error.text;

        is_str(dir ? dir : "", cases[i].want, "case %zu: the runtime", i);
    }
}

static void write_text(const char *path, const char *text)
{
    struct error e = {0};

    if (fs_write_replace(path, text, strlen(text), &e) < 0) {
        bail_out("%s", e.text);
    }
}

/* Folders of runtimes: the first file that has it counts; a bad one is told, and
 * a pipe is not waited for. */
static void test_folders(void)
{
    char dir[] = "/tmp/muster-spec-XXXXXX";
    char user[64], site[64], path[128];
    const char *dirs[] = {user, site, NULL};
    _outcome_ struct outcome o = {0}, none = {0};

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(user, sizeof(user), "%s/user", dir);
    snprintf(site, sizeof(site), "%s/site", dir);
    mkdir(user, 0700);
    mkdir(site, 0700);
    snprintf(path, sizeof(path), "%s/a.yaml", user);
    mkfifo(path, 0600);
    snprintf(path, sizeof(path), "%s/b.yaml", user);
    write_text(path, JOB("r") "---\n" RUNTIME("other", ""));
    snprintf(path, sizeof(path), "%s/c.yml", user);
    write_text(path, RUNTIME("r", "workdir: /user\n"));
    snprintf(path, sizeof(path), "%s/a.json", site);
    write_text(path, "{\"apiVersion\": \"muster/v1\", \"kind\": \"Runtime\","
                     "\"name\": \"s\", \"workdir\": \"/site\"}");
    snprintf(path, sizeof(path), "%s/b.yaml", site);
    write_text(path, RUNTIME("r", "workdir: /site\n"));
    snprintf(path, sizeof(path), "%s/.hidden.yaml", site);
    write_text(path, RUNTIME("hidden", ""));
    snprintf(path, sizeof(path), "%s/readme.txt", site);
    write_text(path, RUNTIME("text", ""));

    o = outcome_of(&(struct spec_request){
        .text = USER("command: [a]\n"), .text_name = "t",
        .runtime_dirs = dirs});
    is_str(o.rc == 0 ? o.result.job->workdir : o.error.text, "/user",
           "the first folder counts");
    like(o.all, "user/a.yaml is not a file", "a pipe is skipped");
    none = outcome_of(&(struct spec_request){
        .text = "apiVersion: muster/v1\nkind: Job\nruntime: hidn\n"
                "command: [a]\n",
        .text_name = "t", .runtime_dirs = dirs});
    is_str(none.error.text,
           "t:3:10: runtime hidn is not known; expected one of other, r, s, r, "
           "pytorch-runtime, pytorch-distributed-runtime, mpi-runtime",
           "hidden files and others are not read");
    fs_remove_tree(dir, NULL);
}

int main(void)
{
    test_kinds();
    test_which_job();
    test_by_name();
    test_which_runtime();
    test_folders();
    return tap_done();
}
