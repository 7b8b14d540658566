/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/mpi/main_priv.h"

#include "base/addr.h"
#include "base/build.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/key.h"
#include "base/seqsock.h"
#include "base/str.h"
#include "comm/agent_find.h"
#include "comm/mpi/gather.h"
#include "rendezvous/roster.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    AGENT_START_MS = 20000,
    INFO_MS = 10000,
};

/* --- the run --- */

static int read_key(struct companion *c, struct error *e)
{
    const char *named = c->key_file ? c->key_file : getenv("MUSTER_KEY_FILE");
    char path[PATH_MAX], base[PATH_MAX];
    int rc;

    if (named && named[0]) {
        return key_read(named, false, c->run.key, e);
    }
    rc = fs_path(path, sizeof(path), e, "%s/key", c->run.dir);
    rc = rc < 0 ? rc : key_read(path, true, c->run.key, e);
    if (rc == 0 || fs_runtime_dir(base, sizeof(base), NULL) < 0) {
        return rc;
    }
    /* No shared run directory: the front end put it here over ssh. */
    if (fs_path(path, sizeof(path), NULL, "%s/%s/key", base, c->run.id) == 0 &&
        key_read(path, true, c->run.key, NULL) == 0) {
        return 0;
    }
    return error_wrap(e, "no job key here (share the run directory, set "
                      "MUSTER_KEY_FILE, or use --insecure-bootstrap)");
}

/* Without a front end rank 0 alone knows the run: it tells the others. The key
 * goes along only where that was allowed. */
static int share_run(struct companion *c, struct error *e)
{
    _buf_ struct buf b = {0};
    struct companion_world w = {.run = c->run};
    int rc;

    if (!c->insecure) {
        memset(w.run.key, 0, sizeof(w.run.key));
    }
    if (c->rank == 0) {
        companion_world_encode(&w, &b);
    }
    rc = gather_from_first(&b, SEQSOCK_MAX, e);
    if (rc == 0 && c->rank != 0 && companion_world_decode(&b, &w) < 0) {
        rc = error_text(e, ERR_FORMAT, "rank 0 sent a run that does not "
                        "parse: do all hosts have the same muster?");
    } else if (rc == 0 && c->rank != 0) {
        c->run = w.run;
        c->run.has_front = false;
    }
    explicit_bzero(&w, sizeof(w));
    if (b.data) {
        explicit_bzero(b.data, b.len);
    }
    return rc;
}

static int learn_run(struct companion *c, struct error *e)
{
    struct error share_error = {0};
    int rc = 0;

    if (c->rank == 0 || !c->by_hand) {
        rc = read_key(c, e);
    }
    if (c->by_hand && c->size > 1) {
        if (share_run(c, &share_error) < 0) {
            return error_text(e, share_error.code, "%s", share_error.text);
        }
        if (c->rank != 0 && !c->insecure) {
            rc = read_key(c, e);
        }
    }
    return c->in_mpi ? gather_agree(rc, e) : rc;
}

/* --- the agent --- */

static int receive_info(struct companion *c, struct buf *ret, struct error *e)
{
    struct pollfd p = {.fd = c->agent_fd, .events = POLLIN};
    _seqsock_msg_ struct seqsock_msg m;
    struct companion_outcome refusal;

    seqsock_msg_init(&m);
    if (poll(&p, 1, INFO_MS) != 1 || seqsock_recv(c->agent_fd, &m) != 1) {
        return error_text(e, ETIMEDOUT, "the agent does not answer");
    }
    if (m.type == COMPANION_REFUSED &&
        companion_outcome_decode(&m.data, &refusal) == 0) {
        return error_text(e, EPERM, "the agent refuses: %s", refusal.text);
    }
    if (m.type != COMPANION_INFO) {
        return error_text(e, ERR_FORMAT, "the agent answers strangely");
    }
    buf_append(ret, m.data.data, m.data.len);
    return ret->failed ? -ENOMEM : 0;
}

/* For MPI's own TCP: by the names that these interfaces have on this host. What
 * the user told MPI stands. */
static void offer_to_mpi(const struct strlist *addrs)
{
    _buf_ struct buf names = {0};
    char name[64];

    if (getenv("OMPI_MCA_btl_tcp_if_include") ||
        getenv("OMPI_MCA_btl_tcp_if_exclude")) {
        return;
    }
    for (size_t i = 0; i < addrs->n; i++) {
        if (addr_interface(addrs->items[i], name, sizeof(name)) == 0) {
            buf_printf(&names, "%s%s", names.len ? "," : "", name);
        }
    }
    setenv("OMPI_MCA_btl_tcp_if_include", buf_str(&names), 1);
}

/* The agent knows all addresses of this host, the spec which of them count. */
static int choose_addresses(const struct companion *c, struct buf *info,
                            struct error *e)
{
    _strlist_ struct strlist addrs = {0};
    _buf_ struct buf bytes = {0};
    struct roster_entry entry;
    const void *data;
    struct companion_place place;
    size_t len;
    int rc = addr_chosen(c->interface, &addrs, e);

