/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short form, muster/v1 Job: every key, where it goes in struct job, its
 * range and default. The order is that of the manual page and of the resolved
 * spec.
 */
#include <config.h>

#include "spec/job.h"
#include "spec/schema.h"

#define AT(member) .offset = offsetof(struct job, member)

#define SECONDS UINT64_C(1000)
#define DAYS (UINT64_C(86400) * SECONDS)

static const char *const program_words[] = {
    [JOB_WORKERS] = "workers",
    [JOB_MPI] = "mpi",
    NULL,
};

static const char *const policy_words[] = {
    [JOB_RESTART_NEVER] = "Never",
    [JOB_RESTART_ON_FAILURE] = "OnFailure",
    [JOB_RESTART_ALWAYS] = "Always",
    [JOB_RESTART_EXIT_CODE] = "ExitCode",
    NULL,
};

static const char *const level_words[] = {"memory", "partner", "disk", NULL};

static const char *const partner_words[] = {
    [JOB_PARTNER_COPY] = "copy",
    [JOB_PARTNER_XOR] = "xor",
    [JOB_PARTNER_RS] = "rs",
    NULL,
};

static const char *const method_words[] = {
    [JOB_SEARCH_NONE] = "none",
    [JOB_SEARCH_GRID] = "grid",
    [JOB_SEARCH_RANDOM] = "random",
    [JOB_SEARCH_BAYES] = "bayes",
    NULL,
};

static const char *const parameter_words[] = {
    [JOB_PARAMETER_DOUBLE] = "double",
    [JOB_PARAMETER_INT] = "int",
    [JOB_PARAMETER_CATEGORICAL] = "categorical",
    NULL,
};

static const char *const binding_words[] = {
    [JOB_BIND_AUTO] = "auto",     [JOB_BIND_NONE] = "none",
    [JOB_BIND_CORE] = "core",     [JOB_BIND_NUMA] = "numa",
    [JOB_BIND_SOCKET] = "socket", NULL,
};

static const char *const preflight_words[] = {
    [JOB_PREFLIGHT_OFF] = "off",
    [JOB_PREFLIGHT_QUICK] = "quick",
    [JOB_PREFLIGHT_FULL] = "full",
    NULL,
};

static const char *const format_words[] = {
    [JOB_LOG_TEXT] = "text",
    [JOB_LOG_JSON] = "json",
    NULL,
};

static const char *const files_words[] = {
    [JOB_FILES_RANK] = "rank",
    [JOB_FILES_NODE] = "node",
    [JOB_FILES_NONE] = "none",
    NULL,
};

static const char *const store_words[] = {
    [JOB_STORE_AUTO] = "auto",
    [JOB_STORE_DIRECT] = "direct",
    [JOB_STORE_TREE] = "tree",
    NULL,
};

static const char *const horovod_words[] = {
    [JOB_HOROVOD_NONE] = "none",
    [JOB_HOROVOD_GLOO] = "gloo",
    NULL,
};

static const char *const alarm_words[] = {
    [JOB_ALARM_TELL] = "tell",
    [JOB_ALARM_STOP] = "stop",
    NULL,
};

static const char *const goal_words[] = {
    [JOB_MINIMIZE] = "minimize",
    [JOB_MAXIMIZE] = "maximize",
    NULL,
};

static const char *const scale_words[] = {
    [JOB_SCALE_LINEAR] = "linear",
    [JOB_SCALE_LOG] = "log",
    NULL,
};

