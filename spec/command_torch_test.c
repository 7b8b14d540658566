/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each option of torchrun becomes, given as an option and as PET_*.
 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <ctype.h>
#include <string.h>

static struct outcome with_option(const char *option)
{
    _buf_ struct buf text = {0};

    buf_printf(&text, "apiVersion: muster/v1\nkind: Job\ncommand: [torchrun, "
               "%s, t.py, --nnodes=9]\n", option);
    return outcome_of_text(buf_str(&text));
}

static struct outcome with_environment(char *const *env, const char *options)
{
    _buf_ struct buf text = {0};

    buf_printf(&text, "apiVersion: muster/v1\nkind: Job\ncommand: [torchrun%s, "
               "t.py, --nnodes=9]\n", options);
    return outcome_of(&(struct spec_request){.text = buf_str(&text),
                                             .text_name = "t", .env = env});
}

/* "--a-b=c" to "PET_A_B=c", "--a-b" to "PET_A_B=1". */
static void variable_of(const char *option, struct buf *to)
{
    buf_puts(to, "PET_");
    for (option += 2; *option && *option != '='; option++) {
        buf_putc(to, *option == '-' ? '_'
                                    : (char)toupper((unsigned char)*option));
    }
    buf_puts(to, *option ? option : "=1");
}

static void has_value(const struct outcome *o, const char *path,
                      const char *want, const char *how)
{
    _buf_ struct buf value = {0};
    _free_ char *argv = NULL;

    if (!ok(o->rc == 0, "%s is taken: %s", how, o->error.text)) {
        return;
    }
    if (strcmp(path, "command") == 0) {
        argv = joined(&o->result.job->command);
        is_str(argv, want, "%s: the command", how);
        return;
    }
    job_write_value(o->result.job, path, &value);
    is_str(buf_str(&value), want, "%s is %s", how, path);
}

