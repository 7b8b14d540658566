/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "options.h"

#include "text.h"
#include "weights.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: charlm [OPTION]...\n"
    "Trains a small language model on text, character by character, on all\n"
    "workers of a muster run (or alone).\n"
    "\n"
    "Data and length:\n"
    "  --data PATH            file or directory to learn from; may be repeated\n"
    "                         (default: " TEXT_DEFAULT ")\n"
    "  --steps N              steps to train for (300)\n"
    "  --batch N              sequences in a step, over all workers (32)\n"
    "  --seed N               the same seed gives the same run (1)\n"
    "Model:\n"
    "  --context N            characters that it sees at once (64)\n"
    "  --width N              numbers for each of them (96)\n"
    "  --heads N              attention heads (4)\n"
    "  --layers N             layers (3)\n"
    "Learning:\n"
    "  --rate X               highest learning rate (0.004)\n"
    "  --warmup N             steps until it is reached (20)\n"
    "Checkpoints:\n"
    "  --checkpoint-dir DIR   where they go (default: ckpt in the directory of\n"
    "                         the run, else the working directory)\n"
    "  --checkpoint-every N   steps between them; 0: only when asked (100)\n"
    "  --keep N               how many to keep, at least 2; 0: all (2)\n"
    "  --resume FILE          go on from FILE (default: what muster says)\n"
    "  --save-together        all workers save a share of each, by muster_ckpt.h,\n"
    "                         and go on from the newest in the directory; with\n"
    "                         --checkpoint-every 0 also when the job says\n"
    "Other:\n"
    "  --sample N             characters of text to show at the end (200)\n"
    "  --step-time MS         a step takes at least so long (0)\n"
    "  --history FILE         show which steps the model of a checkpoint has\n"
    "                         learnt from, and by whom, and stop there\n"
    "  --evaluate FILE        show the mean loss of the model of a checkpoint\n"
    "                         over all of the text, and stop there\n"
    "  --dump-gradients FILE  write the gradient of the next step as text and\n"
    "                         stop there\n"
    "  --help                 show this\n";

/* Long options without a letter of their own. */
enum option_code {
    OPTION_DATA = 256,
    OPTION_STEPS,
    OPTION_BATCH,
    OPTION_SEED,
    OPTION_CONTEXT,
    OPTION_WIDTH,
    OPTION_HEADS,
    OPTION_LAYERS,
    OPTION_RATE,
    OPTION_WARMUP,
    OPTION_CHECKPOINT_DIR,
    OPTION_CHECKPOINT_EVERY,
    OPTION_KEEP,
    OPTION_RESUME,
    OPTION_SAVE_TOGETHER,
    OPTION_SAMPLE,
    OPTION_STEP_TIME,
    OPTION_HISTORY,
    OPTION_EVALUATE,
    OPTION_DUMP_GRADIENTS,
    OPTION_HELP,
};

static const struct option long_options[] = {
    {"data", required_argument, NULL, OPTION_DATA},
    {"steps", required_argument, NULL, OPTION_STEPS},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"context", required_argument, NULL, OPTION_CONTEXT},
    {"width", required_argument, NULL, OPTION_WIDTH},
    {"heads", required_argument, NULL, OPTION_HEADS},
    {"layers", required_argument, NULL, OPTION_LAYERS},
    {"rate", required_argument, NULL, OPTION_RATE},
    {"warmup", required_argument, NULL, OPTION_WARMUP},
    {"checkpoint-dir", required_argument, NULL, OPTION_CHECKPOINT_DIR},
    {"checkpoint-every", required_argument, NULL, OPTION_CHECKPOINT_EVERY},
    {"keep", required_argument, NULL, OPTION_KEEP},
    {"resume", required_argument, NULL, OPTION_RESUME},
    {"save-together", no_argument, NULL, OPTION_SAVE_TOGETHER},
    {"sample", required_argument, NULL, OPTION_SAMPLE},
    {"step-time", required_argument, NULL, OPTION_STEP_TIME},
    {"history", required_argument, NULL, OPTION_HISTORY},
    {"evaluate", required_argument, NULL, OPTION_EVALUATE},
    {"dump-gradients", required_argument, NULL, OPTION_DUMP_GRADIENTS},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

const char *options_help(void)
{
    return help;
}

static int parse_u64(const char *name, const char *value, uint64_t max,
                     uint64_t *ret, struct failure *f)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end || errno || v > max) {
        return failure_set(f, "--%s %s: expected a whole number up to %llu",
                           name, value, (unsigned long long)max);
    }
    *ret = v;
    return 0;
}

static int parse_u32(const char *name, const char *value, uint32_t *ret,
                     struct failure *f)
{
    uint64_t v = 0;
    int rc = parse_u64(name, value, 1000000000, &v, f);