static const struct field restart_fields[] = {
    {"policy", FIELD_ENUM, AT(restart.policy), .words = policy_words,
     .def = "OnFailure",
     .help = "when all workers are started again: never, when one failed, "
             "also when all ended well (Always), or by the exit code of the "
             "one that failed"},
    {"max", FIELD_COUNT, AT(restart.max), .max = 2147483647, .def = "3",
     .help = "restarts of the whole job for failures and hangs"},
    {"maxPerNode", FIELD_COUNT, AT(restart.max_per_node), .max = 2147483647,
     .def = "0",
     .help = "restarts for failures of workers on one node; then it is "
             "excluded, or the job ends where the others are too few; 0: as "
             "many as of the whole job"},
    {"backoff", FIELD_BACKOFF, AT(restart.backoff_min_ms), .max = DAYS,
     .def = "1s..60s",
     .help = "wait before the first restart, doubled up to the second time"},
    {"exitCodes", FIELD_CODES, AT(restart.retry_codes), .def = "kubeflow",
     .help = "with policy ExitCode: the codes that are started again; "
             "kubeflow is 128 to 255, t9k is 130, 137, 138 and 143; after lack of "
             "memory only where another list has 137"},
    {"preload", FIELD_LIST, AT(restart.preload), .def = "[]",
     .help = "Python modules that an interpreter on each node imports "
             "beforehand; the workers of a restart are forked from it"},
    {0},
};

static const struct field elastic_fields[] = {
    {"minNodes", FIELD_COUNT, AT(elastic.min_nodes), .max = 65536, .def = "0",
     .help = "least number of nodes, in place of the lower end of nodes; 0: as "
             "that says"},
    {"maxNodes", FIELD_COUNT, AT(elastic.max_nodes), .max = 65536, .def = "0",
     .help = "greatest number of nodes, in place of the upper end of nodes; 0: "
             "as that says"},
    {"spares", FIELD_COUNT, AT(elastic.spares), .max = 65536, .def = "0",
     .help = "nodes beyond those that the job needs, each ready to take the "
             "place of one that is lost"},
    {"growInterval", FIELD_SPAN, AT(elastic.grow_interval_ms),
     .min = 1 * SECONDS, .max = 365 * DAYS, .def = "10m",
     .help = "shortest time between two checkpoints after which a run that is "
             "well is stopped, to go on with nodes that have come"},
    {"excludeSlow", FIELD_NUMBER, AT(elastic.exclude_slow), .def = "0",
     .help = "a node with a rank whose steps take so many times the median of "
             "all ranks (1.5 or more) is excluded, after the next checkpoint, "
             "where the others are enough; 0: never"},
    {0},
};

static const struct field gang_fields[] = {
    {"timeout", FIELD_SPAN, AT(gang_timeout_ms), .min = 1 * SECONDS,
     .max = 365 * DAYS, .def = "300s",
     .help = "how long the least number of nodes may take to gather"},
    {0},
};

static const struct field hang_fields[] = {
    {"timeout", FIELD_SPAN, FIELD_TAKES_OFF, AT(hang_timeout_ms),
     .min = 1 * SECONDS, .max = 365 * DAYS, .def = "off",
     .help = "a worker without progress for so long is taken as hung"},
    {0},
};

static const struct field limits_fields[] = {
    {"deadline", FIELD_SPAN, FIELD_TAKES_OFF, AT(limits.deadline_ms),
     .min = 1 * SECONDS, .def = "off",
     .help = "longest time that the job may run, in all its starts together; "
             "it ends with status 124"},
    {"grace", FIELD_SPAN, AT(limits.grace_ms), .max = DAYS, .def = "30s",
     .help = "time between SIGTERM and SIGKILL; after a failure at most 2 s; in a "
             "pod of Kubernetes 25s unless given, as that is killed after 30"},
    {"nodeFailures", FIELD_COUNT, AT(limits.node_failures), .max = 1000000,
     .def = "3",
     .help = "lost nodes that a run outlives; the next one ends it, and it can "
             "be resumed"},
    {0},
};

static const struct field alarm_fields[] = {
    {"after", FIELD_SPAN, FIELD_TAKES_OFF, AT(checkpoint.alarm_ms),
     .min = 1 * SECONDS, .max = 365 * DAYS, .def = "off",
     .help = "a generation that runs for so long without a checkpoint is told of, "
             "and again after as long"},
    {"then", FIELD_ENUM, AT(checkpoint.alarm_then), .words = alarm_words,
     .def = "tell", .help = "stop: the run is ended then, to be resumed"},
    {0},
};

