/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed, accelerate launch and horovodrun, with the files that they read.
 * */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "spec/testing.h"
#include "spec/value.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct outcome resolve(const char *command, const char *keys)
{
    return outcome_of_command(command, keys, NULL);
}

static char *show(const struct outcome *o)
{
    const struct job *job = o->result.job;
    struct buf b = {0};
    _free_ char *argv = job ? joined(&job->command) : NULL;

    if (!job) {
        return NULL;
    }
    buf_printf(&b, "%s| %u x ", argv, job->nodes.max);
    if (job->procs.mode == JOB_PROCS_FIXED) {
        buf_printf(&b, "%u", job->procs.n);
    } else {
        buf_puts(&b, "auto");
    }
    return buf_take(&b);
}

static void test_commands(void)
{
    static const struct {
        const char *command, *keys, *want, *message;
    } cases[] = {
        {"deepspeed t.py --deepspeed ds.json", "",
         "python3 -u t.py --local_rank=$(LOCAL_RANK) --deepspeed ds.json| "
         "1 x auto", "deepspeed is not run: muster starts t.py itself"},
        {"/v/bin/deepspeed --num_nodes 2 --num_gpus=4 --no_local_rank t.py",
         "", "/v/bin/python3 -u t.py| 2 x 4", ""},
        {"python -m deepspeed.launcher.runner --num_accelerators 3 --module m",
         "", "python -u -m m --local_rank=$(LOCAL_RANK)| 1 x 3", ""},
        {"deepspeed --no_python --no_local_rank ./a b", "", "./a b| 1 x auto",
         ""},
        {"deepspeed --include localhost:0,2,5 t.py", "",
         "python3 -u t.py --local_rank=$(LOCAL_RANK)| 1 x 3", ""},
        {"deepspeed --include localhost:1 --num_nodes 1 t.py",
         "procsPerNode: 2",
         "python3 -u t.py --local_rank=$(LOCAL_RANK)| 1 x 2",
         "differs from procsPerNode 2"},
        {"deepspeed --master_port 1 --master_addr h --launcher openmpi "
         "--no_ssh_check --force_multi --log_level debug t.py", "",
         "python3 -u t.py --local_rank=$(LOCAL_RANK)| 1 x auto",
         "--launcher of deepspeed has no effect: muster starts the other "
         "hosts itself"},
        {"python /v/bin/accelerate launch t.py", "",
         "python -u t.py| 1 x auto", ""},
        {"python /v/bin/deepspeed --no_local_rank t.py", "",
         "python -u t.py| 1 x auto", ""},
        {"accelerate launch t.py --lr 1", "", "python3 -u t.py --lr 1| "
         "1 x auto", "one process a GPU"},
        {"/v/bin/accelerate-launch --num_processes 4 -m pkg.mod", "",
         "/v/bin/python3 -u -m pkg.mod| 1 x 4", ""},
        {"accelerate launch --num-processes=8 --num_machines 2 t.py", "",
         "python3 -u t.py| 2 x 4", ""},
        {"python -m accelerate.commands.launch --num_processes 2 t.py", "",
         "python -u t.py| 1 x 2", ""},
        {"python -m accelerate.commands.accelerate_cli launch t.py", "",
         "python -u t.py| 1 x auto", ""},
        {"accelerate launch --num_processes 2 --no_python ./a", "",
         "./a| 1 x 2", ""},
        {"accelerate launch --main_process_port 0 --machine_rank 1 t.py",
         "procsPerNode: 2", "python3 -u t.py| 1 x 2",
         "--machine_rank of accelerate launch has no effect: muster gathers"},
        {"horovodrun -np 4 python t.py", "", "python t.py| 1 x 4",
         "horovodrun is not run: muster starts python itself"},
        {"horovodrun -np 8 -H a:4,b:4 python t.py", "", "python t.py| 2 x 4",
         "-H of horovodrun names the hosts, as --hosts a:4,b:4 would"},
        {"horovodrun --num-proc 2 -H localhost:2 --gloo t", "", "t| 1 x 2",
         ""},
        {"horovodrun -H a:2,b:2,c:2 t", "", "t| 3 x 2", ""},
        {"horovodrun -np 3 -H a:1,b:2 t", "", "t| 2 x auto",
         "as --hosts a:1,b:2 would"},
        {"horovodrun -np 3 t", "nodes: 2", "t| 2 x auto",
         "-np 3 of horovodrun is no multiple of 2 nodes"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = resolve(cases[i].command, cases[i].keys);
        _free_ char *got = show(&o);

        is_str(got, cases[i].want, "%s: %s", cases[i].command, o.error.text);
        like(o.all, cases[i].message, "and what is said");
    }
}

static void test_bad(void)
{
    static const struct {
        const char *command, *error;
    } cases[] = {
        {"deepspeed", "deepspeed without a program"},
        {"deepspeed --hostfile=h t.py",
         "--hostfile of deepspeed; expected --hostfile of muster run"},
        {"deepspeed --include a:0@b:1 t.py",
         "--include of deepspeed; expected"},
        {"deepspeed --include localhost t.py", "--include of deepspeed"},
        {"horovodrun -np 2 --cycle-time-ms q t", "--cycle-time-ms of horovodrun; "
                                                 "expected a number from 0 on"},
        {"horovodrun -np 2 --num-nccl-streams -1 t", "expected a number from 0 on"},
        {"horovodrun -np 2 --cache-capacity 1x t", "expected a number from 0 on"},
        {"horovodrun -np 2 --gloo-timeout-seconds nan t", "a number from 0 on"},
        {"accelerate launch --num_cpu_threads_per_process -3 t.py",
         "expected a number from 0 on"},
        {"deepspeed --include localhost: t.py", "--include of deepspeed"},
        {"deepspeed --include localhost:0,,1 t.py", "--include of deepspeed"},
        {"deepspeed --include localhost:0, t.py", "--include of deepspeed"},
        {"deepspeed --include localhost:1,0,1 t.py", "--include of deepspeed"},
        {"deepspeed --include localhost:0,1024 t.py", "--include of deepspeed"},
        {"deepspeed --exclude a:0 t.py", "--exclude of deepspeed; expected"},
        {"deepspeed --autotuning tune t.py", "--autotuning of deepspeed"},
        {"deepspeed --ssh_port 1 t.py", "--ssh_port of deepspeed"},
        {"deepspeed --venv_script a t.py", "--venv_script of deepspeed"},
        {"deepspeed --launcher_args a t.py", "--launcher_args of deepspeed"},
        {"deepspeed --bind_core_list 1 t.py", "--bind_core_list of deepspeed; "
         "muster binds workers to nothing yet"},
        {"horovodrun --binding-args=x t", "--binding-args of horovodrun; muster "
                                          "binds workers to nothing yet"},
        {"deepspeed --module --no_python t", "both --module and --no-python"},
        {"deepspeed --bogus t.py", "--bogus of deepspeed; expected an option"},
        {"deepspeed --num_gpus", "--num_gpus of deepspeed without a value"},
        {"deepspeed --num_nodes x t.py", "--num-nodes of deepspeed is \"x\""},
        {"accelerate launch", "accelerate launch without a program"},
        {"accelerate launch --tpu t.py", "--tpu of accelerate launch; muster"},
        {"accelerate launch --mixed_precision fp7 t.py",
         "--mixed_precision of accelerate launch is fp7; expected one of its"},
        {"accelerate launch --cpu --use_fsdp t.py", "more than one of --cpu"},
        {"accelerate launch --multi_gpu --use_deepspeed t.py",
         "more than one of --cpu"},
        {"accelerate launch --use_parallelism_config t.py",
         "expected --use_fsdp and"},
        {"accelerate launch --deepspeed_hostfile h t.py",
         "--deepspeed_hostfile of accelerate launch; expected the hosts"},
        {"accelerate launch --mpirun_hostfile h t.py", "--mpirun_hostfile of"},
        {"accelerate launch --config_file /no/such t.py", "open /no/such"},
        {"accelerate launch --bogus t.py", "--bogus of accelerate launch"},
        {"accelerate launch --num_processes 0 t.py", "expected a number of"},
        {"accelerate launch --num_machines x t.py",
         "--num-machines of accelerate launch is \"x\""},
        {"horovodrun horovodrun -np 2 t",
         "t:3:25: horovodrun behind horovodrun; expected the program itself"},
        {"accelerate launch --no_python deepspeed t.py",
         "deepspeed behind accelerate launch; expected"},
        {"mpirun -np 2 torchrun t.py", "torchrun behind mpirun; expected"},
        {"deepspeed --module torch.distributed.run t.py",
         "torch.distributed.run behind deepspeed; expected"},
        {"horovodrun -np 2", "horovodrun without a program"},
        {"horovodrun -np x t", "-np x of horovodrun; expected a number"},
        {"horovodrun --hostfile h t", "--hostfile of horovodrun; expected"},
        {"horovodrun -H , t", "expected HOST[:SLOTS]"},
        {"horovodrun --mpi t", "--mpi of horovodrun; expected --gloo, or"},
        {"horovodrun --min-np 1 t", "--min-np of horovodrun; expected nodes:"},
        {"horovodrun --blacklist-cooldown-range 1 2 t",
         "--blacklist-cooldown-range of horovodrun"},
        {"horovodrun --host-discovery-script s t", "--host-discovery-script"},
        {"horovodrun -p 22 t", "-p of horovodrun; expected it for these hosts"},
        {"horovodrun --fusion-threshold-mb x t", "expected a number of mega"},
        {"horovodrun --config-file /no/such t", "open /no/such"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = resolve(cases[i].command, "");

        is_int(o.rc, -ERR_SPEC, "refused: %s", cases[i].command);
        like(o.error.text, cases[i].error, "and says why");
    }
}

/* What a variable becomes; NULL: unset. */
static void test_variables(void)
{
    static const struct {
        const char *command, *name, *want;
    } cases[] = {
        {"deepspeed --include localhost:0,2 t", "CUDA_VISIBLE_DEVICES", "0,2"},
        {"deepspeed t", "CUDA_VISIBLE_DEVICES", NULL},
        {"accelerate launch t", "ACCELERATE_MIXED_PRECISION", "no"},
        {"accelerate launch t", "ACCELERATE_DYNAMO_BACKEND", "NO"},
        {"accelerate launch t", "ACCELERATE_USE_CPU", NULL},
        {"accelerate launch t", "ACCELERATE_DEBUG_MODE", NULL},
        {"accelerate launch t", "OMP_NUM_THREADS", NULL},
        {"accelerate launch --cpu t", "ACCELERATE_USE_CPU", "true"},
        {"accelerate launch --debug t", "ACCELERATE_DEBUG_MODE", "true"},
        {"accelerate launch --mixed_precision=BF16 t",
         "ACCELERATE_MIXED_PRECISION", "bf16"},
        {"accelerate launch --dynamo_backend inductor t",
         "ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"},
        {"accelerate launch --dynamo_use_dynamic t",
         "ACCELERATE_DYNAMO_USE_DYNAMIC", "True"},
        {"accelerate launch --num_cpu_threads_per_process 3 t",
         "OMP_NUM_THREADS", "3"},
        {"accelerate launch --gpu_ids 1,2 t", "CUDA_VISIBLE_DEVICES", "1,2"},
        {"accelerate launch --gpu_ids all t", "CUDA_VISIBLE_DEVICES", NULL},
        {"accelerate launch --fsdp_offload_params true t",
         "FSDP_OFFLOAD_PARAMS", NULL},
        {"accelerate launch --use_fsdp --fsdp_offload_params true t",
         "FSDP_OFFLOAD_PARAMS", "true"},
        {"accelerate launch --use_fsdp t", "ACCELERATE_USE_FSDP", "true"},
        {"accelerate launch --use_fsdp t", "FSDP_SHARDING_STRATEGY",
         "FULL_SHARD"},
        {"accelerate launch --use_fsdp t", "FSDP_AUTO_WRAP_POLICY", NULL},
        {"accelerate launch --use_deepspeed --zero_stage 3 t",
         "ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"},
        {"accelerate launch --use_deepspeed t", "ACCELERATE_CONFIG_DS_FIELDS",
         ""},
        {"accelerate launch --use_megatron_lm t", "MEGATRON_LM_PP_DEGREE",
         "1"},
        {"accelerate launch --mixed_precision fp8 --fp8_backend te t",
         "ACCELERATE_FP8_BACKEND", "te"},
        {"accelerate launch --fp8_backend te t", "ACCELERATE_FP8_BACKEND",
         NULL},
        {"accelerate launch --mixed_precision fp8 "
         "--fp8_override_linear_precision true,false,true t",
         "ACCELERATE_FP8_OVERRIDE_DGRAD", "false"},
        {"accelerate launch --use_fsdp --fsdp_version 2 "
         "--use_parallelism_config --parallelism_config_tp_size 2 t",
         "PARALLELISM_CONFIG_TP_SIZE", "2"},
        {"horovodrun -np 2 t", "PYTHONUNBUFFERED", "1"},
        {"horovodrun --network-interfaces e0,e1 t", "HOROVOD_GLOO_IFACE",
         "e0"},
        {"horovodrun --network-interfaces e0,e1 t", "NCCL_SOCKET_IFNAME",
         "e0,e1"},
        {"horovodrun --fusion-threshold-mb 32 t", "HOROVOD_FUSION_THRESHOLD",
         "33554432"},
        {"horovodrun --gloo-timeout-seconds 7 t",
         "HOROVOD_GLOO_TIMEOUT_SECONDS", "7"},
        {"horovodrun --autotune t", "HOROVOD_AUTOTUNE", "1"},
        {"horovodrun --no-hierarchical-allreduce t",
         "HOROVOD_HIERARCHICAL_ALLREDUCE", "0"},
        {"horovodrun --log-hide-timestamp t", "HOROVOD_LOG_HIDE_TIME", "1"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = resolve(cases[i].command, "");

        is_int(o.rc, 0, "%s: %s", cases[i].command, o.error.text);
        is_str(o.rc == 0 ? strlist_getenv(&o.result.job->env, cases[i].name)
                         : "?",
               cases[i].want, "%s", cases[i].name);
    }
}

static void test_the_job_counts(void)
{
    _outcome_ struct outcome o =
        resolve("accelerate launch --mixed_precision fp16 --max_restarts 2 t",
                "env: {ACCELERATE_MIXED_PRECISION: bf16}\n"
                "restart: {max: 7}");
    _outcome_ struct outcome h =
        resolve("horovodrun --start-timeout 9 --prefix-timestamp t",
                "horovod: none");

    is_str(strlist_getenv(&o.result.job->env, "ACCELERATE_MIXED_PRECISION"),
           "bf16", "variables of the job count");
    is_int((int)o.result.job->restart.max, 7, "its values too");
    like(o.all, "--max_restarts of accelerate launch differs from restart.max",
         "with a warning");
    is_int((int)h.result.job->horovod, JOB_HOROVOD_NONE, "also for Horovod");
    is_int((int)h.result.job->gang_timeout_ms, 9000, "a timeout");
    is_str(h.result.job->logs.prefix, "{time} [{rank}] ", "time stamps");
}

static void test_horovod_is_asked_for(void)
{
    _outcome_ struct outcome o = resolve("horovodrun -np 2 t", "");
    _outcome_ struct outcome plain = resolve("t", "");

    is_int((int)o.result.job->horovod, JOB_HOROVOD_GLOO, "by horovodrun");
    is_int((int)plain.result.job->horovod, JOB_HOROVOD_NONE, "not otherwise");
}

/* A secret behind a refused option is not repeated. */
static void test_no_secret(void)
{
    _outcome_ struct outcome o =
        resolve("accelerate launch --aws_secret_access_key=hush t", "");

    like(o.all, "--aws_secret_access_key of accelerate launch; muster starts",
         "refused");
    ok(!strstr(o.all, "hush"), "without its value");
}

/* --- files --- */

static void put(const char *path, const char *text)
{
    struct error e = {0};

    if (fs_write_atomic(path, text, strlen(text), &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void test_accelerate_config(void)
{
    static const char fsdp[] =
        "compute_environment: LOCAL_MACHINE\n"
        "distributed_type: FSDP\n"
        "mixed_precision: bf16\n"
        "num_machines: 2\n"
        "num_processes: 4\n"
        "machine_rank: 0\n"
        "main_process_ip: null\n"
        "use_cpu: false\n"
        "gpu_ids: all\n"
        "tpu_env: []\n"
        "fsdp_config:\n"
        "  fsdp_version: 2\n"
        "  use_orig_params: false\n"
        "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
        "dynamo_config: {dynamo_backend: INDUCTOR}\n";
    static const struct {
        const char *name, *want;
    } want[] = {
        {"ACCELERATE_USE_FSDP", "true"},
        {"ACCELERATE_MIXED_PRECISION", "bf16"},
        {"ACCELERATE_DYNAMO_BACKEND", "EAGER"}, /* the option's */
        {"FSDP_VERSION", "2"},
        {"FSDP_USE_ORIG_PARAMS", "false"},
        {"FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT"},
        {"FSDP_OFFLOAD_PARAMS", "false"},
        {"CUDA_VISIBLE_DEVICES", NULL},
    };

    put("a.yaml", fsdp);
    {
        _outcome_ struct outcome o =
            resolve("accelerate launch --config_file a.yaml "
                    "--dynamo_backend eager t", "");
        _free_ char *got = show(&o);

        is_str(got, "python3 -u t| 2 x 2", "%s", o.error.text);
        for (size_t i = 0; o.rc == 0 && i < ARRAY_SIZE(want); i++) {
            is_str(strlist_getenv(&o.result.job->env, want[i].name),
                   want[i].want, "%s", want[i].name);
        }
        like(o.all, "a.yaml is the configuration of accelerate launch",
             "the file is named");
    }
}

static void test_bad_config(void)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"distributed_type: XLA", "a.yaml:1:19: distributed_type XLA of"},
        {"compute_environment: AMAZON_SAGEMAKER", "expected LOCAL_MACHINE"},
        {"bogus: 1", "a.yaml:1:1: bogus in the configuration of accelerate"},
        {"mixed_precision: fp7", "mixed_precision of accelerate launch is fp7"},
        {"tpu_use_cluster: true", "tpu_use_cluster in the configuration of"},
        {"fsdp_config: {bogus: 1}", "bogus in the configuration of"},
        {"num_processes: [1]", "num_processes in the configuration of"},
        {"- a", "is a list; expected a map"},
        {"mpirun_config: {mpirun_hostfile: h}",
         "mpirun_hostfile of accelerate"},
        {"{", "a.yaml:"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        put("a.yaml", cases[i].text);
        _outcome_ struct outcome o =
            resolve("accelerate launch --config_file a.yaml t", "");

        is_int(o.rc, -ERR_SPEC, "refused: %s", cases[i].text);
        like(o.error.text, cases[i].error, "and says why");
    }
    unlink("a.yaml");
    if (mkfifo("a.yaml", 0600) < 0) {
        bail_out("mkfifo");
    }
    _outcome_ struct outcome o =
        resolve("accelerate launch --config_file a.yaml t", "");

    like(o.error.text, "expected a regular file", "a FIFO is not waited for");
    unlink("a.yaml");
}

static void test_default_config(void)
{
    static char *const env[] = {(char *)"HF_HOME=hf", NULL};

    if (fs_mkdirs("hf/accelerate", NULL) < 0) {
        bail_out("mkdir");
    }
    put("hf/accelerate/default_config.yaml",
        "distributed_type: MULTI_CPU\nnum_processes: 3\n"
        "deepspeed_config: {zero_stage: 2}\n");
    {
        _outcome_ struct outcome o =
            outcome_of_command("accelerate launch t", "", env);
        _outcome_ struct outcome cpu =
            outcome_of_command("accelerate launch --cpu t", "", env);
        _free_ char *got = show(&o), *alone = show(&cpu);

        is_str(got, "python3 -u t| 1 x 3", "the default file counts");
        is_str(strlist_getenv(&o.result.job->env, "ACCELERATE_USE_CPU"),
               "true", "with its type");
        is_str(alone, "python3 -u t| 1 x auto", "not with --cpu");
    }
}

static void test_deepspeed_env(void)
{
    static char *const env[] = {(char *)"HOME=home", NULL};
    static char *const named[] = {(char *)"HOME=home",
                                  (char *)"DS_ENV_FILE=other", NULL};

    if (fs_mkdirs("home", NULL) < 0) {
        bail_out("mkdir");
    }
    put("home/.deepspeed_env", "A=home\nB=$(A) $$\n\n# no\n");
    put(".deepspeed_env", "A=here\n");
    put("other", "C=3\n");
    {
        _outcome_ struct outcome o =
            outcome_of_command("deepspeed t", "env: {D: 4}", env);
        _outcome_ struct outcome n = outcome_of_command("deepspeed t", "", named);
        _outcome_ struct outcome a =
            outcome_of_command("deepspeed t", "env: {A: mine}", env);
        const struct strlist *got = o.rc == 0 ? &o.result.job->env : NULL;

        is_int(o.rc, 0, "%s", o.error.text);
        is_str(got ? strlist_getenv(got, "A") : "?", "here", "the nearer one");
        is_str(got ? strlist_getenv(got, "B") : "?", "$$(A) $$$$",
               "taken as it is");
        ok(got && job_env_is_secret(o.result.job, "B"), "as a secret");
        like(o.all, "the variables of .deepspeed_env are taken", "and said");
        is_str(n.rc == 0 ? strlist_getenv(&n.result.job->env, "C") : "?", "3",
               "another name");
        is_str(a.rc == 0 ? strlist_getenv(&a.result.job->env, "A") : "?",
               "mine", "the job counts");
    }
    unlink(".deepspeed_env");
}

static void test_horovod_config(void)
{
    static const struct {
        const char *name, *want;
    } want[] = {
        {"HOROVOD_FUSION_THRESHOLD", "33554432"},
        {"HOROVOD_CYCLE_TIME", "3"}, /* the option's */
        {"HOROVOD_AUTOTUNE", "0"},
        {"HOROVOD_STALL_CHECK_DISABLE", "1"},
        {"HOROVOD_TIMELINE", "a.json"},
    };

    put("h.yaml", "controller: gloo\nverbose: true\n"
                  "params: {fusion_threshold_mb: 32, cycle_time_ms: 5}\n"
                  "autotune: {enabled: false}\n"
                  "timeline: {filename: a.json}\n"
                  "stall_check: {enabled: false}\n");
    {
        _outcome_ struct outcome o = resolve(
            "horovodrun -np 2 --cycle-time-ms 3 --config-file h.yaml t", "");

        is_int(o.rc, 0, "%s", o.error.text);
        for (size_t i = 0; o.rc == 0 && i < ARRAY_SIZE(want); i++) {
            is_str(strlist_getenv(&o.result.job->env, want[i].name),
                   want[i].want, "%s", want[i].name);
        }
    }
    put("h.yaml", "controller: mpi\nparams: {bogus: 1}\nother: [1]\n");
    {
        _outcome_ struct outcome o =
            resolve("horovodrun --config-file h.yaml t", "");

        like(o.all, "controller mpi of horovodrun; expected gloo", "MPI");
        like(o.all, "params.bogus in the configuration of horovodrun",
             "an unknown key");
        like(o.all, "other in the configuration of horovodrun is a list",
             "a list");
    }
}

int main(void)
{
    char dir[] = "/tmp/muster-launchers-XXXXXX";

    test_commands();
    test_bad();
    test_variables();
    test_the_job_counts();
    test_horovod_is_asked_for();
    test_no_secret();
    if (!mkdtemp(dir) || chdir(dir) < 0) {
        bail_out("mkdtemp");
    }
    test_accelerate_config();
    test_bad_config();
    test_default_config();
    test_deepspeed_env();
    test_horovod_config();
    if (chdir("/") < 0 || fs_remove_tree(dir, NULL) < 0) {
        bail_out("remove %s", dir);
    }
    return tap_done();
}
