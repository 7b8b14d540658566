/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <string.h>

/* "command| nodes x procs, MPI, environment"; words with blanks in <>. */
static char *show(const struct outcome *o)
{
    const struct job *job = o->result.job;
    struct buf b = {0};

    if (o->rc < 0) {
        return NULL;
    }
    for (size_t i = 0; i < job->command.n; i++) {
        const char *s = job->command.items[i];
        bool is_plain = s[0] && !strpbrk(s, " \n");

        buf_printf(&b, "%s%s%s%s", i ? " " : "", is_plain ? "" : "<", s,
                   is_plain ? "" : ">");
    }
    buf_printf(&b, "| %u x %u", job->nodes.min, job->procs.n);
    buf_puts(&b, job->program == JOB_MPI ? " mpi" : "");
    for (size_t i = 0; i < job->env.n; i++) {
        buf_printf(&b, " %s", job->env.items[i]);
    }
    return buf_take(&b);
}

static void compare(const struct outcome *o, const char *name, const char *want)
{
    _free_ char *got = show(o);

    is_str(got, want, "%s: %s", name, o->error.text);
}

/* Words, as a command line has them. */
static void test_words(void)
{
    static const struct {
        const char *words[12], *want;
    } cases[] = {
        {{"env", "A=1", "B=x y", "torchrun", "--nproc-per-node=2", "t.py", "-a"},
         "python3 -u t.py -a| 1 x 2 A=1 B=x y"},
        {{"/usr/bin/env", "torchrun", "t.py"}, "python3 -u t.py| 1 x 0"},
        {{"env", "-u", "A", "torchrun", "t.py"},
         "env -u A torchrun t.py| 1 x 0"},
        {{"env", "A=1", "python", "t.py"}, "env A=1 python t.py| 1 x 0"},
        {{"nohup", "torchrun", "--nnodes=2", "t.py"}, "python3 -u t.py| 2 x 0"},
        {{"numactl", "-N", "0", "--membind=0", "torchrun", "--nproc-per-node=2",
          "t.py"}, "numactl -N 0 --membind=0 python3 -u t.py| 1 x 2"},
        {{"numactl", "--interleave", "all", "mpirun", "-n", "4", "a"},
         "numactl --interleave all a| 1 x 4 mpi"},
        {{"taskset", "0xff", "env", "A=1", "nice", "-n", "5", "torchrun", "t.py"},
         "taskset 0xff nice -n 5 python3 -u t.py| 1 x 0 A=1"},
        {{"taskset", "-c", "0-3", "deepspeed", "--num_gpus=2", "t.py"},
         "taskset -c 0-3 python3 -u t.py --local_rank=$(LOCAL_RANK)| 1 x 2"},
        {{"numactl", "-N", "0", "python", "-m", "torch.distributed.run",
          "--nproc_per_node=2", "t.py"}, "numactl -N 0 python -u t.py| 1 x 2"},
        {{"numactl", "-N", "0", "python", "-mtorch.distributed.run",
          "--nproc_per_node=2", "t.py"}, "numactl -N 0 python -u t.py| 1 x 2"},
        {{"nice", "python3", "-Wignore", "-X", "dev", "-um",
          "torch.distributed.run", "t.py"}, "nice python3 -u t.py| 1 x 0"},
        {{"nice", "python3", "-um"}, "nice python3 -um| 1 x 0"},
        {{"nice", "python3", "-c", "0", "-m", "torch.distributed.run"},
         "nice python3 -c 0 -m torch.distributed.run| 1 x 0"},
        {{"nice", "python3", "--check-hash-based-pycs", "never"},
         "nice python3 --check-hash-based-pycs never| 1 x 0"},
        {{"numactl", "-N", "0", "python", "t.py"},
         "numactl -N 0 python t.py| 1 x 0"},
        {{"nice", "bash", "-c", "torchrun --nproc_per_node=2 t.py"},
         "nice python3 -u t.py| 1 x 2"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_argv(cases[i].words);

        compare(&o, cases[i].want, cases[i].want);
    }
}

static struct outcome line(const char *shell, const char *text)
{
    const char *argv[] = {shell, "-c", text, NULL};

    return outcome_of_argv(argv);
}

/* What bash -c runs. */
static void test_lines(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"torchrun --nproc_per_node=2 train.py", "python3 -u train.py| 1 x 2"},
        {"exec torchrun --nnodes=2 \\\n  --nproc_per_node=2 \\\n 'a b.py' -x\n",
         "python3 -u <a b.py> -x| 2 x 2"},
        {"A=1 B='x y' torchrun t.py", "python3 -u t.py| 1 x 0 A=1 B=x y"},
        {"exec env A=1 nohup numactl -N 0 torchrun t.py",
         "numactl -N 0 python3 -u t.py| 1 x 0 A=1"},
        {"mpirun -np 4 ./a", "./a| 1 x 4 mpi"},
        {"torchrun --nproc_per_node=2 t.py --lr ${LR:-0.1} *.txt 'x y'",
         "bash -c <exec python3 -u t.py --lr ${LR:-0.1} *.txt 'x y' \"$@\"> "
         "bash| 1 x 2"},
        {"cd /app && torchrun --nproc_per_node=2 t.py -a",
         "bash -c <cd /app && exec python3 -u t.py -a \"$@\"> bash| 1 x 2"},
        {"set -ex\nexport A=$B\ntorchrun t.py",
         "bash -c <set -ex\nexport A=$B\nexec python3 -u t.py \"$@\"> bash| 1 x 0"},
        {"A=$X numactl -N 0 mpirun -np 2 a",
         "bash -c <exec env A=$X numactl -N 0 a \"$@\"> bash| 1 x 2 mpi"},
        {"torchrun --nproc_per_node=$N --master_addr=$MASTER_ADDR t.py",
         "python3 -u t.py| 1 x 0"},
        {"python train.py --x torchrun", "bash -c <python train.py --x torchrun>| 1 x 0"},
        {"mpirun -n 2 prep; train", "bash -c <mpirun -n 2 prep; train>| 1 x 0"},
        {"", "bash -c <>| 1 x 0"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = line("bash", cases[i].text);

        compare(&o, cases[i].text, cases[i].want);
        ok(!o.all || !strstr(o.all, "starts processes"), "without a warning");
    }
}