static const struct field prune_fields[] = {
    {"keep", FIELD_COUNT, AT(checkpoint.prune_keep), .max = 1000000, .def = "0",
     .help = "so many whole checkpoints in watch are kept, older ones are removed; "
             "0: none is"},
    {"every", FIELD_COUNT, AT(checkpoint.prune_every), .max = 1000000000,
     .def = "0", .help = "those whose step is a multiple of it are kept, too"},
    {"best", FIELD_STRING, FIELD_TAKES_OFF, AT(checkpoint.prune_best),
     .help = "and the best one by that metric in its trainer_state.json"},
    {"goal", FIELD_ENUM, AT(checkpoint.prune_goal), .words = goal_words,
     .def = "minimize", .help = "what is better"},
    {0},
};

static const struct field copy_fields[] = {
    {"to", FIELD_STRING, FIELD_TAKES_OFF, AT(checkpoint.copy_to),
     .help = "directory, or store, into which the newest whole checkpoint in watch "
             "is copied"},
    {"every", FIELD_SPAN, AT(checkpoint.copy_every_ms), .min = 1 * SECONDS,
     .max = 365 * DAYS, .def = "30m", .help = "how often"},
    {"keep", FIELD_COUNT, AT(checkpoint.copy_keep), .max = 1000000, .def = "0",
     .help = "so many are kept there; 0: all"},
    {0},
};

