/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/mpi/main_priv.h"

#include "base/addr.h"
#include "base/cleanup.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_front(struct companion *c, const char *text)
{
    _strlist_ struct strlist addrs = {0};
    int rc = addr_ways_parse(text, &addrs, &c->run.front_port, NULL);

    for (size_t i = 0; i < addrs.n && i < COMPANION_MAX_FRONT; i++) {
        str_copy(c->run.front_addrs[i], sizeof(c->run.front_addrs[0]),
                 addrs.items[i]);
    }
    c->run.has_front = rc == 0;
    return rc;
}

static int parse_number(const char *text, uint64_t max, uint64_t *ret)
{
    return str_to_u64(text, ret) < 0 || *ret > max ? -EINVAL : 0;
}

static int take_option(struct companion *c, int option)
{
    uint64_t n = 0;

    switch (option) {
    case 'i':
        str_copy(c->run.id, sizeof(c->run.id), optarg);
        return 0;
    case 'd':
        str_copy(c->run.dir, sizeof(c->run.dir), optarg);
        return 0;
    case 'f':
        return parse_front(c, optarg);
    case 'k':
        c->key_file = optarg;
        return 0;
    case 'e':
        return parse_number(optarg, UINT32_MAX, &c->epoch);
    case 'g':
        if (parse_number(optarg, 86400, &n) < 0) {
            return -EINVAL;
        }
        c->gather_seconds = (unsigned)n;
        return 0;
    case 'n':
        c->run.agent_is_node = true;
        return 0;
    case 'l':
        c->run.loopback = true;
        return 0;
    case 'b':
        c->by_hand = true;
        c->report_status = true;
        return 0;
    case 'K':
        c->is_kept = true;
        return 0;
    case 'I':
        c->interface = optarg;
        return 0;
    case 'x':
        c->insecure = true;
        return 0;
    case 'p':
        c->is_probe = true;
        return 0;
    default:
        return -EINVAL;
    }
}

int companion_parse_args(struct companion *c, int argc, char **argv)
{
    static const struct option options[] = {
        {"run-id", required_argument, NULL, 'i'},
        {"run-dir", required_argument, NULL, 'd'},
        {"front", required_argument, NULL, 'f'},
        {"key-file", required_argument, NULL, 'k'},
        {"epoch", required_argument, NULL, 'e'},
        {"gather-seconds", required_argument, NULL, 'g'},
        {"agent-is-node", no_argument, NULL, 'n'},
        {"interface", required_argument, NULL, 'I'},
        {"loopback", no_argument, NULL, 'l'},
        {"by-hand", no_argument, NULL, 'b'},
        {"kept", no_argument, NULL, 'K'},
        {"insecure-bootstrap", no_argument, NULL, 'x'},
        {"probe", no_argument, NULL, 'p'},
        {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (take_option(c, option) < 0) {
            fprintf(stderr, "muster-mpi: is started by `muster run`, not by "
                            "hand\n");
            return -EINVAL;
        }
    }
    return 0;
}

static int env_number(const char *name, int fallback)
{
    const char *text = getenv(name);
    uint64_t n;

    return text && parse_number(text, INT_MAX, &n) == 0 ? (int)n : fallback;
}

void companion_read_place(struct companion *c)
{
    bool pmix = getenv("PMIX_NAMESPACE");

    c->rank = env_number("OMPI_COMM_WORLD_RANK", env_number("PMIX_RANK", 0));
    c->size = env_number("OMPI_COMM_WORLD_SIZE", pmix ? 2 : 1);
    c->local_rank = env_number("OMPI_COMM_WORLD_LOCAL_RANK",
                               pmix ? env_number("SLURM_LOCALID", 0) : 0);
}
