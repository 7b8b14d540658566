/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank and its seat tell each other, and what is on record of its end. */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/seat.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_end(void)
{
    struct seat_end end = {.signal = 15, .by_launch = true}, got = {0};
    _buf_ struct buf b = {0};

    seat_end_encode(&end, &b);
    is_int(seat_end_decode(&b, &got), 0, "an end");
    ok(got.code == 0 && got.signal == 15 && got.by_launch, "as it was told");
    for (size_t cut = 0; cut < b.len; cut++) {
        struct buf part = {0};

        buf_append(&part, b.data, cut);
        ok(seat_end_decode(&part, &got) < 0, "cut to %zu: refused", cut);
        buf_release(&part);
    }
    b.data[8] = 2;
    ok(seat_end_decode(&b, &got) < 0, "neither true nor false");
    b.data[8] = 0;
    b.data[7] = 65;
    ok(seat_end_decode(&b, &got) < 0, "no such signal");
}

static void test_record(void)
{
    char dir[] = "/tmp/seat_test.XXXXXX", path[PATH_MAX], file[PATH_MAX];
    uint64_t before = clock_wall_ns();
    struct seat_record r = {0};

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    is_int(seat_path(dir, 2, 7, path, sizeof(path), NULL), 0, "a path");
    fs_path(file, sizeof(file), NULL, "%s/mpi-g2-r7.end", dir);
    ok(!seat_record_read(path, &r), "nothing is on record");
    seat_record_write(path, true);
    ok(seat_record_read(path, &r) && r.by_launch, "an end by the launch");
    ok(r.at_ns >= before && r.at_ns <= clock_wall_ns(), "and its time");
    seat_record_write(path, false);
    ok(seat_record_read(path, &r) && !r.by_launch, "one of its own");
    fs_write_replace(file, "12345678\2", 9, NULL);
    ok(!seat_record_read(path, &r), "other bytes are no record");
    fs_write_replace(file, "12345678", 8, NULL);
    ok(!seat_record_read(path, &r), "nor are too few");
    fs_write_replace(file, "12345678\1\1", 10, NULL);
    ok(!seat_record_read(path, &r), "nor too many");
    fs_remove_tree(dir, NULL);
}

int main(void)
{
    test_end();
    test_record();
    return tap_done();
}