static const struct field checkpoint_fields[] = {
    {"every", FIELD_SPAN, FIELD_TAKES_AUTO | FIELD_TAKES_OFF,
     AT(checkpoint.every_ms), .min = 1 * SECONDS, .max = 365 * DAYS,
     .def = "auto", .help = "time between checkpoints of programs that save by the "
     "library and leave it open; auto: by what a save costs and how often the run "
     "was interrupted"},
    {"everySteps", FIELD_COUNT, AT(checkpoint.every_steps), .max = 1000000000,
     .def = "0", .help = "steps between them, in the place of auto, or beside a time; 0: "
     "not by steps"},
    {"keep", FIELD_COUNT, AT(checkpoint.keep), .min = 1, .max = 1000000,
     .def = "3", .help = "checkpoints that are kept, of those that workers save by "
     "the library"},
    {"keepEvery", FIELD_COUNT, AT(checkpoint.keep_every), .max = 1000000000,
     .def = "0", .help = "those whose step is a multiple of it are kept, too"},
    {"keepBest", FIELD_STRING, FIELD_TAKES_OFF, AT(checkpoint.keep_best),
     .help = "and the best one by that metric: a number that is saved with it as a JSON "
             "value of that name, or in one, as metrics.loss"},
    {"keepGoal", FIELD_ENUM, AT(checkpoint.keep_goal), .words = goal_words,
     .def = "minimize", .help = "what is better"},
    {"levels", FIELD_FLAGS, AT(checkpoint.levels), .words = level_words,
     .def = "[memory, partner, disk]", .help = "where checkpoints that workers save "
     "by the library are held: in memory of their node until it has written them, in "
     "that of a partner on another host, on the disk"},
    {"partnerEvery", FIELD_SPAN, FIELD_TAKES_AUTO, AT(checkpoint.partner_every_ms),
     .max = 365 * DAYS, .def = "auto", .help = "how often a save is copied to the "
     "partner; 0s: each one; auto: each one but where checkpoint.every is auto, too: "
     "then by what one costs, as muster status shows it"},
    {"diskEvery", FIELD_SPAN, FIELD_TAKES_AUTO, AT(checkpoint.disk_every_ms),
     .max = 365 * DAYS, .def = "auto", .help = "how often a save goes to the disk; others "
     "stay in memory until a later one is there, or somebody wants them on the disk; 0s "
     "and auto as with partnerEvery"},
    {"partner", FIELD_ENUM, AT(checkpoint.partner), .words = partner_words,
     .def = "copy", .help = "what partners have: copy: whole copies; xor: parity over a "
     "group of nodes, by which the loss of one is made up for; rs: Reed-Solomon, "
     "of as many as partnerParities"},
    {"partnerGroup", FIELD_COUNT, AT(checkpoint.partner_group), .min = 2, .max = 32,
     .def = "8", .help = "nodes of a group with parity, about; all on different hosts"},
    {"partnerParities", FIELD_COUNT, AT(checkpoint.partner_parities), .min = 1,
     .max = 8, .def = "2", .help = "nodes of a group that may be lost at once, with rs; "
     "each keeps so many pieces of what is saved, of which a rank has partnerGroup less "
     "partnerParities"},
    {"partnerEncrypt", FIELD_BOOL, AT(checkpoint.partner_encrypt), .def = "false",
     .help = "whether what goes to partners is encrypted on its way; it cannot be changed "
     "there in either case"},
    {"store", FIELD_STRING, FIELD_TAKES_OFF, AT(checkpoint.store),
     .help = "s3://BUCKET/PREFIX, into which the newest checkpoint is taken, and from "
     "where a newer one than the directory has is fetched at the start"},
    {"storeEvery", FIELD_SPAN, FIELD_TAKES_AUTO, AT(checkpoint.store_every_ms),
     .max = 365 * DAYS, .def = "0s", .help = "how often at most; 0s: as soon as the one "
     "before is there; auto: by what one costs, as muster status shows it"},
    {"storeKeep", FIELD_COUNT, AT(checkpoint.store_keep), .max = 1000000, .def = "0",
     .help = "so many are kept in the store; 0: all"},
    {"watch", FIELD_STRING, FIELD_TAKES_OFF, AT(checkpoint.watch),
     .help = "directory into which the program itself writes checkpoints: the "
             "newest that is whole is where a restart starts"},
    {"resumeArg", FIELD_STRING, FIELD_TAKES_OFF, AT(checkpoint.resume_arg),
     .help = "how the program is told the checkpoint that it starts from: an "
             "option, with {path} in it or the path behind it, put at the end "
             "of the command"},
    {"avoidAfter", FIELD_COUNT, AT(checkpoint.avoid_after), .max = 1000,
     .def = "2",
     .help = "after so many generations in a row that started from the same "
             "checkpoint, and died before a save or a report of progress, the "
             "next one starts from an older one; 0: never"},
    {"alarm", FIELD_MAP, .fields = alarm_fields},
    {"prune", FIELD_MAP, .fields = prune_fields},
    {"copy", FIELD_MAP, .fields = copy_fields},
    {0},
};

#define IN(member) .offset = offsetof(struct job_transfer, member)

static const struct field transfer_fields[] = {
    {"from", FIELD_STRING, FIELD_REQUIRED, IN(from),
     .help = "URI or path that is read"},
    {"to", FIELD_STRING, FIELD_REQUIRED, IN(to),
     .help = "URI or path that is written"},
    {"credential", FIELD_STRING, IN(credential),
     .help = "name of the credential for it"},
    {"parameters", FIELD_PAIRS, IN(parameters),
     .help = "settings of the store"},
    {0},
};

#define OF(member) .offset = offsetof(struct job_parameter, member)

static const struct field parameter_fields[] = {
    {"type", FIELD_ENUM, OF(type), .words = parameter_words,
     .help = "kind of value"},
    {"min", FIELD_NUMBER, OF(min), .help = "least value"},
    {"max", FIELD_NUMBER, OF(max), .help = "greatest value"},
    {"step", FIELD_NUMBER, OF(step), .help = "distance between values"},
    {"scale", FIELD_ENUM, OF(scale), .words = scale_words,
     .help = "on which the range is even"},
    {"values", FIELD_LIST, OF(values), .help = "the values themselves"},
    {0},
};

