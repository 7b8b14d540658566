/* SPDX-License-Identifier: Apache-2.0 */
/* muster ckpt cp from one directory into another. */
#include <config.h>

#include "launcher/ckpt_verbs.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/copy.h"
#include "launcher/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int tell(const struct ckpt_options *o, const struct found *f,
                const struct found_facts *facts, const char *to)
{
    char size[32];

    if (o->format == SHOW_JSON || o->format == SHOW_YAML) {
        _buf_ struct buf text = {0};
        struct jsonw w = jsonw_start(&text);

        jsonw_object(&w, NULL);
        jsonw_str(&w, "name", f->name);
        if (f->has_step) {
            jsonw_int(&w, "step", (int64_t)f->step);
        }
        jsonw_int(&w, "files", (int64_t)facts->n_files);
        jsonw_int(&w, "bytes", (int64_t)facts->bytes);
        jsonw_end_object(&w);
        return show_json(&text, o->format);
    }
    ckpt_format_bytes(facts->bytes, size, sizeof(size));
    fprintf(stderr, "muster: %s %s in %llu file%s\n",
            o->is_dry ? "would have copied" : "copied", size,
            (unsigned long long)facts->n_files, facts->n_files == 1 ? "" : "s");
    ckpt_print_name(to, f->name);
    return EXIT_OK;
}

int ckpt_verb_cp(const struct ckpt_options *o, const char *from, const char *to)
{
    struct found_facts facts = {0};
    struct error e = {0};
    struct found f;
    _close_ int from_fd = ckpt_place_find(from, &f, &e), to_fd = -1;
    int rc = from_fd < 0 ? from_fd : copy_check_place(from_fd, &f, to, &e);

    rc = rc < 0 || o->is_dry ? rc : fs_mkdirs(to, &e);
    if (rc == 0 && o->is_dry) {
        rc = found_check(io_system(), from_fd, &f, true, &facts, &e);
    } else if (rc == 0) {
        to_fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = to_fd < 0 ? error_set(&e, errno, "open %s", to)
                       : copy_checkpoint(from_fd, &f, to_fd, to, &facts, &e);
    }
    if (rc < 0) {
        error_wrap(&e, "not copied");
        return command_fail(&e);
    }
    return tell(o, &f, &facts, to);
}