static void test_values(void)
{
    static const struct {
        const char *option, *path, *want;
    } cases[] = {
        {"--nnodes=2", "nodes", "2"},
        {"--nnodes=2:5", "nodes", "2..5"},
        {"--nproc-per-node=3", "procsPerNode", "3"},
        {"--nproc-per-node=gpu", "procsPerNode", "gpu"},
        {"--max-restarts=7", "restart.max", "7"},
        {"--shutdown-timeout=120", "limits.grace", "2m"},
        {"--rdzv-conf=timeout=9,join_timeout=42,read_timeout=1",
         "gang.timeout", "42s"},
        {"--rdzv-id=job-7", "torch.runId", "job-7"},
        {"--rdzv-id=none", "torch.runId", ""},
        {"--role=trainer", "torch.role", "trainer"},
        {"--log-dir=/var/log/x", "logs.dir", "/var/log/x"},
        {"--redirects=0", "logs.streams", "both"},
        {"--redirects=1", "logs.streams", "stderr"},
        {"--redirects=2", "logs.streams", "stdout"},
        {"--redirects=3", "logs.streams", "\"none\""},
        {"--redirects=0:1,1:2,3:3", "logs.streams",
         "\"both,0:stderr,1:stdout,3:none\""},
        {"--tee=3", "logs.streams", "both"},
        {"--local-ranks-filter=0,2", "logs.streams",
         "\"none,0:both,2:both\""},
        {"--log-line-prefix-template=[${role_name}${local_rank}]:",
         "logs.prefix", "\"[default{local_rank}]:\""},
        {"--log-line-prefix-template=plain", "logs.prefix", "rank"},
        {"--rdzv-conf=join_timeout=1,join_timeout=90", "gang.timeout", "90s"},
        {"--rdzv-conf=xjoin_timeout=1,a=2", "gang.timeout", "5m"},
        {"--rdzv-conf=timeout=9 , join_timeout = 42 ", "gang.timeout", "42s"},
        {"--local-addr=10.1.0.5", "network.interface", "10.1.0.5"},
        {"--local-addr=fd00::5", "network.interface", "\"fd00::5\""},
        {"--redirects=1023:1", "logs.streams", "\"both,1023:stderr\""},
        {"--redirects=0:2", "logs.streams", "\"both,0:stdout\""},
        {"--redirects=0:3,0:1", "logs.streams", "\"both,0:stderr\""},
        {"--local-ranks-filter= 0, 2 ", "logs.streams", "\"none,0:both,2:both\""},
        {"--local-ranks-filter=1023", "logs.streams", "\"none,1023:both\""},
        {"--no-python", "command", "t.py --nnodes=9"},
        {"--module", "command", "python3 -u -m t.py --nnodes=9"},
        {"--run-path", "command", "python3 -u t.py --nnodes=9"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf variable = {0}, quoted = {0};
        char *env[2] = {0};

        buf_printf(&quoted, "'%s'", cases[i].option);
        {
            _outcome_ struct outcome o = with_option(buf_str(&quoted));

            has_value(&o, cases[i].path, cases[i].want, cases[i].option);
        }
        variable_of(cases[i].option, &variable);
        env[0] = variable.data;
        {
            _outcome_ struct outcome o = with_environment(env, "");

            has_value(&o, cases[i].path, cases[i].want, env[0]);
        }
    }
}

/* Several options at once: the last one of a name; tee over redirects. */
static void test_together(void)
{
    static const struct {
        const char *options, *path, *want;
    } cases[] = {
        {"-r, '3', --redirects=1", "logs.streams", "stderr"},
        {"--redirects=1, -r3", "logs.streams", "\"none\""},
        {"-r3, -t, '0:1'", "logs.streams", "\"none,0:stdout\""},
        {"-r3, -t3", "logs.streams", "both"},
        {"-r3, -t, '0:3', '--local-ranks-filter=0,1'", "logs.streams",
         "\"none,0:both\""},
        {"-t, '0:1', '--local-ranks-filter=0'", "logs.streams",
         "\"none,0:both\""},
        {"-r1, '--local-ranks-filter=1,2'", "logs.streams",
         "\"none,1:stderr,2:stderr\""},
        {"--role=a, '--log-line-prefix-template=${role_name}$rank '",
         "logs.prefix", "\"a{rank} \""},
        {"--role=a, --role=b", "torch.role", "b"},
        {"--standalone, --rdzv-id=x", "torch.runId", ""},
        {"--rdzv_id=x, --rdzv-backend, c10d", "torch.runId", "x"},
        {"--max_restarts=2, --max-restarts, '5'", "restart.max", "5"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = with_option(cases[i].options);

        has_value(&o, cases[i].path, cases[i].want, cases[i].options);
        ok(!strstr(o.all ? o.all : "", "differs"), "without a warning");
    }
}

static void test_refused(void)
{
    static const struct {
        const char *option, *error;
    } cases[] = {
        {"--nnodes=2:20:30", "--nnodes of torchrun is \"2:20:30\"; expected"},
        {"--nproc-per-node=many", "--nproc-per-node of torchrun is \"many\""},
        {"--nproc-per-node=xpu", "--nproc-per-node of torchrun is \"xpu\""},
        {"--max-restarts=-1", "--max-restarts of torchrun is \"-1\""},
        {"--shutdown-timeout=-5", "--shutdown-timeout of torchrun is \"-5s\""},
        {"--rdzv-conf=join_timeout", "--rdzv-conf of torchrun is "
                                     "\"join_timeout\"; expected KEY=VALUE"},
        {"--rdzv-conf=join_timeout=x", "--rdzv-conf of torchrun is \"xs\""},
        {"--node-rank=x", "--node-rank of torchrun is \"x\"; expected a whole"},
        {"--master-port=http", "--master-port of torchrun is \"http\""},
        {"--monitor-interval=x", "--monitor-interval of torchrun is \"x\""},
        {"--start-method=thread", "--start-method of torchrun is \"thread\"; "
                                  "expected spawn, fork or forkserver"},
        {"--event-log-handler=console", "--event-log-handler of torchrun is "
                                        "\"console\"; expected null"},
        {"--redirects=4", "--redirects of torchrun is \"4\"; expected 0 (none)"},
        {"--redirects=0:1,2", "--redirects of torchrun is \"0:1,2\""},
        {"--redirects=1,2", "--redirects of torchrun is \"1,2\""},
        {"--tee=x", "--tee of torchrun is \"x\""},
        {"--tee=99999:1", "--tee of torchrun is \"99999:1\""},
        {"--redirects=1024:1", "--redirects of torchrun is \"1024:1\""},
        {"--redirects=0:4", "--redirects of torchrun is \"0:4\""},
        {"--redirects=0:x", "--redirects of torchrun is \"0:x\""},
        {"--redirects=:1", "--redirects of torchrun is \":1\""},
        {"--local-ranks-filter=0,1024", "--local-ranks-filter of torchrun is "
                                        "\"0,1024\""},
        {"--monitor-interval=-1", "--monitor-interval of torchrun is \"-1\"; "
                                  "expected seconds"},
        {"--master-port=-1", "--master-port of torchrun is \"-1\"; expected a"},
        {"--rdzv-conf=a=1,,b=2", "--rdzv-conf of torchrun is \"a=1,,b=2\""},
        {"--rdzv-conf=a,b=2", "--rdzv-conf of torchrun is \"a,b=2\""},
        {"--rdzv-conf=a=1,", "--rdzv-conf of torchrun is \"a=1,\""},
        {"--rdzv-conf=a= ", "--rdzv-conf of torchrun is \"a= \"; expected"},
        {"--rdzv-conf==1", "--rdzv-conf of torchrun is \"=1\"; expected KEY"},
        {"--redirects=0:1,", "--redirects of torchrun is \"0:1,\"; expected"},
        {"--tee=,0:1", "--tee of torchrun is \",0:1\"; expected"},
        {"--local-ranks-filter=0,", "--local-ranks-filter of torchrun is"},
        {"--local-ranks-filter=0 1", "--local-ranks-filter of torchrun is"},
        {"--signals-to-handle=SIGTERM,,SIGINT", "--signals-to-handle of"},
        {"--signals-to-handle=SIGTERMS", "--signals-to-handle of"},
        {"--local-ranks-filter=a", "--local-ranks-filter of torchrun is \"a\""},
        {"--duplicate-stdout-filters=a", "--duplicate-stdout-filters of "
                                         "torchrun is \"a\"; expected nothing"},
        {"--duplicate-stderr-filters=a", "--duplicate-stderr-filters of"},
        {"--logs-specs=mine", "--logs-specs of torchrun is \"mine\""},
        {"--numa-binding=node", "--numa-binding of torchrun is \"node\""},
        {"--signals-to-handle=SIGTERM,SIGALRM", "--signals-to-handle of "
                                                "torchrun is"},
        {"--signals-to-handle=TERM", "expected some of SIGTERM, SIGINT"},
        {"--log-line-prefix-template=${no}", "--log-line-prefix-template of "
                                             "torchrun is \"${no}\"; expected"},
        {"--virtual-local-rank", "--virtual-local-rank of torchrun; expected"},
        {"--print-completion=bash", "--print-completion of torchrun is"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf quoted = {0}, variable = {0};
        char *env[2] = {0};

        buf_printf(&quoted, "'%s'", cases[i].option);
        {
            _outcome_ struct outcome o = with_option(buf_str(&quoted));

            is_int(o.rc, -ERR_SPEC, "refused: %s", cases[i].option);
            like(o.error.text, cases[i].error, "and by its name");
        }
        variable_of(cases[i].option, &variable);
        env[0] = variable.data;
        {
            _outcome_ struct outcome o = with_environment(env, "");
            char name[64] = "";

            memcpy(name, env[0], strcspn(env[0], "="));
            is_int(o.rc, -ERR_SPEC, "refused: %s", env[0]);
            like(o.error.text, name, "and by its name");
        }
    }
}

/* What changes nothing, and is said to; from the environment it is not. */
static void test_noted(void)
{
    static const struct {
        const char *option, *note; /* or NULL: nothing is said */
    } cases[] = {
        {"--monitor-interval=0", "hears of a worker's end at once"},
        {"--monitor-interval=0.1", "hears of a worker's end at once"},
        {"--start-method=spawn", "every worker is a program of its own"},
        {"--start-method=fork", "every worker is a program of its own"},
        {"--start-method=forkserver", "every worker is a program of its own"},
        {"--event-log-handler=null", NULL},
        {"--duplicate-stdout-filters=", NULL},
        {"--logs-specs=", NULL},
        {"--logs-specs=default", NULL},
        {"--rdzv-conf= ", "gathers the processes itself"},
        {"--rdzv-conf=a=1, timeout =9", "timeout in --rdzv-conf of torchrun has "
                                        "no effect: muster gathers"},
        {"--rdzv-backend=etcd", "gathers the processes itself"},
        {"--rdzv-endpoint=h:1", "gathers the processes itself"},
        {"--rdzv-conf=", "gathers the processes itself"},
        {"--rdzv-conf=timeout=9", "timeout in --rdzv-conf of torchrun has no "
                                  "effect: muster gathers the processes"},
        {"--rdzv-conf=join_timeout=9,last_call_timeout=3",
         "last_call_timeout in --rdzv-conf of torchrun has no effect: muster "
         "looks for the hosts itself"},
        {"--rdzv-conf=keep_alive_interval=3,join_timeout=9",
         "heartbeat.timeout says"},
        {"--rdzv-conf=rank=3", "rank in --rdzv-conf of torchrun has no effect: "
                               "muster gives the ranks"},
        {"--rdzv-conf=close_timeout=3", "limits.grace"},
        {"--rdzv-conf=join_timeout=9", NULL},
        {"--rdzv-conf=mine=3", "mine in --rdzv-conf of torchrun has no effect: "
                               "muster does not know it"},
        {"--rdzv-id=none", NULL},
        {"--node-rank=0", "gathers the processes itself"},
        {"--master-addr=h", "gathers the processes itself"},
        {"--master-port=29500", "gathers the processes itself"},
        {"--standalone", "gathers the processes itself"},
        {"--local-addr=127.0.0.2", "an address that is not loopback"},
        {"--local-addr=::1", "an address that is not loopback"},
        {"--local-addr=node1", "an address that is not loopback"},
        {"--tee=3", "a file for each worker and stream"},
        {"--signals-to-handle=SIGTERM", "at any time"},
        {"--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
         "at any time"},
        {"--signals-to-handle= SIGTERM , SIGINT ,", "at any time"},
        {"--log-line-prefix-template=plain", "it has none of"},
        {"--node-rank=${RANK}", "is ignored: it has a variable"},
        {"--redirects=${R}", "is ignored: it has a variable"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf quoted = {0}, variable = {0};
        char *env[2] = {0};

        buf_printf(&quoted, "'%s'", cases[i].option);
        {
            _outcome_ struct outcome o = with_option(buf_str(&quoted));

            is_int(o.rc, 0, "%s is taken: %s", cases[i].option, o.error.text);
            if (cases[i].note) {
                like(o.all, cases[i].note, "and noted");
            } else {
                ok(!strstr(o.all, cases[i].option), "and no word is lost on it");
            }
        }
        variable_of(cases[i].option, &variable);
        env[0] = variable.data;
        {
            _outcome_ struct outcome o = with_environment(env, "");

            is_int(o.rc, 0, "%s is taken: %s", env[0], o.error.text);
            ok(!strstr(o.all, "has no effect"), "without a note");
        }
    }
}

/* What only one of both ways can say. */
static void test_one_way(void)
{
    char *env[] = {(char *)(uintptr_t)"PET_STANDALONE=yes", NULL};
    _outcome_ struct outcome both = with_option("--standalone, --rdzv-id=x");
    _outcome_ struct outcome word = with_environment(env, "");

    like(both.all, "each run has an id of its own",
         "an id that is not taken is told");
    is_int(word.rc, -ERR_SPEC, "refused: PET_STANDALONE=yes");
    like(word.error.text, "PET_STANDALONE", "by its name");
    like(word.error.text, "expected 0 or 1", "and with what it may be");
}

/* Variables by which torchrun's agent is asked for what muster does not do. */
static void test_lost(void)
{
    static const struct {
        const char *env[2], *note; /* or NULL: nothing is said */
    } cases[] = {
        {{"TORCHELASTIC_ENABLE_FILE_TIMER=1"}, NULL},
        {{"TORCHELASTIC_HEALTH_CHECK_PORT=8080"}, "answers at that port"},
        {{"TORCHELASTIC_HEALTH_CHECK_PORT=8080", "MUSTER_RUN_ID=x"}, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *env[3] = {(char *)(uintptr_t)cases[i].env[0],
                        (char *)(uintptr_t)cases[i].env[1]};
        _outcome_ struct outcome o = with_environment(env, "");

        is_int(o.rc, 0, "%s is taken: %s", env[0], o.error.text);
        if (cases[i].note) {
            like(o.all, cases[i].note, "and noted");
        } else {
            ok(!strstr(o.all, "TORCHELASTIC"), "and no word is lost on it");
        }
    }
}

/* Which words muster run hands on, and how many behind them. */
static void test_words(void)
{
    static const struct {
        const char *word;
        int want;
    } cases[] = {
        {"--nnodes", 1},   {"--nnodes=2", 0},  {"--max_restarts", 1},
        {"-r", 1},         {"-r3", 0},         {"-r=3", 0},
        {"--module", 0},   {"-m", 0},          {"--run-path", 0},
        {"--r", -1},       {"-nnodes", -1},    {"---nnodes", -1},
        {"--nnode", -1},   {"--bogus", -1},    {"nnodes", -1},
        {"-", -1},         {"--", -1},         {"--=", -1},
        {"", -1},          {"-x", -1},         {"--nnodes-", -1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(spec_torchrun_option(cases[i].word), cases[i].want, "'%s'",
               cases[i].word);
    }
}

/* Who says what, where several do. */
static void test_precedence(void)
{
    static const struct {
        const char *env[3], *options, *path, *want;
    } cases[] = {
        {{"PET_ROLE=a"}, ", --role=b", "torch.role", "b"},
        {{"PET_ROLE="}, "", "torch.role", "default"},
        {{"PET_ROLE=a", "MUSTER_RUN_ID=x"}, "", "torch.role", "default"},
        {{"PET_NO_PYTHON=0"}, "", "command", "python3 -u t.py --nnodes=9"},
        {{"PET_NO_PYTHON=1"}, "", "command", "t.py --nnodes=9"},
        {{"PET_NO_PYTHON=2"}, "", "command", "t.py --nnodes=9"},
        {{"PET_RUN_PATH=1"}, ", --module", "command",
         "python3 -u t.py --nnodes=9"},
        {{"PET_TEE=0:3"}, ", -r3", "logs.streams", "\"none,0:both\""},
        {{"PET_R=3", "PET_T=1"}, "", "logs.streams", "both"},
        {{"PYTHON_EXEC=/v/bin/py"}, "", "command",
         "/v/bin/py -u t.py --nnodes=9"},
        {{"PET_SHUTDOWN_TIMEOUT=7", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600"}, "",
         "limits.grace", "7s"},
        {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600"}, "", "limits.grace", "10m"},
        {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600"}, ", --shutdown-timeout=120",
         "limits.grace", "2m"},
        {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${rank}>"}, "",
         "logs.prefix", "\"<{rank}>\""},
        {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${rank}>",
          "PET_LOG_LINE_PREFIX_TEMPLATE=${hostname}"}, "", "logs.prefix",
         "\"{host}\""},
        {{NULL}, "", "limits.grace", "30s"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *env[4] = {(char *)(uintptr_t)cases[i].env[0],
                        (char *)(uintptr_t)cases[i].env[1],
                        (char *)(uintptr_t)cases[i].env[2]};
        _outcome_ struct outcome o = with_environment(env, cases[i].options);

        has_value(&o, cases[i].path, cases[i].want, env[0] ? env[0] : "nothing");
    }
}

/* Options beside a job, not in its command: they count over what it says. */
static void test_beside(void)
{
    static const struct {
        const char *words[4], *path, *want; /* or part of the error */
    } cases[] = {
        {{"--role", "b"}, "torch.role", "b"},
        {{"--redirects=3", "-t", "0:3"}, "logs.streams", "\"none,0:both\""},
        {{"--nnodes=3"}, "nodes", "3"},
        {{"--rdzv-endpoint=h"}, "torch.role", "a"},
        {{"--module"}, NULL, "--module of torchrun; expected it of muster"},
        {{"--no-python"}, NULL, "--no-python of torchrun; expected it of"},
        {{"-r7"}, NULL, "--redirects of torchrun is \"7\""},
        {{"--role"}, NULL, "--role of torchrun without a value"},
        {{"--use-env"}, NULL, "--use-env of torchrun; expected it of muster"},
        {{"--run-path"}, NULL, "--run-path of torchrun; expected it of muster"},
        {{NULL}, "torch.role", "a"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        static const char text[] =
            "apiVersion: muster/v1\nkind: Job\ncommand: [a]\nnodes: 2\n"
            "torch: {role: a}\n";
        _outcome_ struct outcome o = outcome_of(&(struct spec_request){
            .text = text, .text_name = "t",
            .torch_options = (char *const *)(uintptr_t)cases[i].words});

        if (cases[i].path) {
            has_value(&o, cases[i].path, cases[i].want,
                      cases[i].words[0] ? cases[i].words[0] : "no option");
        } else {
            is_int(o.rc, -ERR_SPEC, "refused: %s", cases[i].words[0]);
            like(o.error.text, cases[i].want, "and by its name");
        }
    }
}

int main(void)
{
    test_values();
    test_together();
    test_refused();
    test_noted();
    test_one_way();
    test_lost();
    test_words();
    test_precedence();
    test_beside();
    return tap_done();
}
