/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runtime, job and command line make together, key by key: told by the job
 * that comes out, in short. And $(NAME), which is filled in behind all that.
 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <string.h>

static struct outcome layered(const char *runtime, const char *job,
                              const char *path, const char *value)
{
    struct spec_override over = {path, value, "--set"};
    _buf_ struct buf text = {0};

    buf_printf(&text,
               "apiVersion: muster/v1\nkind: Job\nname: j\n%s%s\n"
               "---\napiVersion: muster/v1\nkind: Runtime\nname: r\n%s\n",
               runtime ? "runtime: r\n" : "", job, runtime ? runtime : "");
    return outcome_of(&(struct spec_request){
        .text = buf_str(&text),
        .text_name = "t",
        .overrides = path ? &over : NULL,
        .n_overrides = path != NULL});
}

static char *show(const struct job *job)
{
    _free_ char *argv = joined(&job->command), *env = joined(&job->env);
    _free_ char *labels = joined(&job->labels);
    _free_ char *secrets = joined(&job->secrets);
    struct buf b = {0};

    buf_printf(&b, "%s|%s|%s|%s|%s|%u..%u", argv, env, labels, secrets,
               job->workdir ? job->workdir : "-", job->nodes.min,
               job->nodes.max);
    return buf_take(&b);
}