/* Shells with other options, and words behind the text. */
static void test_shells(void)
{
    static const struct {
        const char *words[8], *want;
    } cases[] = {
        {{"/bin/sh", "-ec", "torchrun t.py"}, "python3 -u t.py| 1 x 0"},
        {{"bash", "-e", "-o", "pipefail", "-c", "torchrun t.py"},
         "python3 -u t.py| 1 x 0"},
        {{"bash", "-lc", "torchrun t.py"},
         "bash -lc <exec python3 -u t.py \"$@\"> bash| 1 x 0"},
        {{"bash", "--login", "-c", "A=1 torchrun t.py"},
         "bash --login -c <exec python3 -u t.py \"$@\"> bash| 1 x 0 A=1"},
        {{"sh", "-c", "torchrun t.py $1", "sh", "x"},
         "sh -c <exec python3 -u t.py $1> sh x| 1 x 0"},
        {{"sh", "-c", "torchrun t.py", "sh", "x"}, "python3 -u t.py| 1 x 0"},
        {{"sh", "torchrun", "t.py"}, "sh torchrun t.py| 1 x 0"},
        {{"bash", "-c"}, "bash -c| 1 x 0"},
        {{"bash", "-o"}, "bash -o| 1 x 0"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_argv(cases[i].words);

        compare(&o, cases[i].want, cases[i].want);
    }
}

/* Values that the job's own environment has, as pods write them. */
static void test_environment(void)
{
    _outcome_ struct outcome o = outcome_of_text(
        "apiVersion: muster/v1\nkind: Job\nenv: {N: 2, P: '4'}\n"
        "command: [bash, -c, 'torchrun --nnodes=$N --nproc_per_node=${P} t.py']\n");
    _outcome_ struct outcome args = outcome_of_text(
        "apiVersion: muster/v1\nkind: Job\ncommand: [/bin/bash, -c]\n"
        "args: ['torchrun --nproc_per_node=2 t.py']\n"
        "checkpoint: {resumeArg: --resume}\n");
    _outcome_ struct outcome shell = outcome_of_text(
        "apiVersion: muster/v1\nkind: Job\n"
        "command: [bash, -c, 'cd /a && torchrun t.py']\n"
        "checkpoint: {resumeArg: --resume}\n");

    compare(&o, "of the job", "python3 -u t.py| 2 x 4 N=2 P=4");
    compare(&args, "args", "python3 -u t.py| 1 x 2");
    ok(!strstr(args.all, "resumeArg"), "resumeArg reaches a program");
    ok(!strstr(shell.all, "resumeArg"), "and through a shell that is kept");
}

static void test_warned(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"torchrun t.py | tee log", "torchrun in the text of bash -c is started by "
         "each of muster's processes"},
        {"pip install x && torchrun --nproc_per_node=2 t.py",
         "expected torchrun alone as the command"},
        {"if true; then torchrun t.py; fi", "torchrun in the text"},
        {"torchrun a.py; torchrun b.py", "torchrun in the text"},
        {"for i in 1 2; do\n  /opt/bin/deepspeed t.py\ndone", "deepspeed in the"},
        {"A=1 mpirun -n 2 a > log", "mpirun in the text"},
        {"(cd x; srun -n 2 a)", "srun in the text"},
        {"python -m torch.distributed.run t.py || exit 1",
         "torch.distributed.run in the text"},
    };
    static const char *const silent[] = {
        "pip install deepspeed && python t.py", "echo 'torchrun x' | cat",
        "python t.py --launcher torchrun x | cat", "mpirun -n 2 prep | cat; a",
        "./mytorchrun x | cat", "torchrunx y | cat", "cat torchrun",
    };
    static const char *const behind[] = {"apptainer", "exec", "i.sif", "torchrun",
                                         "--nproc-per-node=2", "t.py", NULL};
    static const char *const option[] = {"run-it", "--launcher", "torchrun", "x",
                                         NULL};
    _outcome_ struct outcome b = outcome_of_argv(behind);
    _outcome_ struct outcome n = outcome_of_argv(option);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = line("bash", cases[i].text);

        is_int(o.rc, 0, "%s is left as it is", cases[i].text);
        like(o.all, cases[i].want, "with a warning");
    }
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++) {
        _outcome_ struct outcome o = line("bash", silent[i]);

        ok(!o.all || !strstr(o.all, "starts processes"), "none: %s", silent[i]);
    }
    like(b.all, "torchrun behind apptainer is started by each of muster's",
         "behind a program that is not known");
    ok(!strstr(n.all, "starts processes"), "but not as the value of an option");
}

static void test_twice(void)
{
    static const char *const argv[] = {"mpirun", "-n", "2", "bash", "-c",
                                       "torchrun --nproc-per-node=2 t.py", NULL};
    _outcome_ struct outcome o = outcome_of_argv(argv);

    is_int(o.rc, -ERR_SPEC, "one launcher behind another is refused");
    like(o.error.text, "torchrun behind mpirun", "also through a shell");
}

int main(void)
{
    test_words();
    test_lines();
    test_shells();
    test_environment();
    test_warned();
    test_twice();
    return tap_done();
}