static const struct field trial_fields[] = {
    {"nodes", FIELD_COUNT, FIELD_TAKES_AUTO, AT(search.trial_nodes), .min = 1,
     .max = 65536, .def = "auto", .help = "nodes of a trial"},
    {"procs", FIELD_COUNT, FIELD_TAKES_AUTO, AT(search.trial_procs), .min = 1,
     .max = 65536, .def = "auto", .help = "processes of a trial on a node"},
    {0},
};

static const struct field metric_fields[] = {
    {"name", FIELD_STRING, AT(search.metric),
     .help = "name of the metric that is optimised"},
    {"goal", FIELD_ENUM, AT(search.goal), .words = goal_words,
     .def = "minimize", .help = "what is better"},
    {0},
};

static const struct field search_fields[] = {
    {"method", FIELD_ENUM, AT(search.method), .words = method_words,
     .def = "none", .help = "how parameters are chosen"},
    {"maxTrials", FIELD_COUNT, FIELD_TAKES_AUTO, AT(search.max_trials),
     .min = 1, .max = 1000000, .def = "auto",
     .help = "trials in all; a grid search may do without"},
    {"parallelTrials", FIELD_COUNT, FIELD_TAKES_AUTO,
     AT(search.parallel_trials), .min = 1, .max = 65536, .def = "auto",
     .help = "trials at the same time"},
    {"trial", FIELD_MAP, .fields = trial_fields},
    {"metric", FIELD_MAP, .fields = metric_fields},
    {"parameters", FIELD_NAMED, AT(search.parameters),
     .fields = parameter_fields, .item_size = sizeof(struct job_parameter),
     .help = "the space: for each name a value, or type, min, max, step, scale "
             "(linear, log) or values"},
    {0},
};

static const struct field resources_fields[] = {
    {"cpus", FIELD_CPUS, AT(resources.cpus_milli),
     .help = "CPUs of each node"},
    {"memory", FIELD_BYTES, AT(resources.memory_bytes),
     .help = "memory of each node"},
    {"gpus", FIELD_COUNT, AT(resources.gpus), .max = 1024, .def = "0",
     .help = "GPUs of each node"},
    {0},
};

static const struct field logs_fields[] = {
    {"show", FIELD_RANKS, AT(logs.show), .def = "all",
     .help = "ranks whose output is shown; lead is rank 0. Files have that of "
             "all"},
    {"streams", FIELD_STREAMS, AT(logs.streams), .def = "both",
     .help = "which of their streams are shown: both, stdout, stderr or none, "
             "and exceptions by local rank: none,0:both. Files have both"},
    {"prefix", FIELD_PREFIX, AT(logs.prefix), .def = "rank",
     .help = "what is put before each line of output that is shown; fields of "
             "a template are rank, local_rank, host, node, stream, time, "
             "generation and run"},
    {"fold", FIELD_BOOL, AT(logs.fold), .def = "false",
     .help = "a line that several ranks print at about the same time is shown "
             "once, with all of them; not with format json"},
    {"format", FIELD_ENUM, AT(logs.format), .words = format_words,
     .def = "text", .help = "form of what is shown: text, or JSON lines on "
                            "standard output; the default is that of "
                            "LOG_FORMAT in the environment, if that is json"},
    {"files", FIELD_ENUM, AT(logs.files), .words = files_words, .def = "rank",
     .help = "a file for each rank and stream, one for each node with labelled "
             "lines, or none"},
    {"maxSize", FIELD_BYTES, FIELD_TAKES_OFF, AT(logs.max_bytes),
     .min = 64 << 10, .def = "off",
     .help = "size at which a log file is put aside, as NAME.1 and so on, and a "
             "new one begun"},
    {"keep", FIELD_COUNT, AT(logs.keep), .min = 1, .max = 1000000, .def = "3",
     .help = "with maxSize: so many full files of each log are kept, then the "
             "oldest is removed"},
    {"generations", FIELD_COUNT, AT(logs.generations), .max = 1000000,
     .def = "20",
     .help = "the logs of so many generations before the one that runs are kept, "
             "and those of the first; older ones are removed; 0: none is"},
    {"dir", FIELD_STRING, FIELD_TAKES_OFF, AT(logs.dir),
     .help = "directory below which the run directory is made, as NAME/ID; "
             "else ./muster-runs"},
    {0},
};

