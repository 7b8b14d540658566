/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/cause_file.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <jansson.h>
#include <string.h>

/* "message", "errorCode" and "timestamp" of the message, as one text. */
static char *facts_of(const struct run_status *s, const char *child)
{
    _buf_ struct buf text = {0};
    struct buf got = {0};
    const char *message = "", *stamp = "";
    json_t *file, *body;

    cause_file_make(s, child, &text, NULL);
    file = json_loads(buf_str(&text), 0, NULL);
    body = json_object_get(file, "message");
    if (json_is_object(body)) {
        message = json_string_value(json_object_get(body, "message"));
        stamp = json_string_value(json_object_get(
            json_object_get(body, "extraInfo"), "timestamp"));
        buf_printf(&got, "%s|%lld|%s", message ? message : "-",
                   (long long)json_integer_value(
                       json_object_get(body, "errorCode")),
                   stamp ? stamp : "-");
    } else {
        buf_printf(&got, "plain %s", json_string_value(body));
    }
    json_decref(file);
    return buf_take(&got);
}

static void test_make(void)
{
    static const struct {
        const char *child;
        int code, signal;
        const char *want;
    } cases[] = {
        {"{\"message\": {\"message\": \"ValueError: x\", \"extraInfo\": "
         "{\"py_callstack\": \"t\", \"timestamp\": \"17\"}}}", 3, 0,
         "ValueError: x|3|17"},
        {"{\"message\": \"words\"}", 3, 0, "plain words"},
        {NULL, 138, 0, "rank 1 ended|138|1795206357"},
        {NULL, 0, 11, "rank 1 ended|-11|1795206357"},
        {"no json", 7, 0, "rank 1 ended|7|1795206357"},
        {"{\"other\": 1}", 7, 0, "rank 1 ended|7|1795206357"},
        {"[]", 7, 0, "rank 1 ended|7|1795206357"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(run_status) struct run_status *s = run_status_create();
        _free_ char *got = NULL;

        s->state = STATUS_FAILED;
        s->failure.is_set = true;
        s->failure.exit_code = cases[i].code;
        s->failure.signal = cases[i].signal;
        s->failure.at_ns = UINT64_C(1795206357) * 1000000000 + 5;
        str_copy(s->failure.reason, sizeof(s->failure.reason), "rank 1 ended");
        got = facts_of(s, cases[i].child);
        is_str(got, cases[i].want, "of %s",
               cases[i].child ? cases[i].child : "no file");
    }
}

static void test_due(void)
{
    _cleanup_(run_status) struct run_status *s = run_status_create();

    ok(!cause_file_is_due(NULL), "nothing is due without a status");
    s->state = STATUS_FAILED;
    ok(!cause_file_is_due(s), "nor without a failure");
    s->failure.is_set = true;
    ok(cause_file_is_due(s), "but for a job that failed");
    s->state = STATUS_SUCCEEDED;
    ok(!cause_file_is_due(s), "not for one that got over it");
}

int main(void)
{
    test_make();
    test_due();
    return tap_done();
}
