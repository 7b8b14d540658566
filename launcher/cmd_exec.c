/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster exec: one rank of an MPI world that mpirun or srun started. Prepares the
 * environment of a worker, with the rank's own numbers, and runs the program,
 * which keeps its rank and calls MPI_Init as if it had been started alone. Under
 * `muster run` the rank takes a worker's seat (launcher/seat.h).
 */
#include <config.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/seqsock.h"
#include "launcher/commands.h"
#include "launcher/options.h"
#include "launcher/rank_env.h"
#include "launcher/rank_run.h"
#include "launcher/rank_solo.h"
#include "spec/value.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SEAT_WAIT_MS = 60000, /* for the agent here to have it ready */
    SEAT_PAUSE_MS = 10,
    OFFER_WAIT_MS = 30000,
    GANG_TIMEOUT_MS = 300000, /* as gang.timeout */
};

struct exec_args {
    const char *run_id; /* with `generation`: takes a seat */
    int64_t generation;
    const char *network;
    uint64_t gang_timeout_ms;
};

static int refuse_restarts(void *into, const struct option_def *def,
                           const char *value, struct error *e)
{
    (void)into;
    (void)def;
    (void)value;
    return error_text(e, ERR_USAGE, "an MPI world ends with the first of its "
                      "ranks, and nothing can be started again in it; `muster "
                      "run --max-restarts N -- mpirun ... PROGRAM` makes a new "
                      "world each time");
}

static int take_network(void *into, const struct option_def *def,
                        const char *value, struct error *e)
{
    struct exec_args *a = into;
    _buf_ struct buf why = {0};

    (void)def;
    if (!addr_choice_is_valid(value, &why)) {
        return error_text(e, ERR_USAGE, "%s", buf_str(&why));
    }
    a->network = value;
    return 0;
}

static int take_timeout(void *into, const struct option_def *def,
                        const char *value, struct error *e)
{
    struct exec_args *a = into;

    (void)def;
    if (value_span(value, &a->gang_timeout_ms) < 0 ||
        a->gang_timeout_ms < 1000) {
        return error_text(e, ERR_USAGE, "\"%s\" is no span of a second or "
                          "more, such as 90s or 5m", value);
    }
    return 0;
}

static const struct option_def table[] = {
    {"interface", "NAME|NETWORK[,...]", "the network between nodes",
     OPTION_CALL, 0, take_network, 0},
    {"gang-timeout", "SPAN", "how long ranks on other nodes are waited for: "
     "5m", OPTION_CALL, 0, take_timeout, 0},
    {"run-id", "ID", NULL, OPTION_STR, offsetof(struct exec_args, run_id),
     NULL, 0},
    {"generation", "N", NULL, OPTION_INT,
     offsetof(struct exec_args, generation), NULL, 0},
    {"max-restarts", "N", NULL, OPTION_CALL, 0, refuse_restarts, 0},
    {0},
};

static const struct options options = {
    .command = "exec",
    .usage = "[OPTIONS] -- PROGRAM [ARG...]",
    .about = "Runs PROGRAM as one process of an MPI launch, `mpirun -n N muster "
             "exec -- PROGRAM` or `srun --mpi=pmix muster exec -- PROGRAM`: it "
             "keeps its MPI rank, and gets the environment of a worker besides. "
             "The exit status is mpirun's or srun's own.",
    .table = table,
    .max_args = SIZE_MAX,
    .stops_at_positional = true,
    .takes_rest = true,
};

/* --- a seat --- */

static int connect_seat(const struct exec_args *a, uint32_t rank,
                        struct error *e)
{
    uint64_t until = clock_mono_ms() + SEAT_WAIT_MS;
    char base[PATH_MAX], dir[PATH_MAX], path[PATH_MAX];
    int rc = fs_runtime_dir(base, sizeof(base), e);

    rc = rc < 0 ? rc : fs_path(dir, sizeof(dir), e, "%s/%s", base, a->run_id);
    rc = rc < 0 ? rc : seat_path(dir, (uint32_t)a->generation, rank, path,
                                 sizeof(path), e);
    if (rc < 0) {
        return rc;
    }
    do {
        rc = seqsock_connect(path, e);
        if (rc >= 0 || e->code == ENAMETOOLONG) {
            return rc;
        }
        poll(NULL, 0, SEAT_PAUSE_MS);
    } while (clock_mono_ms() < until);
    return error_text(e, ERR_LOST, "no worker of run %s waits for MPI rank %u "
                      "on this host: mpirun has placed it elsewhere than muster",
                      a->run_id, rank);
}

