/* SPDX-License-Identifier: Apache-2.0 */
/* What is loaded out of memory of the agent: what is there, and what is on its way. */
#include <config.h>

#include "ckpt/save_agent_bed.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/snap.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 3 * DIGEST_BLOCK_BYTES / 2, RANK = 7 };

struct save_agent_bed save_agent_bed;

static const char uuid[] = "0123456789abcdef0123456789abcdef";

/* What the agent says, and was asked. */
static struct worker_snap says;
static int refuses, n_asked;
static uint32_t asked_rank;

int __wrap_client_snap_find(struct client *c, uint32_t rank, const char *of,
                            struct worker_snap *ret, int *ret_fd, struct error *e);

int __wrap_client_snap_find(struct client *c, uint32_t rank, const char *of,
                            struct worker_snap *ret, int *ret_fd, struct error *e)
{
    (void)c, (void)of;
    n_asked++;
    asked_rank = rank;
    if (refuses) {
        return error_set(e, refuses, "a snapshot");
    }
    *ret = says;
    *ret_fd = fcntl(save_agent_bed.memory, F_DUPFD_CLOEXEC, 0);
    return 0;
}

enum { N_FILES = 80 };

struct bed {
    struct save_agent_bed *agent;
    struct load_source source;
    struct save_way way;
    struct manifest_file files[N_FILES + 1]; /* of ranks, and the index */
    struct step step;
};

static void open_bed(struct bed *b)
{
    save_agent_bed_open(&save_agent_bed);
    *b = (struct bed){.agent = &save_agent_bed};
    if (save_agent_create((struct muster *)(void *)b->agent, &b->way, &b->source) < 0 ||
        ftruncate(b->agent->memory, SNAP_PAGE_BYTES + FILE_BYTES) < 0 ||
        pwrite(b->agent->memory, "first", 5, SNAP_PAGE_BYTES) != 5) {
        bail_out("nothing to load from");
    }
    for (int i = 0; i < N_FILES; i++) {
        snprintf(b->files[i].name, sizeof(b->files[i].name), "r%05d.safetensors", RANK + i);
        b->files[i].bytes = FILE_BYTES;
    }
    snprintf(b->files[N_FILES].name, sizeof(b->files[N_FILES].name), "tensors.index");
    b->step.manifest.files = b->files;
    b->step.manifest.n_files = N_FILES + 1;
    str_copy(b->step.commit.uuid, sizeof(b->step.commit.uuid), uuid);
    says = (struct worker_snap){.bytes = FILE_BYTES, .image_bytes = FILE_BYTES};
    str_copy(says.uuid, sizeof(says.uuid), uuid);
    refuses = n_asked = 0;
    save_agent_look(b->way.self, &b->step);
}

static void close_bed(struct bed *b)
{
    b->way.ops->destroy(b->way.self);
    save_agent_bed_close(b->agent);
}

static const char *look(struct bed *b, uint32_t file)
{
    b->source.look(b->source.arg, &b->step, file);
    return b->source.file(b->source.arg, &b->step, file);
}

static void count(struct bed *b, uint64_t n)
{
    if (pwrite(b->agent->memory, &n, sizeof(n), SNAP_PAGE_BYTES - sizeof(n)) != sizeof(n)) {
        bail_out("no memory");
    }
}

static bool await(struct bed *b, uint64_t end)
{
    return b->source.await(b->source.arg, &b->step, 0, end);
}

static void test_there(void)
{
    struct bed b;
    const char *at;

    open_bed(&b);
    ok(!b.source.file(b.source.arg, &b.step, 0), "nobody has asked");
    at = look(&b, 0);
    ok(at && memcmp(at, "first", 5) == 0, "what the agent has is mapped");
    is_int((int)asked_rank, RANK, "of the rank that has saved it");
    ok(await(&b, FILE_BYTES), "all of it is there, whatever the page says");
    look(&b, 0);
    is_int(n_asked, 1, "it is asked once");
    ok(!look(&b, N_FILES), "the index is no rank's");
    is_int(n_asked, 1, "and nobody asked for it");
    save_agent_looked(b.way.self);
    ok(!b.source.file(b.source.arg, &b.step, 0) && !await(&b, 1), "afterwards it is not");
    close_bed(&b);
}

