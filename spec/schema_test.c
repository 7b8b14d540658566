/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types of fields at the ends of their ranges, through keys of the short
 * form that are of them.
 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

static void test_ranges(void)
{
    static const struct {
        const char *keys, *error; /* "": it is good */
    } cases[] = {
        {"nodes: 65536", ""},
        {"nodes: 65537", "nodes is \"65537\""},
        {"nodes: 1..65536", ""},
        {"procsPerNode: 1024", ""},
        {"procsPerNode: '1'", ""},
        {"procsPerNode: 1025", "procsPerNode is \"1025\""},
        {"procsPerNode: -1", "procsPerNode is \"-1\""},
        {"procsPerNode: +1", "procsPerNode is \"+1\""},
        {"procsPerNode: 1.0", "procsPerNode is \"1.0\""},
        {"procsPerNode: 1e1", "procsPerNode is \"1e1\""},
        {"procsPerNode: 0x10", "procsPerNode is \"0x10\""},
        {"procsPerNode: 1_0", "procsPerNode is \"1_0\""},
        {"procsPerNode: 012", "procsPerNode is \"012\""},
        {"procsPerNode: ' 1'", "procsPerNode is \" 1\""},
        {"procsPerNode: GPU", "procsPerNode is \"GPU\""},
        {"procsPerNode: xpu", "procsPerNode is \"xpu\""},
        {"procsPerNode: true", "procsPerNode is \"true\""},
        {"procsPerNode: [1]", "procsPerNode is a list"},
        {"resources: {gpus: 1024}", ""},
        {"resources: {gpus: 1025}", "resources.gpus is \"1025\""},
        {"resources: {cpus: 1000000}", ""},
        {"resources: {cpus: 1000001}", "resources.cpus is \"1000001\""},
        {"resources: {memory: 1Ei}", ""},
        {"resources: {memory: 2Ei}", "resources.memory is \"2Ei\""},
        {"logs: {maxSize: 64Ki}", ""},
        {"logs: {maxSize: 1e6}", ""},
        {"logs: {maxSize: off}", ""},
        {"logs: {maxSize: 65535}", "logs.maxSize is \"65535\"; expected a size "
                                   "such as 64Mi of at least 64Ki, or off"},
        {"logs: {maxSize: [1Mi]}", "logs.maxSize is a list; expected a size"},
        {"logs: {keep: 0}", "logs.keep is \"0\""},
        {"logs: {prefix: '{rank} '}", ""},
        {"logs: {prefix: 'rank '}", "logs.prefix \"rank \" names no field"},
        {"restart: {max: 2147483647}", ""},
        {"restart: {max: 2147483648}", "restart.max is \"2147483648\""},
        {"restart: {policy: onfailure}", ""},
        {"restart: {backoff: 1s..1s}", ""},
        {"restart: {backoff: 2s}", ""},
        {"restart: {backoff: 1s..1d}", ""},
        {"restart: {backoff: 1s..25h}", "restart.backoff is \"1s..25h\""},
        {"restart: {backoff: 2s..1s}", "restart.backoff is \"2s..1s\""},
        {"restart: {exitCodes: [1, 255]}", ""},
        {"restart: {exitCodes: [256]}", "restart.exitCodes is \"256\""},
        {"restart: {exitCodes: t8k}", "restart.exitCodes is \"t8k\""},
        {"gang: {timeout: 1s}", ""},
        {"gang: {timeout: 999ms}", "gang.timeout is \"999ms\""},
        {"gang: {timeout: 365d}", ""},
        {"gang: {timeout: 366d}", "gang.timeout is \"366d\""},
        {"gang: {timeout: 1:30}", "gang.timeout is \"1:30\""},
        {"limits: {grace: 0}", ""},
        {"limits: {grace: 0s}", ""},
        {"limits: {grace: 86401s}", "limits.grace is \"86401s\""},
        {"limits: {deadline: 36500d}", ""},
        {"limits: {deadline: 99999d}", "limits.deadline is \"99999d\""},
        {"suspend: no", ""},
        {"suspend: Off", ""},
        {"suspend: y", "suspend is \"y\""},
        {"checkpoint: {levels: [Disk]}", ""},
        {"checkpoint: {levels: disk}", "checkpoint.levels is \"disk\""},
        {"command: [a, null]", "command is nothing; expected text"},
        {"command: [a, ~]", "command is nothing; expected text"},
        {"command: [a, ]", ""},
        {"command: [a, '']", ""},
        {"command: [a, {b: c}]", "command is a map; expected text"},
        {"args: [null]", "args is nothing; expected text"},
        {"env: {\"A\\x7f\": x}", "env has the name \"A\\x7f\"; expected 1 to 320"},
        {"env: {\"A\\n\": x}", "env has the name \"A\\n\"; expected 1 to 320"},
        {"workdir: ''", "workdir is \"\"; expected text"},
        {"xyzzy: 1", "elastic, gang, ..."},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf text = {0};
        _outcome_ struct outcome o = {0};
        const char *own = strncmp(cases[i].keys, "command", 7) == 0
                              ? "" : "command: [a]\n";

        buf_printf(&text, "apiVersion: muster/v1\nkind: Job\n%s%s\n", own,
                   cases[i].keys);
        o = outcome_of_text(buf_str(&text));
        is_int(o.rc, cases[i].error[0] ? -ERR_SPEC : 0, "%s: %s",
               cases[i].keys, o.error.text);
        like(o.error.text, cases[i].error, "and says why");
    }
}