    if (rc == 0 && companion_info_decode(info, &place, &data, &len) < 0) {
        rc = error_text(e, ERR_FORMAT, "the agent's answer does not parse");
    }
    rc = rc < 0 ? rc : roster_entry_decode(data, len, &entry, e);
    if (rc < 0) {
        return rc;
    }
    offer_to_mpi(&addrs);
    entry.n_addrs = 0;
    for (size_t i = 0; i < addrs.n && i < ROSTER_MAX_ADDRS; i++) {
        str_copy(entry.addrs[entry.n_addrs++], ROSTER_ADDR_BYTES,
                 addrs.items[i]);
    }
    roster_entry_encode(&entry, &bytes);
    info->len = 0;
    companion_info_encode(&place, &bytes, info);
    return bytes.failed || info->failed ? error_set(e, ENOMEM, "list addresses")
                                        : 0;
}

/* An agent that knows the run wants to see that this process does. The key itself
 * is read again when it is wanted: MPI_Init comes first. */
static int prove_key(struct companion *c, uint8_t *ret_proof, struct error *e)
{
    char claim[COMPANION_CLAIM_BYTES];
    int rc = read_key(c, e);

    if (rc == 0) {
        companion_claim(claim, sizeof(claim), c->run.id, c->epoch);
        key_prove(c->run.key, claim, ret_proof);
    }
    explicit_bzero(c->run.key, sizeof(c->run.key));
    return rc;
}

static int meet_agent(struct companion *c, struct buf *ret_info,
                      struct error *e)
{
    struct companion_hello hello = {.version = COMPANION_VERSION,
                                    .epoch = c->epoch};
    _buf_ struct buf b = {0};
    int rc = c->by_hand ? 0 : prove_key(c, hello.proof, e);

    if (rc < 0) {
        return rc;
    }
    /* By hand nobody ever comes back to an agent: any name will do. */
    if (c->by_hand) {
        snprintf(c->tag, sizeof(c->tag), "mpi-%ld", (long)getpid());
    } else {
        str_copy(c->tag, sizeof(c->tag), c->run.id);
    }
    rc = (c->is_kept ? agent_find_kept : agent_find_or_start)(
        c->tag, (unsigned)c->local_rank, AGENT_START_MS, e);
    if (rc < 0) {
        return rc;
    }
    c->agent_fd = rc;
    str_copy(hello.muster_version, sizeof(hello.muster_version),
             build_name());
    companion_hello_encode(&hello, &b);
    rc = seqsock_send(c->agent_fd, COMPANION_HELLO, &b, NULL, 0);
    rc = rc < 0 ? error_set(e, -rc, "speak to the agent")
                : receive_info(c, ret_info, e);
    return rc < 0 || !c->interface ? rc : choose_addresses(c, ret_info, e);
}

static int tell_world(struct companion *c, const struct roster *roster,
                      struct error *e)
{
    struct companion_world w = {.epoch = c->epoch,
                                .mpi_rank = (uint32_t)c->rank,
                                .run = c->run};
    _buf_ struct buf b = {0};
    _buf_ struct buf bytes = {0};
    _close_ int blob = -1;
    int rc;

    roster_encode(roster, &bytes);
    if (bytes.failed) {
        return error_set(e, ENOMEM, "encode the roster");
    }
    blob = seqsock_blob(bytes.data, bytes.len, e);
    if (blob < 0) {
        return blob;
    }
    companion_world_encode(&w, &b);
    rc = seqsock_send(c->agent_fd, COMPANION_WORLD, &b, &blob, 1);
    explicit_bzero(&w, sizeof(w));
    explicit_bzero(c->run.key, sizeof(c->run.key)); /* it was for the agent */
    if (b.data) {
        explicit_bzero(b.data, b.len);
    }
    return rc < 0 ? error_set(e, -rc, "speak to the agent") : 0;
}

/* --- both --- */

static int join_mpi(struct companion *c, struct error *e)
{
    int level;

    /* The front end can tell by this who is missing (launcher/front_gather.c). */
    if (!c->by_hand) {
        dprintf(2, "muster-mpi: rank %d is here\n", c->rank);
    }
    alarm(c->gather_seconds);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &level) !=
        MPI_SUCCESS) {
        return error_text(e, EIO, "MPI_Init failed");
    }
    c->in_mpi = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->size);
    return bulk_create(MPI_COMM_WORLD, &c->bulk, e);
}

int companion_assemble(struct companion *c, struct error *e)
{
    _buf_ struct buf info = {0};
    _roster_ struct roster roster = {0};
    uint32_t n_known = 0;
    int rc = meet_agent(c, &info, e);

    /* A host that cannot take part says so in the MPI world: without it the
     * others would wait there until gang.timeout. */
    if (c->size > 1) {
        int joined = join_mpi(c, rc < 0 ? NULL : e);

        if (joined < 0) {
            return rc < 0 ? rc : joined;
        }
        joined = gather_same_mpi(rc < 0 ? NULL : e);
        rc = gather_agree(rc < 0 ? rc : joined, e);
    }
    rc = rc < 0 ? rc : learn_run(c, e);
    if (rc < 0) {
        return rc;
    }
    rc = c->in_mpi ? gather_roster(&info, &roster, &n_known, e)
                   : gather_alone(&info, &roster, &n_known, e);
    if (rc == 0 && c->epoch > 1 && n_known == 0) {
        /* Its agents left while mpirun started: a later world begins no run. */
        rc = error_text(e, ESRCH, "no agent of the run is left");
    }
    rc = rc < 0 ? rc : roster_check(&roster, e);
    rc = rc < 0 ? rc : tell_world(c, &roster, e);
    alarm(0);
    return rc;
}
