/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster ckpt-copy: copies one checkpoint of a program into another directory, for
 * the agent that leads (launcher/agent_copy.h), and keeps so many there.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/copy.h"
#include "launcher/ckpt_verbs.h"
#include "launcher/options.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct copy_options {
    int64_t keep;
};

static const struct option_def table[] = {
    {"keep", "N", "how many to keep there; 0: all", OPTION_INT,
     offsetof(struct copy_options, keep), NULL, 0},
    {0},
};

static const struct options options = {
    .command = "ckpt-copy",
    .usage = "[--keep=N] CHECKPOINT DIRECTORY",
    .about = "Copies a checkpoint into another directory; run by the agent that "
             "leads.",
    .table = table,
    .min_args = 2,
    .max_args = 2,
};

static int copy(char *checkpoint, const char *to, uint64_t keep,
                struct error *e)
{
    char *slash = strrchr(checkpoint, '/');
    const char *name = slash ? slash + 1 : checkpoint;
    struct found_facts facts = {0};
    struct found f;
    _close_ int from_fd = -1, to_fd = -1;
    int rc;

    if (slash) {
        *slash = '\0';
    }
    from_fd = open(!slash ? "." : slash == checkpoint ? "/" : checkpoint,
                   O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from_fd < 0) {
        return error_set(e, errno, "open %s", checkpoint);
    }
    if (!found_one(io_system(), from_fd, name, &f)) {
        return error_text(e, ENOENT, "%s is no checkpoint that is known", name);
    }
    rc = copy_check_place(from_fd, &f, to, e);
    rc = rc < 0 ? rc : fs_mkdirs(to, e);
    if (rc < 0) {
        return rc;
    }
    to_fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (to_fd < 0) {
        return error_set(e, errno, "open %s", to);
    }
    rc = copy_checkpoint(io_system(), from_fd, &f, to_fd, to, &facts, e);
    return rc == 0 && keep ? ckpt_prune_copies(to_fd, to, keep, name, e) : rc;
}

int cmd_ckpt_copy(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct copy_options o = {0};
    struct error e = {0};
    int status = options_start(&options, argc, argv, &o, &args);

    if (status >= 0) {
        return status;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return copy(args.words.items[0], args.words.items[1],
                o.keep > 0 ? (uint64_t)o.keep : 0, &e) < 0
               ? command_fail(&e) : EXIT_OK;
}
