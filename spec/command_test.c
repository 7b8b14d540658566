/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/testing.h"
#include "spec/value.h"
#include "tests/lib/tap.h"

#include <string.h>

static struct outcome resolve(const char *command, const char *keys)
{
    _buf_ struct buf text = {0};

    buf_printf(&text, "apiVersion: muster/v1\nkind: Job\ncommand: [%s]\n%s\n",
               command, keys);
    return outcome_of_text(buf_str(&text));
}

static char *show(const struct job *job)
{
    struct buf b = {0};
    _free_ char *argv = joined(&job->command);

    buf_printf(&b, "%s| %u..%u x ", argv, job->nodes.min, job->nodes.max);
    if (job->procs.mode == JOB_PROCS_FIXED) {
        buf_printf(&b, "%u", job->procs.n);
    } else {
        buf_puts(&b, job->procs.mode == JOB_PROCS_GPU ? "gpu" : "auto");
    }
    buf_printf(&b, " r%u%s", job->restart.max,
               job->program == JOB_MPI ? " mpi" : "");
    for (size_t i = 0; i < job->mpi_args.n; i++) {
        buf_printf(&b, " %s", job->mpi_args.items[i]);
    }
    return buf_take(&b);
}

static void test_launchers(void)
{
    static const struct {
        const char *command, *keys, *want, *message;
    } cases[] = {
        {"torchrun, --nnodes=2, --nproc-per-node, 4, train.py, --a", "",
         "python3 -u train.py --a| 2..2 x 4 r3", "note: t:3:11: torchrun is "
         "not run: muster starts train.py itself"},
        {"/v/bin/torchrun, t.py", "", "/v/bin/python3 -u t.py| 1..1 x auto r3",
         "would start one process a node"},
        {"torchrun, --nnodes=1:4, --max_restarts=7, -m, pkg.mod, -x", "",
         "python3 -u -m pkg.mod -x| 1..4 x auto r7", ""},
        {"torchrun, --no-python, ./prog, --nnodes=9", "",
         "./prog --nnodes=9| 1..1 x auto r3", ""},
        {"torchrun, --nproc-per-node=gpu, --, t.py", "",
         "python3 -u t.py| 1..1 x gpu r3", ""},
        {"python, -u, -m, torch.distributed.launch, --nproc_per_node=2, t.py",
         "", "python -u t.py --local-rank=$(LOCAL_RANK)| 1..1 x 2 r3", ""},
        {"python, -m, torch.distributed.launch, --use-env, -m, t, x", "",
         "python -u -m t x| 1..1 x auto r3", ""},
        {"python3.11, -m, torch.distributed.run, --standalone, t.py", "",
         "python3.11 -u t.py| 1..1 x auto r3",
         "--standalone of torch.distributed.run has no effect"},
        {"torchrun, --nproc_per_node=auto, t.py", "procsPerNode: gpu",
         "python3 -u t.py| 1..1 x gpu r3",
         "warning: t:3:21: --nproc_per_node=auto of torchrun differs from "
         "procsPerNode gpu (t:4:15); the latter counts"},
        {"torchrun, '--nnodes=2:8', t.py", "nodes: 2..8",
         "python3 -u t.py| 2..8 x auto r3", ""},
        {"torchrun, '--nnodes=${N}', t.py", "nodes: 3",
         "python3 -u t.py| 3..3 x auto r3",
         "note: t:3:21: --nnodes=${N} of torchrun is ignored"},
        {"torchrun, '--nnodes=$(N)', t.py", "env: {N: 5}",
         "python3 -u t.py| 5..5 x auto r3", ""},
        {"python, train.py, -m, torch.distributed.run", "",
         "python train.py -m torch.distributed.run| 1..1 x auto r3", ""},
        {"python, -c, -m, torch.distributed.run", "",
         "python -c -m torch.distributed.run| 1..1 x auto r3", ""},
        {"/v/bin/python3, -u, /v/bin/torchrun, --nnodes=2, -m, t, a", "",
         "/v/bin/python3 -u -m t a| 2..2 x auto r3", "note: t:3:11: torchrun is "
         "not run: muster starts t itself"},
        {"python, /l/torch/distributed/launch.py, --nproc_per_node=2, t.py", "",
         "python -u t.py --local-rank=$(LOCAL_RANK)| 1..1 x 2 r3", ""},
        {"python, torch/distributed/run.py, t.py", "",
         "python -u t.py| 1..1 x auto r3", ""},
        {"python, /l/mytorch/distributed/run.py, t.py", "",
         "python /l/mytorch/distributed/run.py t.py| 1..1 x auto r3", ""},
        {"python, distributed/run.py, t.py", "",
         "python distributed/run.py t.py| 1..1 x auto r3", ""},
        {"python, '-', torchrun, t.py", "",
         "python - torchrun t.py| 1..1 x auto r3", ""},
        {"python, -c, x, torchrun, t.py", "",
         "python -c x torchrun t.py| 1..1 x auto r3", ""},
        {"python, t.py, torchrun, x", "",
         "python t.py torchrun x| 1..1 x auto r3", ""},
        {"python, /v/bin/mpirun, t.py", "",
         "python /v/bin/mpirun t.py| 1..1 x auto r3", ""},
        {"torchrun, --nnodes=2, --nnodes, '3', t.py", "",
         "python3 -u t.py| 3..3 x auto r3", ""},
        {"torchrun, -r3, -t, '3', -m, t.py", "",
         "python3 -u -m t.py| 1..1 x auto r3", ""},
        {"torchrun, --run-path, --no-python, /t.py", "",
         "python3 -u /t.py| 1..1 x auto r3", ""},
        {"mpirun, -np, 7, a", "procsPerNode: 4", "a| 1..1 x 4 r3 mpi",
         "-np 7 of mpirun is no multiple of 4 processes of a node; the latter"},
        {"mpirun, -np, 7, a", "nodes: 4", "a| 4..4 x auto r3 mpi",
         "-np 7 of mpirun is no multiple of 4 nodes; the latter counts"},
        {"mpirun, -np, 7, a", "nodes: 1\nprocsPerNode: 4",
         "a| 1..1 x 4 r3 mpi", "differs from what the job says, 1 node with 4"},
        {"mpirun, -np, 7, a", "nodes: 2..4", "a| 2..2 x auto r3 mpi", ""},
        {"mpirun, -np, 7, a", "procsPerNode: gpu", "a| 1..1 x gpu r3 mpi", ""},
        {"python, -c, torchrun", "", "python -c torchrun| 1..1 x auto r3", ""},
        {"mpirun, -np, 8, python, t.py", "",
         "python t.py| 1..1 x 8 r3 mpi", "starts python as an MPI program"},
        {"mpirun, -np, 8, a", "procsPerNode: 4", "a| 2..2 x 4 r3 mpi", ""},
        {"mpirun, -np, 8, a", "nodes: 4", "a| 4..4 x 2 r3 mpi", ""},
        {"mpirun, -np, 8, a", "nodes: 4\nprocsPerNode: 3",
         "a| 4..4 x 3 r3 mpi",
         "-np 8 of mpirun differs from what the job says, 4 nodes with 3"},
        {"mpirun, -np, 12, a", "nodes: 4\nprocsPerNode: 3",
         "a| 4..4 x 3 r3 mpi", ""},
        {"mpiexec, -N, 2, -n, 8, --mca, btl, tcp, a, -n, 1", "",
         "a -n 1| 4..4 x 2 r3 mpi --mca btl tcp", "starts a as an MPI program"},
        {"mpirun, --map-by, node, --bind-to=core, -q, a", "mpiArgs: [-x1]",
         "a| 1..1 x auto r3 mpi -x1 --bind-to=core -q",
         "--map-by of mpirun has no effect: muster places the processes"},
        {"mpirun, --tag-output, a", "", "a| 1..1 x auto r3 mpi",
         "--tag-output of mpirun has no effect: muster shows the output"},
        {"mpirun, -np, $NP, a", "", "a| 1..1 x auto r3 mpi", "is ignored"},
        {"accelerate, config", "", "accelerate config| 1..1 x auto r3",
         "accelerate starts processes of its own"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = resolve(cases[i].command, cases[i].keys);
        _free_ char *got = o.rc == 0 ? show(o.result.job) : NULL;

        is_str(got, cases[i].want, "%s: %s", cases[i].command, o.error.text);
        like(o.all, cases[i].message, "and what is said");
        if (!cases[i].message[0]) {
            ok(!strstr(o.all, "differs"), "no warning");
        }
    }
}

static void test_bad(void)
{
    static const struct {
        const char *command, *error;
    } cases[] = {
        {"torchrun", "t:3:11: torchrun without a program; expected a script"},
        {"torchrun, --nnodes", "--nnodes of torchrun without a value"},
        {"torchrun, --bogus, t.py", "t:3:21: --bogus of torchrun; expected an "
                                    "option of it that muster knows"},
        {"torchrun, --n=2, t.py", "--n=2 of torchrun; expected"},
        {"torchrun, --nnodes=x, t.py", "--nnodes of torchrun is \"x\"; expected"},
        {"torchrun, --nproc-per-node=0, t.py", "--nproc-per-node of torchrun is \"0\""},
        {"torchrun, --nno=2, t.py", "--nno=2 of torchrun; expected an option by "
                                    "its whole name, such as --nnodes"},
        {"torchrun, --standalone=1, t.py", "--standalone=1 of torchrun; expected "
                                           "it without a value"},
        {"torchrun, -m3, t.py", "-m3 of torchrun; expected it without a value"},
        {"torchrun, -nnodes=2, t.py", "-nnodes=2 of torchrun; expected"},
        {"torchrun, ---nnodes=2, t.py", "---nnodes=2 of torchrun; expected"},
        {"torchrun, --m, t.py", "--m of torchrun; expected"},
        {"torchrun, --nnodes, --standalone, t.py", "--nnodes of torchrun without"},
        {"mpirun", "mpirun without a program"},
        {"mpirun, -np, x, a", "-np x of mpirun; expected a number"},
        {"mpirun, -np, 0, a", "-np 0 of mpirun; expected a number"},
        {"mpirun, -np, 4294967296, a", "-np 4294967296 of mpirun; expected a"},
        {"torchrun, --nn=2, t.py", "--nn=2 of torchrun; expected an option"},
        {"torchrun, --log, x, t.py", "--log of torchrun; expected an option"},
        {"mpirun, -np, 2, a, ':', b", "several programs in one mpirun"},
        {"mpirun, --mca, a", "--mca of mpirun without a value"},
        {"a]\nprogram: mpi\nmpiArgs: [--host, b", "mpiArgs has --host, which "
         "muster itself tells mpirun; expected nodes"},
        {"a]\nprogram: mpi\nmpiArgs: [-np=2", "mpiArgs has -np=2, which"},
        {"a]\nmpiArgs: [-q", "mpiArgs without an MPI program"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = resolve(cases[i].command, "");

        is_int(o.rc, -ERR_SPEC, "refused: %s", cases[i].command);
        like(o.error.text, cases[i].error, "and says why");
    }
}

static void test_variables(void)
{
    _outcome_ struct outcome o =
        resolve("mpirun, -x, A=1, -x, B, -x, C=2, a", "env: {C: 3}");
    _free_ char *env = o.rc == 0 ? joined(&o.result.job->env) : NULL;

    is_str(env, "C=3 A=1", "-x sets what the job leaves open");
}

int main(void)
{
    test_launchers();
    test_bad();
    test_variables();
    return tap_done();
}