    if (rc == 0) {
        *ret = (uint32_t)v;
    }
    return rc;
}

static int parse_rate(const char *value, double *ret, struct failure *f)
{
    char *end;
    double v = strtod(value, &end);

    if (end == value || *end || !isfinite(v) || v <= 0) {
        return failure_set(f, "--rate %s: expected a number above 0", value);
    }
    *ret = v;
    return 0;
}

static int add_data(struct options *o, char *path, struct failure *f)
{
    if (o->n_data == MAX_DATA_PATHS) {
        return failure_set(f, "--data %s: at most %d of them", path,
                           MAX_DATA_PATHS);
    }
    o->data[o->n_data++] = path;
    return 0;
}

/* Where an option that is a count goes; NULL for the others. */
static uint32_t *count_of(struct options *o, int option)
{
    switch (option) {
    case OPTION_STEPS:
        return &o->steps;
    case OPTION_BATCH:
        return &o->batch;
    case OPTION_CONTEXT:
        return &o->context;
    case OPTION_WIDTH:
        return &o->width;
    case OPTION_HEADS:
        return &o->heads;
    case OPTION_LAYERS:
        return &o->layers;
    case OPTION_WARMUP:
        return &o->warmup;
    case OPTION_CHECKPOINT_EVERY:
        return &o->checkpoint_every;
    case OPTION_KEEP:
        return &o->keep;
    case OPTION_SAMPLE:
        return &o->sample;
    case OPTION_STEP_TIME:
        return &o->step_time;
    default:
        return NULL;
    }
}

static int set_option(struct options *o, int option, const char *name,
                      char *value, struct failure *f)
{
    uint32_t *count = count_of(o, option);

    if (count) {
        return parse_u32(name, value, count, f);
    }
    switch (option) {
    case OPTION_DATA:
        return add_data(o, value, f);
    case OPTION_SEED:
        return parse_u64(name, value, UINT64_MAX, &o->seed, f);
    case OPTION_RATE:
        return parse_rate(value, &o->rate, f);
    case OPTION_CHECKPOINT_DIR:
        o->checkpoint_dir = value;
        return 0;
    case OPTION_RESUME:
        o->resume = value;
        return 0;
    case OPTION_SAVE_TOGETHER:
        o->save_together = true;
        return 0;
    case OPTION_HISTORY:
        o->history = value;
        return 0;
    case OPTION_EVALUATE:
        o->evaluate = value;
        return 0;
    case OPTION_DUMP_GRADIENTS:
        o->dump_gradients = value;
        return 0;
    case OPTION_HELP:
        o->help = true;
        return 0;
    default:
        return -EINVAL;
    }
}

static int check(const struct options *o, struct failure *f)
{
    /* The number of characters is known when the text is read. */
    struct shape shape = {
        .vocab = 2,
        .context = o->context,
        .width = o->width,
        .heads = o->heads,
        .layers = o->layers,
    };

    if (o->batch < 1 || o->batch > 1 << 20) {
        return failure_set(f, "--batch %u: expected 1 to %d", o->batch,
                           1 << 20);
    }
    if (o->keep == 1) {
        return failure_set(f, "--keep 1: expected 0 or at least 2, so that "
                              "one is there while the next is written");
    }
    if (o->save_together && o->resume) {
        return failure_set(f, "--save-together with --resume: expected one of "
                              "them; it goes on from --checkpoint-dir");
    }
    if (o->sample > 1000000) {
        return failure_set(f, "--sample %u: expected at most 1000000",
                           o->sample);
    }
    return shape_check(shape, f);
}

int options_parse(int argc, char **argv, struct options *ret,
                  struct failure *f)
{
    struct options o = {
        .steps = 300,
        .batch = 32,
        .context = 64,
        .width = 96,
        .heads = 4,
        .layers = 3,
        .warmup = 20,
        .sample = 200,
        .checkpoint_every = 100,
        .keep = 2,
        .seed = 1,
        .rate = 0.004,
    };
    int option, index, rc;

    optind = 0; /* start anew, for a caller that parses twice */
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", long_options, &index)) >= 0) {
        if (option == '?' || option == ':') {
            return failure_set(f, "%s: %s", argv[optind - 1],
                               option == ':' ? "expected a value"
                                             : "no such option");
        }
        rc = set_option(&o, option, long_options[index].name, optarg, f);
        if (rc < 0) {
            return rc;
        }
    }
    if (optind < argc) {
        return failure_set(f, "unexpected argument '%s'", argv[optind]);
    }
    if (o.n_data == 0) {
        o.data[o.n_data++] = (char *)TEXT_DEFAULT;
    }
    rc = check(&o, f);
    if (rc == 0) {
        *ret = o;
    }
    return rc;
}