static int take_offer(struct seqsock_msg *m, struct seat_offer *ret,
                      struct error *e)
{
    _buf_ struct buf blob = {0};
    uint32_t n;
    int rc;

    if (m->type == SEAT_REFUSED) {
        struct seat_end why;

        n = seat_end_decode(&m->data, &why) == 0;
        return error_text(e, EPERM, "%s", n ? why.text
                          : "its worker refuses this rank");
    }
    if (m->type != SEAT_OFFER || m->fds[2] < 0) {
        return error_text(e, ERR_FORMAT, "its worker answers strangely");
    }
    rc = seqsock_blob_read(m->fds[0], SEAT_OFFER_MAX, &blob, e);
    if (rc == 0 && seat_offer_decode(&blob, ret) < 0) {
        rc = error_text(e, ERR_FORMAT, "its worker's offer does not parse");
    }
    return rc;
}

static int ask(int fd, const struct rank_place *place, struct seqsock_msg *m,
               struct seat_offer *ret, struct error *e)
{
    struct seat_hello hello = {.version = SEAT_VERSION, .rank = place->rank,
                               .world = place->world};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    _buf_ struct buf b = {0};

    seat_hello_encode(&hello, &b);
    if (seqsock_send(fd, SEAT_HELLO, &b, NULL, 0) < 0 ||
        poll(&p, 1, OFFER_WAIT_MS) != 1 || seqsock_recv(fd, m) != 1) {
        return error_text(e, ETIMEDOUT, "its worker does not answer");
    }
    return take_offer(m, ret, e);
}

static int run_seated(const struct exec_args *a, struct error *e)
{
    _strlist_ struct strlist own = {0};
    _seat_offer_ struct seat_offer offer = {0};
    _seqsock_msg_ struct seqsock_msg m;
    struct rank_place place;
    struct rank_program program = {.offer = &offer};
    struct seat_end end;
    bool failed;
    int rc;

    seqsock_msg_init(&m);
    strlist_add_all(&own, environ);
    rc = rank_place_read(&own, &place, e);
    rc = rc < 0 ? rc : connect_seat(a, place.rank, e);
    if (rc < 0) {
        return rc;
    }
    program.seat = rc;
    rc = ask(program.seat, &place, &m, &offer, e);
    if (rc < 0) {
        return error_wrap(e, "MPI rank %u", place.rank);
    }
    rank_env_join(&own, place.starter, &offer.env);
    program.out = m.fds[1];
    program.err = m.fds[2];
    rc = own.failed || offer.env.failed
             ? error_set(e, ENOMEM, "make the environment")
             : rank_run(&program, &end, &failed, e);
    if (rc == 0) {
        rank_leave(&end);
    }
    return rc;
}

/* --- without one --- */

static int run_alone(const struct exec_args *a,
                     const struct option_args *args, struct error *e)
{
    _strlist_ struct strlist own = {0};
    struct rank_solo solo = {.own = &own, .network = a->network,
                             .timeout_ms = a->gang_timeout_ms};
    _seat_offer_ struct seat_offer offer = {0};
    struct rank_program program = {.offer = &offer, .out = -1, .err = -1,
                                   .keeps_stdin = true, .seat = -1};
    struct rank_place place;
    struct seat_end end;
    bool failed;
    int rc;

    strlist_add_all(&own, environ);
    strlist_add_all(&offer.argv, args->words.items);
    strlist_add_all(&offer.argv, args->rest.items);
    if (offer.argv.n == 0) {
        return error_text(e, ERR_USAGE, "no program; expected one behind --");
    }
    rc = rank_place_read(&own, &place, e);
    rc = rc < 0 ? rc : rank_solo_offer(&solo, &place, &offer, e);
    rc = rc < 0 ? rc : rank_run(&program, &end, &failed, e);
    if (rc < 0) {
        return rc;
    }
    if (failed) {
        fprintf(stderr, "muster exec: rank %u: %s\n", place.rank, end.text);
    }
    rank_solo_end(&solo, &place, end.code == 0 && end.signal == 0);
    rank_leave(&end);
}

int cmd_exec(int argc, char **argv)
{
    struct exec_args a = {.gang_timeout_ms = GANG_TIMEOUT_MS};
    _option_args_ struct option_args args = {0};
    struct error e = {0};
    int status = options_start(&options, argc, argv, &a, &args);

    if (status >= 0) {
        return status;
    }
    if (a.run_id ? run_seated(&a, &e) == 0 : run_alone(&a, &args, &e) == 0) {
        return EXIT_FAILED;
    }
    status = command_fail(&e);
    return e.code == ETIMEDOUT && !a.run_id ? EXIT_NOT_GATHERED : status;
}
