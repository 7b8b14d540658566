/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as one of the things that are read from memory: requests to a run,
 * what workers print on its way to a terminal, host lists and times that were
 * asked for, what muster-exec says of a start, what a seat and its agent say, what
 * Slurm answers, and timers that programs ask for.
 * The first byte says which.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/utf8.h"
#include "launcher/control.h"
#include "launcher/control_path.h"
#include "launcher/exec.h"
#include "launcher/fold.h"
#include "launcher/hosts.h"
#include "launcher/json_output.h"
#include "launcher/label.h"
#include "launcher/last_words.h"
#include "launcher/redrawn.h"
#include "launcher/seat.h"
#include "launcher/since.h"
#include "launcher/slurm.h"
#include "launcher/time_limit.h"
#include "launcher/timers.h"
#include "tests/lib/fuzz.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 256 };

/* A text, and its length without the zero byte behind it. */
typedef void try_f(char *text, size_t len);

static int on_request(void *arg, const char *op, const json_t *body,
                      struct jsonw *reply, struct error *e)
{
    (void)e;
    expect(op && json_is_object(body));
    jsonw_str(reply, "text", op);
    ++*(int *)arg;
    return 0;
}

/* What is handed over is one object; the answer is one, too. */
static void try_request(char *text, size_t len)
{
    _buf_ struct buf answer = {0};
    struct jsonw w = jsonw_start(&answer);
    struct error e = {0};
    int n = 0, rc;
    json_t *o;

    jsonw_object(&w, NULL);
    rc = control_dispatch(on_request, &n, text, len, &w, &e);
    jsonw_end_object(&w);
    expect((rc == 0) == (n == 1) && (rc == 0 || e.text[0]));
    o = json_loadb(answer.data, answer.len, JSON_REJECT_DUPLICATES, NULL);
    expect(json_is_object(o) && !memchr(answer.data, '\n', answer.len));
    json_decref(o);
}

static void expect_printable(const char *s)
{
    expect(utf8_is_valid(s));
    for (uint32_t c; *s;) {
        s += utf8_next(s, &c);
        expect(utf8_is_printable(c));
    }
}

static void try_last_words(char *text, size_t len)
{
    char line[SHOWN_BYTES];
    _buf_ struct buf b = {0};
    const char *start;

    buf_append(&b, text, len);
    redrawn_drop(&b);
    expect(b.len <= len && !memmem(buf_str(&b), b.len, "\r\n", 2));
    start = last_words_start(text, 20);
    expect(start >= text && start <= text + strlen(text));
    last_words_summary(text, line, sizeof(line));
    expect_printable(line);
    last_words_is_echo(line);
    last_words_line(text, line, sizeof(line));
    expect_printable(line);
}

static void try_hosts(char *text, size_t len)
{
    struct host_list l = {0};
    struct error e = {0};

    (void)len;
    if (hosts_parse(text, &l, &e) < 0) {
        expect(e.text[0] && !l.items);
        return;
    }
    expect(l.n <= HOSTS_MAX);
    for (size_t i = 0; i < l.n; i++) {
        expect(l.items[i].name[0] && l.items[i].name[0] != '-');
    }
    hosts_all_local(&l);
    host_list_release(&l);
}

static void try_since(char *text, size_t len)
{
    struct error e = {0};
    uint64_t ns = 0;
    int rc = since_parse(text, UINT64_C(1795206357000000000), &ns, &e);

    (void)len;
    expect(rc == 0 || e.text[0]);
}

static void try_exec_report(char *text, size_t len)
{
    _buf_ struct buf b = {0}, again = {0};
    struct exec_report r;
    char why[700];

    buf_append(&b, text, len);
    while (exec_report_decode(&b, &r) == 1) {
        exec_report_text(&r, "prog", why, sizeof(why));
        exec_report_status(&r);
        exec_report_encode(&again, &r);
        expect(!again.failed);
    }
}

static void show_line(void *arg, const struct fold_line *line)
{
    struct buf ranks = {0};

    fold_write_ranks(line, &ranks);
    *(size_t *)arg += line->len * line->n_ranks;
    buf_release(&ranks);
}

/* Lines of four ranks; none is lost. The byte before a line is its rank. */
static void try_fold(char *text, size_t len)
{
    size_t n_in = 0, n_out = 0;
    struct fold_config c = {.show = show_line, .arg = &n_out, .window_ms = 10,
                            .max_lines = 8, .max_bytes = 4096};
    struct fold *f = fold_create(&c);
    uint64_t now = 0;

    expect(f != NULL);
    fold_set_ranks(f, 4);
    for (size_t at = 0; at < len; now++) {
        const char *end = memchr(text + at + 1, '\n', len - at - 1);
        size_t n = end ? (size_t)(end - text) - at - 1 : len - at - 1;

        fold_put(f, &(struct fold_line){.generation = 1,
                                        .rank = (uint8_t)text[at] % 4,
                                        .data = text + at + 1, .len = n}, now);
        fold_tick(f, now);
        n_in += n;
        at += n + 2;
    }
    fold_flush(f);
    expect(n_in == n_out);
    fold_destroy(f);
}

/* Output of two workers, as `muster run` writes it for programs: each line of it
 * is a JSON object, and the bytes are those that came. */
