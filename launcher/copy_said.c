/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/copy_said.h"

const uint8_t copy_said_key[CHANNEL_KEY_BYTES] = {1, 2, 3};
char *const copy_said_addrs[] = {(char *)"127.0.0.1", NULL};

static void on_begun(void *arg, uint64_t question, const struct snap *s,
                     const struct error *e)
{
    struct copy_said *said = arg;

    snap_copy_begun(said->to, question, s, e);
}

static void on_written(void *arg, const struct snap_head *head, const struct error *e)
{
    (void)arg, (void)head, (void)e;
}

static void on_sent(void *arg, uint32_t rank, const char *uuid, uint32_t to,
                    const struct error *e)
{
    struct copy_said *said = arg;

    (void)rank, (void)uuid, (void)to;
    said->n_sent++;
    said->error = *e;
}

static void on_got(void *arg, const struct snap_head *head, uint32_t from)
{
    struct copy_said *said = arg;

    said->n_got++;
    said->got = *head;
    said->got_from = from;
}

static void on_fetched(void *arg, uint32_t rank, const char *uuid, const struct error *e)
{
    struct copy_said *said = arg;

    (void)rank, (void)uuid;
    said->n_fetched++;
    said->error = *e;
}

struct snap_copy_config copy_said_config(uv_loop_t *loop, unsigned stuck_ms,
                                         struct copy_said *said)
{
    return (struct snap_copy_config){.loop = loop, .key = copy_said_key,
                                     .stuck_ms = stuck_ms, .on_sent = on_sent,
                                     .on_got = on_got, .on_fetched = on_fetched,
                                     .arg = said};
}

void copy_said_hold(struct snap_hold_config *config, struct copy_said *said)
{
    config->left = NULL;
    config->on_begun = on_begun;
    config->on_written = on_written;
    config->arg = said;
    config->name = "copy";
}
