/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a run that collectives between nodes need, for tests/t30??-*.t:
 *
 *   bulk_rig node DIR NODE WORKERS,... BODY   stands for an agent: makes the
 *       segment of node NODE, runs its workers, hands the segment to movers that
 *       connect to DIR/NODE.sock, aborts when DIR/abort comes to be or a worker
 *       dies. Worker results go to DIR/result.RANK as "CODE text".
 *   mpirun ... bulk_rig mover TAG DIR...      stands for muster-mpi, one a node;
 *       several DIRs: one generation after the other in one MPI world
 */
#include <config.h>

#include "tests/bulk_rig/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const struct body *body = argc == 6 ? body_find(argv[5]) : NULL;

    alarm(LIFE_S);
    if (argc >= 4 && strcmp(argv[1], "mover") == 0) {
        return mover_main(argv + 3, (uint32_t)atoi(argv[2]));
    }
    if (body && strcmp(argv[1], "node") == 0) {
        return node_main(argv[2], atoi(argv[3]), argv[4], body);
    }
    fprintf(stderr, "usage: bulk_rig node DIR NODE WORKERS,... BODY\n"
                    "       bulk_rig mover TAG DIR...\n");
    return 2;
}
