/* SPDX-License-Identifier: Apache-2.0 */
/*
 * charlm: an example of a training program in C for muster. It uses nothing of
 * muster but muster.h.
 *
 * Exit status: 0 done, or stopped as asked; 1 failed; 2 bad usage.
 */
#include <config.h>

#include "checkpoint.h"
#include "evaluate.h"
#include "options.h"
#include "train.h"

#include <muster.h>
#include <stdio.h>
#include <string.h>

static int show_history(const char *path)
{
    struct failure failure = {{0}};
    struct history history;

    if (checkpoint_history(path, &history, &failure) < 0) {
        fprintf(stderr, "charlm: %s\n", failure.text);
        return 1;
    }
    history_print(&history, stdout);
    history_release(&history);
    return 0;
}

static int show_loss(const struct options *o)
{
    struct failure failure = {{0}};
    double loss;

    if (evaluate(o, &loss, &failure) < 0) {
        fprintf(stderr, "charlm: %s\n", failure.text);
        return 1;
    }
    printf("charlm: loss of the text %.6f\n", loss);
    return 0;
}

int main(int argc, char **argv)
{
    struct options options;
    struct failure failure = {{0}};
    struct muster *m;
    int rc = options_parse(argc, argv, &options, &failure);

    if (rc < 0) {
        fprintf(stderr, "charlm: %s (see --help)\n", failure.text);
        return 2;
    }
    if (options.help) {
        fputs(options_help(), stdout);
        return 0;
    }
    if (options.history) {
        return show_history(options.history);
    }
    if (options.evaluate) {
        return show_loss(&options);
    }
    /* Progress is read while the program runs. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    rc = muster_init(&m);
    if (rc < 0) {
        fprintf(stderr, "charlm: join the run: %s\n", strerror(-rc));
        return 1;
    }
    rc = train(m, &options, &failure);
    muster_finalize(m);
    if (rc < 0) {
        fprintf(stderr, "charlm: %s\n", failure.text);
        return 1;
    }
    return 0;
}
