/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of an MPI program save a matrix of which each has some rows, and load it, as
 * many as they are.
 *
 *   ckpt_mpi save|load DIRECTORY STEP [EVERY]
 *
 * With EVERY the newest stays, and those of each EVERYth step.
 */
#include <config.h>

#include <muster_mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 101, COLUMNS = 333 };

static double value(uint64_t row, uint64_t column, int64_t step)
{
    return (double)step * 1e6 + (double)(row * COLUMNS + column);
}

int main(int argc, char **argv)
{
    const uint64_t shape[2] = {ROWS, COLUMNS};
    uint64_t at[2] = {0, 0}, len[2] = {0, COLUMNS};
    struct muster_mpi mpi;
    struct muster_ckpt_group group;
    struct muster_ckpt *ck;
    struct muster_ckpt_tensor t = {.name = "matrix", .dtype = MUSTER_F64,
                                   .n_dims = 2, .shape = shape, .at = at,
                                   .len = len};
    int64_t step = argc > 3 ? atoll(argv[3]) : 0, got = 0;
    struct muster_ckpt_options options = {.size = sizeof(options)};
    unsigned n_wrong = 0;
    double *rows;
    int rc, is_save = argc > 1 && strcmp(argv[1], "save") == 0;

    MPI_Init(&argc, &argv);
    if (argc < 4 || muster_mpi_group(MPI_COMM_WORLD, &mpi, &group) < 0) {
        return 2;
    }
    at[0] = (uint64_t)(ROWS * group.rank / group.world);
    len[0] = (uint64_t)(ROWS * (group.rank + 1) / group.world) - at[0];
    rows = calloc(len[0] * COLUMNS, sizeof(*rows));
    t.data = rows;
    for (uint64_t i = 0; i < len[0] * COLUMNS && is_save; i++) {
        rows[i] = value(at[0] + i / COLUMNS, i % COLUMNS, step);
    }
    options.keep_every = argc > 4 ? atoll(argv[4]) : 0;
    options.keep = argc > 4;
    rc = muster_ckpt_open(NULL, &group, argv[2], &options, &ck);
    rc = rc < 0 ? rc : muster_ckpt_tensor(ck, &t);
    if (rc == 0) {
        rc = is_save ? muster_ckpt_save(ck, step, 0, NULL)
                     : muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &got);
    }
    for (uint64_t i = 0; i < len[0] * COLUMNS; i++) {
        n_wrong += rows[i] != value(at[0] + i / COLUMNS, i % COLUMNS, step);
    }
    printf("rank %d of %d: %d, step %lld, %u wrong: %s\n", group.rank,
           group.world, rc, (long long)got, n_wrong, muster_ckpt_error_text(ck));
    fflush(stdout);
    muster_ckpt_close(ck);
    muster_mpi_release(&mpi);
    MPI_Finalize();
    free(rows);
    return rc != 0 || n_wrong != 0;
}