static void test_coming(void)
{
    struct bed b;

    open_bed(&b);
    says.is_bare = 1;
    count(&b, 1);
    ok(look(&b, 0), "what is on its way is mapped");
    ok(await(&b, 1) && await(&b, DIGEST_BLOCK_BYTES), "its first block is there");
    count(&b, SNAP_NO_MORE);
    ok(!await(&b, DIGEST_BLOCK_BYTES + 1), "the second one will not be");
    count(&b, 2);
    ok(await(&b, DIGEST_BLOCK_BYTES + 1) && await(&b, FILE_BYTES), "or is, after all");
    close_bed(&b);
}

static void test_another(void)
{
    struct bed b;

    open_bed(&b);
    says.image_bytes--;
    ok(!look(&b, 0), "one of another length is none");
    close_bed(&b);
    open_bed(&b);
    says.uuid[0]++;
    ok(!look(&b, 0), "nor one of another save");
    close_bed(&b);
    open_bed(&b);
    says.image_bytes = b.files[0].bytes = FILE_BYTES + 1;
    ok(!look(&b, 0), "nor one that is longer than its memory");
    close_bed(&b);
    open_bed(&b);
    refuses = ENOENT;
    ok(!look(&b, 0), "nor what the agent does not have");
    look(&b, 0);
    is_int(n_asked, 1, "which is not asked again");
    close_bed(&b);
}

/* How often this process has the agent's memory mapped, and open beside its own descriptor. */
static int n_mapped(void)
{
    _fclose_ FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];
    int n = 0;

    while (maps && fgets(line, sizeof(line), maps)) {
        n += strstr(line, "memfd:save_agent_test") != NULL;
    }
    return n;
}

static int n_open(void)
{
    struct stat memory, st;
    int n = -1;

    fstat(save_agent_bed.memory, &memory);
    for (int fd = 0; fd < 1024; fd++) {
        n += fstat(fd, &st) == 0 && st.st_ino == memory.st_ino && st.st_dev == memory.st_dev;
    }
    return n;
}

/* To look maps nothing, as there are threads that get memory; but of very many files, which
 * would take descriptors. */
static void test_many(void)
{
    struct bed b;
    int before, n = 0;

    open_bed(&b);
    before = n_mapped();
    b.source.look(b.source.arg, &b.step, 0);
    ok(n_mapped() == before && n_open() == 1, "what is there is open, and not mapped");
    for (uint32_t i = 1; i < N_FILES; i++) {
        b.source.look(b.source.arg, &b.step, i);
    }
    ok(n_open() <= 64 && n_mapped() == before + N_FILES - n_open(),
       "of %d files no more than 64 are open, the others mapped: %d", N_FILES, n_open());
    for (uint32_t i = 0; i < N_FILES; i++) {
        const char *at = b.source.file(b.source.arg, &b.step, i);

        n += at && memcmp(at, "first", 5) == 0;
    }
    ok(n == N_FILES && n_open() == 0, "who asks where they are has all of them, and none is open");
    save_agent_look(b.way.self, &b.step);
    b.source.look(b.source.arg, &b.step, 3);
    ok(n_mapped() == before && n_open() == 1, "for another load it is asked again");
    save_agent_looked(b.way.self);
    is_int(n_open(), 0, "afterwards nothing is open");
    close_bed(&b);
}

/* It would be read as it is now. */
static void test_map(void)
{
    struct bed b;

    open_bed(&b);
    says.is_bare = 1;
    is_int(save_agent_open(b.way.self, RANK, &b.step, 0), -ENOENT,
           "what is on its way is not mapped for good");
    is_int(save_agent_open(b.way.self, RANK + 1, &b.step, 0), -ENOENT,
           "nor is what another rank has saved");
    close_bed(&b);
}

int main(void)
{
    test_there();
    test_coming();
    test_another();
    test_many();
    test_map();
    return tap_done();
}
