/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts in a command of mpirun: which ones, and how many processes on each. */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

/* "2 x 4 on a:4,b:4" */
static char *show(const struct outcome *o)
{
    const struct job *job = o->result.job;
    struct buf b = {0};

    if (!job) {
        return NULL;
    }
    buf_printf(&b, "%u x ", job->nodes.max);
    if (job->procs.mode == JOB_PROCS_FIXED) {
        buf_printf(&b, "%u", job->procs.n);
    } else {
        buf_puts(&b, "auto");
    }
    buf_printf(&b, " on %s", o->result.hosts ? o->result.hosts : "any");
    return buf_take(&b);
}

static void test_hosts(void)
{
    static const struct {
        const char *command, *keys, *want;
    } cases[] = {
        {"mpirun -np 2 p", "", "1 x 2 on any"},
        {"mpirun -H a:2 p", "", "1 x 2 on a:2"},
        {"mpirun -H a:2,b:2 p", "", "2 x 2 on a:2,b:2"},
        {"mpirun -H a:2,b:2 -np 4 p", "", "2 x 2 on a:2,b:2"},
        {"mpirun -np 4 --host a:2,b:2 p", "", "2 x 2 on a:2,b:2"},
        {"mpiexec -hosts a,b p", "", "2 x 1 on a:1,b:1"},
        {"mpirun --host=a,a,b,a p", "", "2 x auto on a:3,b:1"},
        {"mpirun -H a:2 -H b.x-y_z:2 p", "", "2 x 2 on a:2,b.x-y_z:2"},
        /* as many as there are slots, or all on the first ones */
        {"mpirun -H a:2,b:2 -np 3 p", "", "2 x auto on a:2,b:1"},
        {"mpirun -H a:2,b:2 -np 2 p", "", "1 x 2 on a:2"},
        {"mpirun -H a:1,b:2 p", "", "2 x auto on a:1,b:2"},
        {"mpirun -H a,b -np 4 --oversubscribe p", "", "2 x 2 on a:2,b:2"},
        {"mpirun -H a,b -np 5 --oversubscribe p", "", "2 x auto on a:3,b:2"},
        /* by node */
        {"mpirun -H a:4,b:4 -np 4 --map-by node p", "", "2 x 2 on a:2,b:2"},
        {"mpirun -H a:4,b:4 -np 3 --bynode p", "", "2 x auto on a:2,b:1"},
        {"mpirun -H a:4,b:4 --map-by node:PE=2 -np 2 p", "", "2 x 1 on a:1,b:1"},
        {"mpirun -H a:4,b:4 --map-by ppr:2:node p", "", "2 x 2 on a:4,b:4"},
        {"mpirun -np 6 --map-by ppr:2:node p", "", "3 x 2 on any"},
        {"mpirun -H a:1,b:4,c:2 -np 6 --map-by node p", "", "3 x auto on a:1,b:3,c:2"},
        {"mpirun -H a:1,b:4 -np 5 --map-by node p", "", "2 x auto on a:1,b:4"},
        {"mpirun -H a:1,b:4 -np 6 --map-by node p", "", "2 x 3 on a:3,b:3"},
        {"mpirun -H a:4,b:4 -np 4 --map-by slot p", "", "1 x 4 on a:4"},
        /* what the job says counts */
        {"mpirun -H a:2,b:2 p", "nodes: 1", "1 x 2 on a:2,b:2"},
        {"mpirun -H a:2,b:2,c:2 p", "nodes: 2..3", "2 x 2 on a:2,b:2,c:2"},
        {"mpirun -H a:2,b:2 p", "procsPerNode: 1", "2 x 1 on a:2,b:2"},
        {"mpirun -H a:2,b:2 -np 2 p", "procsPerNode: 1", "2 x 1 on a:2,b:2"},
        {"mpirun -H a:8,b:8 -np 4 p", "nodes: 2", "2 x 2 on a:8,b:8"},
        {"mpirun -N 4 -H a,b p", "", "2 x 4 on a:1,b:1"},
        {"mpirun -H $HOSTS -np 2 p", "", "1 x 2 on any"},
        /* behind a shell, and after the program */
        {"env A=1 mpirun -H a:2 p", "", "1 x 2 on a:2"},
        {"mpirun -np 2 p -H a:2", "", "1 x 2 on any"},
        {"python3 t.py -H a:2", "", "1 x auto on any"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_command(
            cases[i].command, cases[i].keys, NULL);
        _free_ char *got = show(&o);

        is_str(got, cases[i].want, "%s {%s} %s", cases[i].command, cases[i].keys,
               o.error.text);
    }
}

static void test_words(void)
{
    static const struct {
        const char *command, *want;
    } cases[] = {
        {"mpirun -H a:2 p", "note: t:3:21: -H of mpirun names the hosts, as "
         "--hosts a:2 would"},
        {"mpirun --hostfile h p", "warning: t:3:21: --hostfile of mpirun is not "
         "read; expected --hostfile of muster run, which takes such files"},
        {"mpiexec -f h p", "warning: t:3:22: -f of mpiexec is not read"},
        {"mpirun --map-by core -H a p", "--map-by of mpirun has no effect: muster "
         "places the processes"},
        {"mpirun --bynode p", "--bynode of mpirun has no effect"},
        {"mpirun -H $HOSTS p", "-H of mpirun is ignored: it has a variable"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_command(cases[i].command, "", NULL);

        is_int(o.rc, 0, "%s: %s", cases[i].command, o.error.text);
        like(o.all, cases[i].want, "what is said of it");
    }
}

static void test_bad(void)
{
    static const char *const lists[] = {
        ",", "a,,b", ":2", "a:", "a:x", "a:0", "a:1025", "a:*",
        "a:99999999999999999999", "a b", "-oX", "a;b", "::1", "n[1-2]",
    };

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        _buf_ struct buf text = {0};
        _outcome_ struct outcome o = {0};

        buf_printf(&text, "apiVersion: muster/v1\nkind: Job\n"
                   "command: [mpirun, -H, '%s', p]\n", lists[i]);
        o = outcome_of_text(buf_str(&text));
        is_int(o.rc, -ERR_SPEC, "refused: '%s'", lists[i]);
        like(o.error.text, "expected HOST[:SLOTS],...", "and what is expected");
        like(o.error.text, "t:3:23: -H of mpirun is ", "with its place");
    }
    {
        _outcome_ struct outcome o = outcome_of_command("mpirun -H a:2 -np x p", "", NULL);

        like(o.error.text, "-np x of mpirun; expected a number", "a bad total");
        is_int((int)o.result.n_errors, 1, "is told once");
    }
}

/* More than --hosts would be looked up with each other. */
static void test_many(void)
{
    _buf_ struct buf text = {0};
    _outcome_ struct outcome o = {0};

    buf_puts(&text, "apiVersion: muster/v1\nkind: Job\ncommand: [mpirun, -H, 'n0");
    for (int i = 1; i <= 8192; i++) {
        buf_printf(&text, ",n%d", i);
    }
    buf_puts(&text, "', p]\n");
    o = outcome_of_text(buf_str(&text));
    is_int(o.rc, -ERR_SPEC, "8193 hosts");
    like(o.error.text, "8192 at most", "are too many");
}

int main(void)
{
    test_hosts();
    test_words();
    test_bad();
    test_many();
    return tap_done();
}
