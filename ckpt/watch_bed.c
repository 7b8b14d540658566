/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/watch_bed.h"

#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char header[] =
    "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";

void watch_bed_open(struct watch_bed *b)
{
    *b = (struct watch_bed){.w = {.io = io_system()}};
    b->dir = found_bed_open(b->path);
}

void watch_bed_close(struct watch_bed *b)
{
    watch_release(&b->w);
    found_bed_close(b->dir, b->path);
}

void watch_bed_put(const struct watch_bed *b, const char *name, size_t cut)
{
    uint8_t bytes[8 + sizeof(header) - 1 + 16] = {sizeof(header) - 1};

    memcpy(bytes + 8, header, sizeof(header) - 1);
    found_bed_put(b->dir, name, bytes, sizeof(bytes) - cut);
}

void watch_bed_put_text(const struct watch_bed *b, const char *name, const char *text)
{
    found_bed_put(b->dir, name, text, strlen(text));
}

void watch_bed_put_trainer(struct watch_bed *b, unsigned step, bool has_state)
{
    char name[64], text[64];

    snprintf(name, sizeof(name), "checkpoint-%u", step);
    mkdirat(b->dir, name, 0700);
    snprintf(name, sizeof(name), "checkpoint-%u/model.safetensors", step);
    watch_bed_put(b, name, 0);
    snprintf(name, sizeof(name), "checkpoint-%u/trainer_state.json", step);
    snprintf(text, sizeof(text), "{\"global_step\": %u}", step);
    if (has_state) {
        watch_bed_put_text(b, name, text);
    } else {
        unlinkat(b->dir, name, 0);
    }
}

void watch_bed_look(struct watch_bed *b, size_t want)
{
    struct error e = {0};

    is_int(watch_look(&b->w, b->dir, &e), 0, "a look%s%s", e.text[0] ? ": " : "",
           e.text);
    is_int((int)b->w.n, (int)want, "what is there");
}

static void on_passed(void *arg, struct watch_entry *entry)
{
    struct watch_bed *b = arg;

    strncat(b->passed, entry->found.name, sizeof(b->passed) - 1 -
                                              strlen(b->passed));
    strncat(b->passed, " ", sizeof(b->passed) - 1 - strlen(b->passed));
}

const char *watch_bed_choose(struct watch_bed *b)
{
    struct watch_entry *entry = NULL;

    b->passed[0] = '\0';
    is_int(watch_choose(&b->w, b->dir, on_passed, b, &entry, NULL), 0, "chosen");
    return entry ? entry->found.name : "";
}

static void on_told(void *arg, struct watch_entry *entry)
{
    struct watch_bed *b = arg;
    size_t at = strlen(b->passed);

    snprintf(b->passed + at, sizeof(b->passed) - at, "%s%s: %d %s\n",
             entry->is_checked ? "" : "?", entry->found.name, entry->rc, entry->why.text);
}

const char *watch_bed_told(struct watch_bed *b)
{
    struct watch_entry *entry = NULL;

    b->passed[0] = '\0';
    is_int(watch_choose(&b->w, b->dir, on_told, b, &entry, NULL), 0, "chosen");
    return b->passed;
}

static void on_broken(void *arg, struct watch_entry *entry)
{
    struct watch_bed *b = arg;

    if (watch_is_broken(&b->w, b->dir, entry)) {
        on_passed(arg, entry);
    }
}

void watch_bed_broken(struct watch_bed *b, const char *want, const char *chosen,
                      const char *what)
{
    struct watch_entry *entry = NULL;

    b->passed[0] = '\0';
    watch_release(&b->w);
    is_int(watch_choose(&b->w, b->dir, on_broken, b, &entry, NULL), 0, "chosen");
    is_str(b->passed, want, "%s", what);
    is_str(entry ? entry->found.name : "", chosen, "and what is chosen");
}

void watch_bed_count(void *arg, const struct watch_entry *entry)
{
    on_passed(arg, (struct watch_entry *)entry);
}