static const struct field torch_fields[] = {
    {"role", FIELD_STRING, AT(torch.role), .def = "default",
     .help = "ROLE_NAME of the workers"},
    {"runId", FIELD_STRING, FIELD_TAKES_OFF, AT(torch.run_id),
     .help = "TORCHELASTIC_RUN_ID of the workers; else the id of the run"},
    {0},
};

static const struct field heartbeat_fields[] = {
    {"timeout", FIELD_SPAN, AT(heartbeat_timeout_ms), .min = 1 * SECONDS,
     .max = DAYS, .def = "10s",
     .help = "a node that is silent for so long is lost; also the lease"},
    {0},
};

static const struct field network_fields[] = {
    {"interface", FIELD_INTERFACE, AT(interface), .def = "auto",
     .help = "where nodes reach each other: names of interfaces or networks, "
             "or an address in one, first choice first; auto leaves out those "
             "of containers and VPNs where there are others"},
    {0},
};

static const struct field detach_fields[] = {
    {"timeout", FIELD_SPAN,
     FIELD_TAKES_AUTO | FIELD_TAKES_OFF | FIELD_TAKES_NEVER,
     AT(detach_timeout_ms), .max = 365 * DAYS, .def = "auto",
     .help = "how long the run goes on without its front end; auto is never "
             "in a batch job, else 10m"},
    {0},
};

static const char no_script[] = "no batch script is made";

static const struct field slurm_fields[] = {
    {"partition", FIELD_STRING, AT(slurm.partition), .later = no_script},
    {"account", FIELD_STRING, AT(slurm.account), .later = no_script},
    {"qos", FIELD_STRING, AT(slurm.qos), .later = no_script},
    {"constraint", FIELD_STRING, AT(slurm.constraint), .later = no_script},
    {"time", FIELD_SPAN, FIELD_TAKES_OFF, AT(slurm.time_ms), .def = "off",
     .help = "time limit of the batch job", .later = no_script},
    {"margin", FIELD_SPAN, FIELD_TAKES_OFF, AT(slurm.margin_ms), .max = DAYS,
     .def = "30s",
     .help = "the run stops, to be resumed, limits.grace and this time before "
             "the time limit of its Slurm job; off: the limit is not looked at"},
    {"requeue", FIELD_BOOL, AT(slurm.requeue), .def = "false",
     .help = "a run that is stopped, but not suspended or cancelled, has Slurm "
             "requeue its job, which goes on with it"},
    {"extra", FIELD_LIST, AT(slurm.extra), .help = "more options of sbatch",
     .later = no_script},
    {0},
};

