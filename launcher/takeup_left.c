/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left of an earlier life whose status is gone: which generations it had is
 * told by its last events and by the names of logs and error files, and which starts by
 * those of views.
 */
#include <config.h>

#include "launcher/takeup.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/run_events.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

enum {
    MAX_NUMBER = 1 << 30, /* a higher one is nobody's generation */
    N_EVENTS = 4096,
};

/* "12", "12-0.json", "12.3": what a name begins with, before `end`; 0: no number. */
static uint32_t number_of(const char *name, char end)
{
    size_t n = strspn(name, "0123456789");
    char text[16] = "";
    uint64_t number = 0;

    if (n == 0 || n >= sizeof(text) || name[n] != end) {
        return 0;
    }
    memcpy(text, name, n);
    return str_to_u64(text, &number) == 0 && number <= MAX_NUMBER ? (uint32_t)number : 0;
}

/* The highest one among the names in a directory, which need not be there. */
static int find_highest(const struct rundir *dir, const char *folder, char end,
                        uint32_t *highest, struct error *e)
{
    char path[PATH_MAX];
    int rc = rundir_path(dir, path, sizeof(path), e, "%s", folder);
    DIR *d = rc < 0 ? NULL : opendir(path);
    struct dirent *entry;

    if (rc < 0 || !d) {
        return rc < 0 || errno == ENOENT ? rc : error_set(e, errno, "list %s", path);
    }
    while ((errno = 0, entry = readdir(d))) {
        uint32_t number = number_of(entry->d_name, end);

        *highest = number > *highest ? number : *highest;
    }
    rc = errno ? error_set(e, errno, "list %s", path) : 0;
    closedir(d);
    return rc;
}

/* A file that is not there, or is none, tells nothing. A generation that was prepared,
 * and never started, has left nothing. */
static int ask_events(const struct rundir *dir, uint32_t *highest, struct error *e)
{
    char path[PATH_MAX];
    json_t *events = NULL;
    const json_t *event;
    size_t i;
    int rc = rundir_path(dir, path, sizeof(path), e, "events.jsonl");

    if (rc < 0 || run_events_read(path, N_EVENTS, &events, NULL) < 0) {
        return rc;
    }
    json_array_foreach(events, i, event) {
        const char *name = json_string_value(json_object_get(event, "event"));
        json_int_t n = json_integer_value(json_object_get(event, "generation"));

        n = name && strcmp(name, "generation_started") == 0 ? n : 0;
        *highest = n > *highest && n <= MAX_NUMBER ? (uint32_t)n : *highest;
    }
    json_decref(events);
    return 0;
}

int takeup_left(const struct rundir *dir, struct takeup_left *ret, struct error *e)
{
    struct takeup_left left = {0};
    int rc = find_highest(dir, "logs", '\0', &left.generation, e);

    rc = rc < 0 ? rc : ask_events(dir, &left.generation, e);
    rc = rc < 0 ? rc : find_highest(dir, "errors", '-', &left.generation, e);
    rc = rc < 0 ? rc : find_highest(dir, "views", '.', &left.start, e);
    if (rc == 0) {
        *ret = left;
    }
    return rc;
}