static void test_merge(void)
{
    static const struct {
        const char *runtime, *job, *path, *value, *want;
    } cases[] = {
        /* command and args replace each on its own */
        {"command: [r, x]\nargs: [y]", "command: [j]", NULL, NULL,
         "j y||||-|1..1"},
        {"command: [r, x]\nargs: [y]", "args: [z]", NULL, NULL,
         "r x z||||-|1..1"},
        {"command: [r]\nargs: [y]", "args: ", NULL, NULL, "r||||-|1..1"},
        {"command: [r]\nargs: [y]", "args: []", NULL, NULL, "r||||-|1..1"},
        {"command: [r]\nargs: [y]", "", "args", "[c]", "r c||||-|1..1"},
        {"command: [r]\nargs: [y]", "", "args", "null", "r||||-|1..1"},
        {"command: [r]\nargs: [y]", "args: [z]", "command", "[c, d]",
         "c d z||||-|1..1"},
        /* env by name, in the place where it was */
        {"command: [r]\nenv: {A: 1, B: 2}", "env: [{name: A, value: 3}]", NULL,
         NULL, "r|A=3 B=2|||-|1..1"},
        {"command: [r]\nenv: {A: 1, B: 2}", "env: {C: 3, A: }", NULL, NULL,
         "r|B=2 C=3|||-|1..1"},
        {"command: [r]\nenv: {A: 1, B: 2}", "env: ", NULL, NULL,
         "r||||-|1..1"},
        {"command: [r]\nenv: {A: 1, B: 2}", "", "env.A", "9",
         "r|A=9 B=2|||-|1..1"},
        {"command: [r]\nenv: {A: 1, B: 2}", "", "env", "{A: 9}",
         "r|A=9 B=2|||-|1..1"},
        {"command: [r]\nenv: {A: 1, B: 2}", "", "env",
         "[{name: C, value: 3}]", "r|A=1 B=2 C=3|||-|1..1"},
        {"command: [r]\nenv: {A: 1}", "", "env", "~", "r||||-|1..1"},
        {"command: [r]", "env: {A: x}", "env.A", "null",
         "r|A=null|||-|1..1"},
        /* scalars and maps */
        {"command: [r]\nworkdir: /r\nlabels: {a: 1, b: 2}",
         "labels: {b: 3, c: 4}", NULL, NULL, "r||a=1 b=3 c=4||/r|1..1"},
        {"command: [r]\nlabels: {a: 1}", "labels: {a: }", NULL, NULL,
         "r||||-|1..1"},
        {"command: [r]\nworkdir: /r", "workdir: ", NULL, NULL,
         "r||||-|1..1"},
        {"command: [r]\nworkdir: /r", "", "workdir", "", "r||||-|1..1"},
        {"command: [r]\nworkdir: /r", "", "workdir", "~", "r||||-|1..1"},
        {"command: [r]\nnodes: 2..4", "nodes: 3", NULL, NULL, "r||||-|3..3"},
        {"command: [r]\nnodes: 2..4", "", NULL, NULL, "r||||-|2..4"},
        {"command: [r]\nnodes: 2..4", "nodes: 3", "nodes", "1..2",
         "r||||-|1..2"},
        {NULL, "command: [j]\nnodes: 5", "nodes", "null", "j||||-|1..1"},
        {NULL, "command: [j]\nelastic: {minNodes: 2, maxNodes: 8}", NULL, NULL,
         "j||||-|2..8"},
        {NULL, "command: [j]\nnodes: 4\nelastic: {minNodes: 2}", NULL, NULL,
         "j||||-|2..4"},
        {NULL, "command: [j]\nnodes: 2..4\nelastic: {maxNodes: 8}", NULL, NULL,
         "j||||-|2..8"},
        /* a job adds to the secrets of its runtime */
        {"command: [r]\nsecrets: [A]\nenv: {A: 1}", "secrets: [B]", NULL, NULL,
         "r|A=1||A B|-|1..1"},
        {"command: [r]\nsecrets: [A]", "", NULL, NULL, "r|||A|-|1..1"},
        {NULL, "command: [j]\nenv: {MY_TOKEN: x}", NULL, NULL,
         "j|MY_TOKEN=x||MY_TOKEN|-|1..1"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = layered(cases[i].runtime, cases[i].job,
                                             cases[i].path, cases[i].value);
        _free_ char *got = o.rc == 0 ? show(o.result.job) : NULL;

        is_str(got ? got : o.error.text, cases[i].want, "case %zu", i);
    }
}

static void test_notes(void)
{
    _outcome_ struct outcome o =
        layered("command: [r]\nnodes: 2..4", "nodes: 3", NULL, NULL);
    _outcome_ struct outcome none =
        layered("command: [r]\nnodes: 2..4", "nodes: 1..3", NULL, NULL);

    is_str(o.all, "note: t:5:8: the job has 3 nodes, so the runtime's 2..4 "
                  "does not count\n", "a range that is taken away is told");
    ok(!strstr(none.all, "does not count"), "not one that another takes");

    _outcome_ struct outcome same =
        layered("command: [r]\nnodes: 4", "nodes: 3", NULL, NULL);

    is_str(same.all, "", "nor a number");
}

/* One parameter, or one key of one. */
static void test_parameters(void)
{
    static const char keys[] =
        "command: [a]\nsearch: {parameters: {l.r: {type: int, min: 1, max: 4}}}";
    static const struct {
        const char *path, *value, *want; /* of all: name type min max values */
    } cases[] = {
        {NULL, NULL, "l.r 1 1 4;"},
        {"search.parameters.l.r.max", "9", "l.r 1 1 9;"},
        {"search.parameters.l.r.type", "double", "l.r 0 1 4;"},
        {"search.parameters.l.r.values", "[2, 3]", "l.r 1 1 4 2 3;"},
        {"search.parameters.l.r", "7", "l.r 2 1 4 7;"},
        {"search.parameters.l.r", "null", ""},
        {"search.parameters.x", "{min: 0, max: 1}", "l.r 1 1 4;x 0 0 1;"},
        {"search.parameters.x.y", "5", "l.r 1 1 4;x.y 2 0 0 5;"},
        {"search.parameters", "{x: 5}", "l.r 1 1 4;x 2 0 0 5;"},
        {"search.parameters.l.r.min", "z", "--set: search.parameters.min is "
                                           "\"z\"; expected a number such as "
                                           "0.1 or 1e-4"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o =
            layered(NULL, keys, cases[i].path, cases[i].value);
        _buf_ struct buf got = {0};

        for (size_t k = 0; o.rc == 0 && k < o.result.job->search.n_parameters;
             k++) {
            const struct job_parameter *p = &o.result.job->search.parameters[k];
            _free_ char *values = joined(&p->values);

            buf_printf(&got, "%s %d %g %g%s%s;", p->name, (int)p->type, p->min,
                       p->max, p->values.n ? " " : "", values ? values : "");
        }
        is_str(o.rc == 0 ? buf_str(&got) : o.error.text, cases[i].want, "%s",
               cases[i].path ? cases[i].path : "as it is");
    }
}

/* By the rule of Kubernetes; "argv|env", as it is where a worker starts. */
static void test_variables(void)
{
    static const struct {
        const char *keys, *want;
    } cases[] = {
        {"env: {A: 1}\nargs: [$(A), '$(A)$(A)', x$(A)y]", "a 1 11 x1y|A=1"},
        {"env: {A: 1}\nargs: [$$(A), $$$(A), $$$$(A)]",
         "a $(A) $1 $$(A)|A=1"},
        {"args: [$(B), $$(B), $(), $(B, '$', $$, $x, '${B}', $B]",
         "a $(B) $(B) $() $(B $ $ $x ${B} $B|"},
        {"env: {A: $(B), B: 2}", "a|A=$(B) B=2"},
        {"env: {B: 2, A: $(B)}", "a|B=2 A=2"},
        {"env: {P: $(P), Q: x$(Q)}", "a|P=$(P) Q=x$(Q)"},
        {"env: {A: $$(B), B: 2, C: $(A)}", "a|A=$(B) B=2 C=$(B)"},
        {"env: {A: $$, C: $(A)(D), D: 1}", "a|A=$ C=$(D) D=1"},
        {"env: {A: '', B: '[$(A)]'}", "a|A= B=[]"},
        {"env: {A: ' x y ', B: $(A)}\nargs: ['$(B)']",
         "a  x y |A= x y  B= x y "},
        {"env: {'a b': 1}\nargs: ['$(a b)']", "a 1|a b=1"},
        {"env: {a.b: 1, A: 2}\nargs: ['$(a.b)$(a)']", "a 1$(a)|a.b=1 A=2"},
        {"env: [{name: A, value: 1}, {name: B, value: $(A)}, "
         "{name: A, value: 3}]", "a|A=3 B=3"},
        {"env: {A: 1, AB: 2}\nargs: [$(AB), $(A), $(ABC)]",
         "a 2 1 $(ABC)|A=1 AB=2"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_keys(cases[i].keys);
        _buf_ struct buf got = {0};

        for (size_t k = 0; o.rc == 0 && k < o.result.job->command.n; k++) {
            buf_puts(&got, k ? " " : "");
            unescape(&got, o.result.job->command.items[k]);
        }
        buf_puts(&got, "|");
        for (size_t k = 0; o.rc == 0 && k < o.result.job->env.n; k++) {
            buf_puts(&got, k ? " " : "");
            unescape(&got, o.result.job->env.items[k]);
        }
        is_str(o.rc == 0 ? buf_str(&got) : o.error.text, cases[i].want,
               "%s", cases[i].keys);
    }
}

int main(void)
{
    test_merge();
    test_notes();
    test_parameters();
    test_variables();
    return tap_done();
}