const struct field job_fields[] = {
    {"name", FIELD_LABEL, AT(name),
     .help = "name of the job; the file or the program names it otherwise"},
    {"program", FIELD_ENUM, AT(program), .words = program_words,
     .def = "workers",
     .help = "mpi: the program's processes are ranks of one MPI world"},
    {"nodes", FIELD_NODES, AT(nodes), .max = 65536, .def = "1",
     .help = "number of nodes; a range makes the job elastic"},
    {"procsPerNode", FIELD_PROCS, AT(procs), .max = JOB_PROCS_MAX, .def = "auto",
     .help = "processes on each node; auto is the slots that the list of hosts gives "
             "each, or the tasks that Slurm was asked for, else one a GPU, or one a "
             "CPU where there is no GPU"},
    {"command", FIELD_LIST, AT(command),
     .help = "program and arguments; no shell is used"},
    {"mpiArgs", FIELD_LIST, AT(mpi_args), .def = "[]",
     .help = "with program mpi: further options of its mpirun, such as "
             "[--mca, btl, \"tcp,self\"] or [--bind-to, core]"},
    {"env", FIELD_PAIRS, AT(env),
     .help = "environment of the workers, as a map or as a list of name and "
             "value"},
    {"secrets", FIELD_LIST, AT(secrets), .def = "[]",
     .help = "names in env whose values are neither shown nor stored"},
    {"workdir", FIELD_STRING, AT(workdir),
     .help = "where the workers start; else where muster was started"},
    {"runtime", FIELD_STRING, FIELD_TAKES_OFF, AT(runtime),
     .help = "name of a runtime that gives what the job does not"},
    {"container", FIELD_STRING, FIELD_TAKES_OFF, AT(image),
     .help = "image in which the workers run; none is the host",
     .later = "the job runs on the host"},
    {"restart", FIELD_MAP, .fields = restart_fields},
    {"elastic", FIELD_MAP, .fields = elastic_fields},
    {"gang", FIELD_MAP, .fields = gang_fields},
    {"hang", FIELD_MAP, .fields = hang_fields},
    {"limits", FIELD_MAP, .fields = limits_fields},
    {"checkpoint", FIELD_MAP, .fields = checkpoint_fields},
    {"inputs", FIELD_ITEMS, AT(inputs), .fields = transfer_fields,
     .item_size = sizeof(struct job_transfer),
     .help = "what is fetched before the start: list of from and to",
     .later = "nothing is fetched; the program finds its data itself"},
    {"outputs", FIELD_ITEMS, AT(outputs), .fields = transfer_fields,
     .item_size = sizeof(struct job_transfer),
     .help = "what is stored after success: list of from and to",
     .later = "nothing is stored; results stay where the program puts them"},
    {"search", FIELD_MAP, .fields = search_fields,
     .later = "the job runs once, and is told none of the parameters"},
    {"resources", FIELD_MAP, .fields = resources_fields,
     .later = "hosts are taken as they are"},
    {"binding", FIELD_ENUM, AT(binding), .words = binding_words, .def = "auto",
     .help = "what each worker is bound to",
     .later = "workers are bound to nothing"},
    {"preflight", FIELD_ENUM, AT(preflight), .words = preflight_words,
     .def = "quick", .help = "checks of the nodes before the start",
     .later = "of a host it is only looked whether it answers"},
    {"logs", FIELD_MAP, .fields = logs_fields},
    {"torch", FIELD_MAP, .fields = torch_fields},
    {"store", FIELD_ENUM, AT(store), .words = store_words, .def = "auto",
     .help = "direct: all workers ask the store on the node of rank 0; tree: "
             "those of each node ask one of their own node, on loopback, which "
             "asks that over one connection; auto: a tree from 128 nodes on"},
    {"horovod", FIELD_ENUM, AT(horovod), .words = horovod_words, .def = "none",
     .help = "gloo: Horovod's rendezvous is served for its gloo controller; a "
             "horovodrun in command asks for it"},
    {"network", FIELD_MAP, .fields = network_fields},
    {"heartbeat", FIELD_MAP, .fields = heartbeat_fields},
    {"detach", FIELD_MAP, .fields = detach_fields},
    {"slurm", FIELD_MAP, .fields = slurm_fields},
    {"labels", FIELD_PAIRS, AT(labels), .def = "{}",
     .help = "kept with the run"},
    {"annotations", FIELD_PAIRS, AT(annotations), .def = "{}",
     .help = "kept with the run"},
    {"suspend", FIELD_BOOL, AT(suspend), .def = "false",
     .help = "the run is made, and not started before muster resume"},
    {0},
};
