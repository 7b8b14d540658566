/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/restart.h"
#include "tests/lib/tap.h"

static void test_exit_status(void)
{
    static const struct {
        struct failure f;
        int want;
    } cases[] = {
        {{.kind = FAILURE_EXIT, .exit_code = 3}, 3},
        {{.kind = FAILURE_EXIT, .exit_code = 1}, 1},
        {{.kind = FAILURE_EXIT, .exit_code = 255}, 255},
        {{.kind = FAILURE_EXIT, .exit_code = 2}, 1},
        {{.kind = FAILURE_EXIT, .exit_code = 69}, 1},
        {{.kind = FAILURE_EXIT, .exit_code = 75}, 1},
        {{.kind = FAILURE_EXIT, .exit_code = 124}, 1},
        {{.kind = FAILURE_EXIT, .exit_code = 126}, 1},
        {{.kind = FAILURE_EXIT, .exit_code = 127}, 1},
        {{.kind = FAILURE_EXIT, .exit_code = 130}, 1},
        {{.kind = FAILURE_EXIT, .exit_code = 0}, 1},
        {{.kind = FAILURE_SIGNAL, .signal = 2}, 1},
        {{.kind = FAILURE_SIGNAL, .signal = 9}, 137},
        {{.kind = FAILURE_SIGNAL, .signal = 11}, 139},
        {{.kind = FAILURE_SIGNAL, .signal = 64}, 192},
        {{.kind = FAILURE_OOM, .signal = 9}, 137},
        {{.kind = FAILURE_HANG, .signal = 9}, 137},
        {{.kind = FAILURE_SAID, .exit_code = 1}, 1},
        {{.kind = FAILURE_EXEC, .exit_code = 126}, 126},
        {{.kind = FAILURE_EXEC, .exit_code = 127}, 127},
        {{.kind = FAILURE_AGENT}, 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(restart_exit_status(&cases[i].f), cases[i].want,
               "kind %d, code %d, signal %d", cases[i].f.kind,
               cases[i].f.exit_code, cases[i].f.signal);
    }
}

static void test_allowed(void)
{
    /* Of each policy: never, on failure, kubeflow's codes, t9k's. */
    static const struct {
        struct failure f;
        const char *want;
    } cases[] = {
        {{.kind = FAILURE_EXIT, .exit_code = 1}, "nynn"},
        {{.kind = FAILURE_EXIT, .exit_code = 127}, "nynn"},
        {{.kind = FAILURE_EXIT, .exit_code = 128}, "nyyn"},
        {{.kind = FAILURE_EXIT, .exit_code = 138}, "nyyy"},
        {{.kind = FAILURE_EXIT, .exit_code = 255}, "nyyn"},
        {{.kind = FAILURE_SIGNAL, .signal = 2}, "nyyy"},
        {{.kind = FAILURE_SIGNAL, .signal = 9}, "nyyy"},
        {{.kind = FAILURE_SIGNAL, .signal = 15}, "nyyy"},
        {{.kind = FAILURE_SIGNAL, .signal = 11}, "nyyn"},
        {{.kind = FAILURE_SIGNAL, .signal = 6}, "nyyn"},
        {{.kind = FAILURE_HANG, .signal = 9}, "nyyy"},
        {{.kind = FAILURE_OOM, .signal = 9}, "nnnn"},
        {{.kind = FAILURE_EXEC, .exit_code = 127}, "nnnn"},
        {{.kind = FAILURE_AGENT}, "nynn"},
    };
    struct restart_policy policies[4] = {
        {.kind = RESTART_NEVER}, {.kind = RESTART_ON_FAILURE},
        {.kind = RESTART_EXIT_CODE}, {.kind = RESTART_EXIT_CODE}};

    ok(restart_preset(&policies[2], "kubeflow"), "kubeflow");
    ok(restart_preset(&policies[3], "t9k"), "t9k");
    ok(!restart_preset(&policies[3], "t8k"), "no such preset");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char got[5] = "";

        for (int k = 0; k < 4; k++) {
            got[k] = restart_allowed(&policies[k], &cases[i].f) ? 'y' : 'n';
        }
        is_str(got, cases[i].want, "kind %d, code %d, signal %d",
               cases[i].f.kind, cases[i].f.exit_code, cases[i].f.signal);
    }
}

static void test_backoff(void)
{
    struct restart_policy p = {.backoff_min_ms = 1000,
                               .backoff_max_ms = 60000};
    static const uint64_t want[] = {0, 1000, 2000, 4000, 8000, 16000, 32000,
                                    60000, 60000};

    for (uint32_t i = 0; i < ARRAY_SIZE(want); i++) {
        is_int((intmax_t)restart_backoff_ms(&p, i), (intmax_t)want[i],
               "in a row: %u", i);
    }
    is_int((intmax_t)restart_backoff_ms(&p, UINT32_MAX), 60000, "very many");
    p.backoff_min_ms = 0;
    is_int((intmax_t)restart_backoff_ms(&p, 50), 0, "none at all");
    p.backoff_min_ms = UINT64_MAX / 2 + 2;
    p.backoff_max_ms = UINT64_MAX;
    ok(restart_backoff_ms(&p, 9) == UINT64_MAX, "does not wrap");
}

/* Lack of memory is started again after by those alone who have listed its code. */
static void test_memory(void)
{
    static const struct failure oom = {.kind = FAILURE_OOM, .signal = 9};
    static const struct {
        const char *what;
        enum restart_kind kind;
        uint8_t codes[5];
        bool want;
    } cases[] = {
        {"a list with 137", RESTART_EXIT_CODE, {137}, true},
        {"with others beside it", RESTART_EXIT_CODE, {1, 137}, true},
        {"a list without it", RESTART_EXIT_CODE, {1, 139}, false},
        {"no code", RESTART_EXIT_CODE, {0}, false},
        {"the list that is t9k", RESTART_EXIT_CODE, {130, 137, 138, 143}, false},
        {"another policy", RESTART_ALWAYS, {137}, false},
        {"another policy", RESTART_ON_FAILURE, {137}, false},
        {"another policy", RESTART_NEVER, {137}, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct restart_policy p = {.kind = cases[i].kind};

        for (size_t k = 0; cases[i].codes[k]; k++) {
            restart_allow(&p, cases[i].codes[k], cases[i].codes[k]);
        }
        is_int(restart_allowed(&p, &oom), cases[i].want, "%s, policy %d",
               cases[i].what, cases[i].kind);
    }
}

int main(void)
{
    test_memory();
    test_exit_status();
    test_allowed();
    test_backoff();
    return tap_done();
}