static char *repeated(const char *before, char c, int n, const char *after)
{
    struct buf b = {0};

    buf_puts(&b, before);
    for (int i = 0; i < n; i++) {
        buf_putc(&b, c);
    }
    buf_puts(&b, after);
    return buf_take(&b);
}

static void test_lengths(void)
{
    static const struct {
        const char *before, *after;
        int most;
        const char *error;
    } cases[] = {
        {"workdir: ", "\n", 131072, "workdir has 131073 bytes; expected at most"},
        {"env: {? ", " : x}\n", 320, "env has the name \"xxx"},
        {"name: ", "\n", 63, "name is \"xxx"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ char *good =
            repeated(cases[i].before, 'x', cases[i].most, cases[i].after);
        _free_ char *bad =
            repeated(cases[i].before, 'x', cases[i].most + 1, cases[i].after);
        _outcome_ struct outcome o = outcome_of_keys(good);
        _outcome_ struct outcome p = outcome_of_keys(bad);

        is_str(o.error.text, "", "%s%d of them", cases[i].before,
               cases[i].most);
        is_int(p.rc, -ERR_SPEC, "but not one more");
        like(p.error.text, cases[i].error, "which is told");
        ok(strlen(p.error.text) < 400, "in a few words");
    }
}

/* The values that come of it, in the form that a run keeps. */
static void test_written(void)
{
    static const struct {
        const char *keys, *line;
    } cases[] = {
        {"resources: {cpus: 0.0006}", "resources: {cpus: 1m, gpus: 0}"},
        {"resources: {cpus: 1.5}", "resources: {cpus: 1500m, gpus: 0}"},
        {"resources: {cpus: 250m}", "resources: {cpus: 250m, gpus: 0}"},
        {"resources: {memory: 5Mi}", "resources: {memory: 5Mi, gpus: 0}"},
        {"resources: {memory: 1000}", "resources: {memory: 1000, gpus: 0}"},
        {"resources: {memory: 1G}", "resources: {memory: 1000000000, gpus: 0}"},
        {"resources: {memory: 1Ti}", "resources: {memory: 1048576Mi, gpus: 0}"},
        {"container: 'none'", "container: \"none\""},
        {"env: {A: 'yes', B: '012', C: 1:30, D: x}", " A: \"yes\""},
        {"env: {A: 'yes', B: '012', C: 1:30, D: x}", " B: \"012\""},
        {"env: {A: 'yes', B: '012', C: 1:30, D: x}", " C: \"1:30\""},
        {"env: {A: 'yes', B: '012', C: 1:30, D: x}", " D: x"},
        {"checkpoint: {levels: [disk, memory]}", "levels: [memory, disk]"},
        {"restart: {exitCodes: [3, 255]}", "exitCodes: [3, 255]"},
        {"restart: {exitCodes: [143, 138, 137, 130]}", "exitCodes: t9k"},
        {"restart: {backoff: 5s}", "backoff: 5s..5s"},
        {"detach: {timeout: off}", "detach: {timeout: \"off\"}"},
        {"detach: {timeout: auto}", "detach: {timeout: auto}"},
        {"nodes: 2:8", "nodes: 2..8"},
        {"search: {parameters: {a: {min: 0.30000000000000004, max: 1e-5}}}",
         "min: 0.30000000000000004, max: 1e-05"},
        {"labels: {a: '\xc2\xa0'}", "labels: {a: \"\\u00a0\"}"},
        {"labels: {a: \"\\u202e\\U000e0001\"}",
         "labels: {a: \"\\u202e\\U000e0001\"}"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_keys(cases[i].keys);
        _free_ char *yaml = o.rc == 0 ? job_write_yaml(o.result.job) : NULL;

        like(yaml ? yaml : o.error.text, cases[i].line, "%s", cases[i].keys);
    }
}

static void test_told(void)
{
    static const struct {
        const char *keys, *all; /* the whole of it */
    } cases[] = {
        {"env: {A: 'yes', B: \"012\"}", ""},
        {"checkpoint: {watch: off}", ""},
        {"workdir: on",
         "warning: t:4:10: workdir is on without quotes, which some YAML readers "
         "take for something else; taken as the text \"on\"\n"},
        {"search: {parameters: {a: {min: 1, max: 2}}}",
         "note: t:4:9: search is not acted on yet: the job runs once, and is "
         "told none of the parameters\n"},
        {"search: {parameters: }", ""},
        {"search: {parameters: {a: }}", ""},
        {"restart: {max: }", ""},
    };
    _outcome_ struct outcome o = outcome_of_keys("restart: {max: }\n");

    is_str(spec_origin_of(&o.result, "restart.max"), "default",
           "a value of nothing is that of the default");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome each = outcome_of_keys(cases[i].keys);

        is_str(each.error.text, "", "resolves: %s", cases[i].keys);
        is_str(each.all, cases[i].all, "and what is told");
    }
}

int main(void)
{
    test_ranges();
    test_lengths();
    test_written();
    test_told();
    return tap_done();
}