static void try_json_output(char *text, size_t len)
{
    struct json_output *j = json_output_create();
    _buf_ struct buf b = {0};
    size_t at = 0;

    expect(j != NULL);
    for (size_t from = 0; from < len; from += 1 + (uint8_t)text[from] % 64) {
        size_t n = 1 + (uint8_t)text[from] % 64;
        struct tree_output o = {.node = 0, .rank = (uint8_t)text[from] & 1,
                                .generation = 1, .data = text + from,
                                .len = n < len - from ? n : len - from};

        json_output_put(j, &o, 7, &b);
    }
    json_output_flush(j, 7, &b);
    while (at < b.len) {
        const char *end = memchr(b.data + at, '\n', b.len - at);
        json_t *o;

        expect(end != NULL);
        o = json_loadb(b.data + at, (size_t)(end - b.data) - at,
                       JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        expect(json_is_string(json_object_get(o, "line")));
        json_decref(o);
        at = (size_t)(end - b.data) + 1;
    }
    json_output_destroy(j);
}

static void try_label(char *text, size_t len)
{
    struct label l = {.prefix = text, .run = "tiny", .generation = 4,
                      .node = 1, .rank = 5};
    _buf_ struct buf b = {0};

    (void)len;
    label_write(&l, &b);
    l.ranks = "0-3,7";
    l.n_ranks = 5;
    label_write(&l, &b);
    expect(!b.failed);
}

static void expect_same(const struct buf *a, const struct buf *b)
{
    expect(!b->failed && a->len == b->len &&
           memcmp(a->data, b->data, a->len) == 0);
}

/* What a seat and its agent say: what decodes is encoded to the same bytes. */
static void try_seat(char *text, size_t len)
{
    _buf_ struct buf in = {0}, hello = {0}, offer = {0}, end = {0}, number = {0};
    _seat_offer_ struct seat_offer o = {0};
    struct seat_hello h;
    struct seat_end e;
    uint32_t n;

    buf_append(&in, text, len);
    /* Of another version nothing is known but that. */
    if (seat_hello_decode(&in, &h) == 0 && h.version == SEAT_VERSION) {
        seat_hello_encode(&h, &hello);
        expect_same(&in, &hello);
    }
    if (seat_offer_decode(&in, &o) == 0) {
        seat_offer_encode(&o, &offer);
        expect_same(&in, &offer);
    }
    if (seat_end_decode(&in, &e) == 0) {
        seat_end_encode(&e, &end);
        expect_same(&in, &end);
    }
    if (seat_number_decode(&in, &n) == 0) {
        seat_number_encode(n, &number);
        expect_same(&in, &number);
    }
}

/* What squeue prints, and what Slurm puts into the environment. */
static void try_slurm(char *text, size_t len)
{
    static const uint64_t now_ms = UINT64_C(1795206357000);
    struct time_limit t = time_limit_start(60000);
    _strlist_ struct strlist env = {0}, to = {0};
    char line[SHOWN_BYTES];
    uint64_t left;

    slurm_last_line(text, len, line, sizeof(line));
    expect_printable(line);
    for (int i = 0; i < 2; i++) {
        if (i == 0 ? time_limit_parse(line, &left)
                   : time_limit_parse_end(text, now_ms / 1000, &left)) {
            time_limit_take(&t, left, 1000, now_ms);
            expect(t.is_set && time_limit_ask_ms(&t, 1000) >= 1000);
        }
    }
    strlist_setenv(&env, "SLURM_JOB_NODELIST", text);
    slurm_mpirun_env(env.items, 2, &to);
    expect(!to.failed);
}

/* Every process has begun at the time of its pid; odd ones have ended. */
static bool start_of(pid_t pid, uint64_t *ret)
{
    *ret = (uint64_t)pid;
    return pid % 2 == 0;
}

/* In two pieces: it must not matter where they meet. */
static void try_timers(char *text, size_t len)
{
    static const struct timers_now now = {.wall_ms = 1795206357000,
                                          .mono_ms = 5000};
    struct timers *t = timers_create();
    size_t half = len ? (uint8_t)text[0] % (len + 1) : 0;
    uint64_t due = 0;
    struct timer over;
    struct error e = {0};

    expect(t != NULL);
    if (timers_feed(t, text, half, now, start_of, &e) +
        timers_feed(t, text + half, len - half, now, start_of, &e) > 0) {
        expect(e.text[0]);
    }
    expect(timers_count(t) <= TIMERS_MAX);
    while (timers_next(t, &due)) {
        size_t n = timers_count(t);

        expect(due >= now.mono_ms && timers_expire(t, due, &over));
        expect(over.scope && over.pid > 0 && timers_count(t) < n);
        timer_release(&over);
    }
    timers_destroy(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static try_f *const tries[] = {
        try_request, try_last_words, try_hosts, try_since, try_exec_report,
        try_fold, try_json_output, try_label, try_seat,
        try_slurm, try_timers,
    };
    char *text = malloc(size + 1);

    if (!text) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    if (size > 0) {
        tries[data[0] % ARRAY_SIZE(tries)](text + 1, size - 1);
    }
    free(text);
    return 0;
}
