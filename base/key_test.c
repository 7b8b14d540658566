/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/key.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/muster-key.XXXXXX";

static const char *at(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const void *data, size_t len, mode_t mode)
{
    FILE *f = fopen(at(name), "w");

    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0 ||
        chmod(at(name), mode) < 0) {
        bail_out("write %s", at(name));
    }
}

static bool is_zero(const uint8_t *key)
{
    static const uint8_t zero[JOB_KEY_BYTES];

    return memcmp(key, zero, JOB_KEY_BYTES) == 0;
}

static void test_create(void)
{
    uint8_t first[JOB_KEY_BYTES] = {0}, second[JOB_KEY_BYTES] = {0};
    struct error e = {0};
    struct stat st;

    is_int(key_create(at("key"), &e), 0, "a key is made");
    is_int(stat(at("key"), &st) < 0 ? 0 : st.st_mode & 07777, 0600,
           "that nobody else can read");
    is_int(key_read(at("key"), true, first, &e), 0, "and read");
    ok(!is_zero(first), "it is not nothing");
    is_int(key_create(at("key"), &e), 0, "making it again");
    key_read(at("key"), true, second, &e);
    ok(memcmp(first, second, sizeof(first)) == 0, "keeps it");
}

static void check_refused(const char *name, int code, const char *part)
{
    uint8_t key[JOB_KEY_BYTES] = {0};
    struct error e = {0};

    is_int(key_read(at(name), true, key, &e), code, "%s is refused", name);
    like(e.text, part, "with the reason");
    ok(is_zero(key), "and nothing of it is given out");
}

static void test_read(void)
{
    static const char hex[] = "00112233445566778899aabbccddeeff"
                              "00112233445566778899AABBCCDDEEFF\n";
    uint8_t key[JOB_KEY_BYTES] = {0};
    struct error e = {0};

    put("hex", hex, 65, 0600);
    is_int(key_read(at("hex"), true, key, &e), 0, "hexadecimal, with a newline");
    ok(key[1] == 0x11 && key[31] == 0xff, "as it says");
    put("open", hex, 64, 0604);
    check_refused("open", -EPERM, "0600");
    put("open", hex, 64, 0640);
    check_refused("open", -EPERM, "0600");
    put("open", hex, 64, 0644);
    if (geteuid() != 0) {
        skip("only root can give a file away");
    } else {
        put("foreign", hex, 64, 0600);
        if (chown(at("foreign"), 12345, (gid_t)-1) == 0) {
            check_refused("foreign", -EPERM, "belongs to user 12345");
        }
    }
    is_int(key_read(at("open"), false, key, &e), 0, "a mounted Secret may be");
    memset(key, 0, sizeof(key));
    put("short", hex, 31, 0600);
    check_refused("short", -ERR_FORMAT, "32 bytes");
    put("odd", hex, 63, 0600);
    check_refused("odd", -ERR_FORMAT, "hexadecimal");
    put("bad", "zz112233445566778899aabbccddeeff"
        "00112233445566778899aabbccddeeff", 64, 0600);
    check_refused("bad", -ERR_FORMAT, "hexadecimal");
    put("bad", "ff112233445566778899aabbccddeeff"
        "00112233445566778899aabbccddeezz", 64, 0600);
    check_refused("bad", -ERR_FORMAT, "hexadecimal");
    put("empty", "", 0, 0600);
    check_refused("empty", -ERR_FORMAT, "32 bytes");
    put("long", hex, 65, 0600);
    if (truncate(at("long"), 1 << 20) < 0) {
        bail_out("truncate");
    }
    check_refused("long", -ERR_FORMAT, "32 bytes");
    check_refused("absent", -ENOENT, "absent");
}

/* A pipe that nobody writes to must not hold up a run. */
static void test_pipe(void)
{
    if (mkfifo(at("fifo"), 0600) < 0) {
        bail_out("mkfifo");
    }
    check_refused("fifo", -ERR_FORMAT, "32 bytes");
}

/* VmFlags of the mapping that `p` lies in. */
static void flags_of(const void *p, char *to, size_t size)
{
    _fclose_ FILE *f = fopen("/proc/self/smaps", "re");
    char line[512];
    bool is_in = false;

    to[0] = '\0';
    while (f && fgets(line, sizeof(line), f)) {
        unsigned long from, until;

        if (sscanf(line, "%lx-%lx ", &from, &until) == 2) {
            is_in = (unsigned long)p >= from && (unsigned long)p < until;
        } else if (is_in && strncmp(line, "VmFlags:", 8) == 0) {
            snprintf(to, size, "%s", line);
        }
    }
}

static void test_hold(void)
{
    uint8_t key[JOB_KEY_BYTES] = {1, 2, 3};
    uint8_t *held = key_hold(key);
    char flags[512];

    ok(held && memcmp(held, key, sizeof(key)) == 0, "a key is held");
    flags_of(held, flags, sizeof(flags));
    like(flags, " dd", "where no core dump looks");
    key_drop(held);
    key_drop(NULL);
}

static void test_prove(void)
{
    uint8_t key[JOB_KEY_BYTES] = {1, 2, 3}, other[JOB_KEY_BYTES] = {1, 2, 4};
    uint8_t proof[KEY_PROOF_BYTES], again[KEY_PROOF_BYTES];

    key_prove(key, "to be let in", proof);
    ok(key_is_proved(key, "to be let in", proof), "a key is shown");
    ok(!key_is_proved(key, "to be let out", proof), "for that alone");
    ok(!key_is_proved(other, "to be let in", proof), "and no other one");
    key_prove(key, "to be let in", again);
    ok(memcmp(proof, again, sizeof(proof)) == 0, "the same each time");
    proof[31] ^= 1;
    ok(!key_is_proved(key, "to be let in", proof), "to the last bit");
}

int main(void)
{
    static const char *const names[] = {"key", "hex", "open", "short", "odd",
                                        "bad", "empty", "long", "fifo",
                                        "foreign"};

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    test_create();
    test_read();
    test_pipe();
    test_hold();
    test_prove();
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        unlink(at(names[i]));
    }
    rmdir(dir);
    return tap_done();
}
