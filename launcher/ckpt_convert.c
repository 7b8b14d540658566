/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_verbs.h"

#include "base/cleanup.h"
#include "ckpt/convert.h"
#include "ckpt/copy.h"
#include "launcher/ckpt_progress.h"
#include "launcher/ckpt_stop.h"
#include "launcher/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SHARD_BYTES (UINT64_C(5) << 30) /* as Hugging Face libraries have it */

static bool show_progress(void *arg, uint64_t done, uint64_t of)
{
    ckpt_line_bytes(arg, "converting", NULL, done, of);
    return !ckpt_stop_came();
}

/* The directory of a path, open, and its name in it. */
static int open_parent(const char *path, char *name, size_t size, struct error *e)
{
    char dir[PATH_MAX], *slash;
    size_t n = strlen(path);
    int fd;

    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    if (n >= sizeof(dir)) {
        return error_set(e, ENAMETOOLONG, "convert to %.60s", path);
    }
    memcpy(dir, path, n);
    dir[n] = '\0';
    slash = strrchr(dir, '/');
    str_copy(name, size, slash ? slash + 1 : dir);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return error_text(e, EEXIST, "%s is there already: expected the name of "
                          "what is to be made", path);
    }
    if (slash) {
        slash[slash == dir] = '\0';
    }
    fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? error_set(e, errno, "open %s", slash ? dir : ".") : fd;
}

/* What was in pickles, and is not in what was made. */
static void tell_pickles(const struct contents *c)
{
    if (c->n_values_left_out) {
        fprintf(stderr, "muster: %zu value%s no tensor: left out\n", c->n_values_left_out,
                c->n_values_left_out == 1 ? " is" : "s are");
    }
    if (c->n_tensors_left_out) {
        fprintf(stderr, "muster: %zu tensor%s of a type or layout that safetensors files do not "
                "have, as '%s': left out\n", c->n_tensors_left_out,
                c->n_tensors_left_out == 1 ? " is" : "s are", c->left_out);
    }
    if (c->n_files_left_out) {
        fprintf(stderr, "muster: %zu file%s left out: %s\n", c->n_files_left_out,
                c->n_files_left_out == 1 ? " is" : "s are", c->why);
    }
}

static int tell(const struct ckpt_options *o, const struct contents *c,
                const struct convert_facts *f, const char *to)
{
    size_t left_out = c->load.index ? c->load.step.manifest.n_blobs : 0;
    char size[32];

    if (o->format == SHOW_JSON || o->format == SHOW_YAML) {
        _buf_ struct buf text = {0};
        struct jsonw w = jsonw_start(&text);

        jsonw_object(&w, NULL);
        jsonw_str(&w, "path", to);
        jsonw_int(&w, "files", (int64_t)f->n_files);
        jsonw_int(&w, "tensors", (int64_t)c->n_tensors);
        jsonw_int(&w, "bytes", (int64_t)f->bytes);
        jsonw_int(&w, "blobs_left_out", (int64_t)left_out);
        jsonw_int(&w, "values_left_out", (int64_t)c->n_values_left_out);
        jsonw_int(&w, "tensors_left_out", (int64_t)c->n_tensors_left_out);
        jsonw_int(&w, "files_left_out", (int64_t)c->n_files_left_out);
        jsonw_int(&w, "metadata_left_out", (int64_t)c->n_meta_left_out);
        jsonw_bool(&w, "verified", c->is_verified);
        jsonw_end_object(&w);
        return show_json(&text, o->format);
    }
    ckpt_format_bytes(f->bytes, size, sizeof(size));
    fprintf(stderr, "muster: converted %zu tensor%s, %s, into %zu file%s\n",
            c->n_tensors, c->n_tensors == 1 ? "" : "s", size, f->n_files,
            f->n_files == 1 ? "" : "s");
    if (left_out) {
        fprintf(stderr, "muster: %zu blob%s no tensor: left out\n", left_out,
                left_out == 1 ? " is" : "s are");
    }
    if (c->n_meta_left_out) {
        fprintf(stderr, "muster: %zu key%s of __metadata__ differ%s from file to "
                "file: left out\n", c->n_meta_left_out,
                c->n_meta_left_out == 1 ? "" : "s",
                c->n_meta_left_out == 1 ? "s" : "");
    }
    tell_pickles(c);
    if (!c->is_verified) {
        fputs("muster: what it was converted from has no checksums, or not for all\n", stderr);
    }
    printf("%s\n", to);
    return EXIT_OK;
}

int ckpt_convert_contents(const struct ckpt_options *o, const struct contents *c,
                          const char *to)
{
    bool is_file = str_ends(to, ".safetensors");
    struct ckpt_line line = {0};
    struct convert job = {
        .from = c, .arg = &line, .progress = show_progress,
        .shard_bytes = is_file ? 0 : o->shard_bytes ? o->shard_bytes : SHARD_BYTES,
    };
    struct convert_facts facts;
    struct error e = {0};
    char name[NAME_MAX + 1];
    _close_ int dir = open_parent(to, name, sizeof(name), &e);
    int rc = dir, status;

    ckpt_stop_begin();
    rc = rc < 0 ? rc : convert_run(&job, dir, name, &facts, &e);
    ckpt_line_end(&line);
    if (rc == -ECANCELED) {
        error_text(&e, ECANCELED, "not converted: ended by a signal, and nothing is left "
                   "of %s", to);
    }
    status = rc < 0 ? command_fail(&e) : tell(o, c, &facts, to);
    ckpt_stop_end();
    return status;
}

int ckpt_convert_check(const struct ckpt_options *o, const char *to, struct error *e)
{
    static const char *const others[] = {".pt", ".pth", ".bin", ".ckpt"};
    char name[PATH_MAX];
    size_t len;

    str_copy(name, sizeof(name), to);
    for (len = strlen(name); len > 0 && name[len - 1] == '/'; len--) {
        name[len - 1] = '\0';
    }
    if (to[len] == '/' && str_ends(name, ".safetensors")) {
        return error_text(e, ERR_USAGE, "ckpt convert: %.100s has the name of a file, and the "
                          "slash of a directory: expected one of the two", to);
    }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        if (str_ends(name, others[i])) {
            return error_text(e, ERR_USAGE, "ckpt convert: %.100s has the name of a file that "
                              "convert does not write: expected NAME.safetensors, or the name of "
                              "a directory", to);
        }
    }
    return str_ends(to, ".safetensors") && o->shard_bytes
               ? error_text(e, ERR_USAGE, "ckpt convert: --shard-size is for a "
                            "directory of files, and %.100s is one file", to)
               : 0;
}

/* There its tensors would be twice, for whoever reads it next. */
static int refuse_inside(const char *from, const char *to, const struct found *f,
                         struct error *e)
{
    char name[FOUND_NAME_BYTES];
    _close_ int dir = ckpt_place_above(from, name, e);

    if (dir < 0 || !copy_is_inside(dir, f, to)) {
        return dir < 0 ? dir : 0;
    }
    return error_text(e, EINVAL, "%s is %s itself, or lies in it: expected another directory "
                      "to convert it into", to, f->name);
}

/* What is not verified as it is read is before. */
static int verify(const char *from, struct contents *c, struct error *e)
{
    char name[FOUND_NAME_BYTES];
    _close_ int dir = ckpt_place_above(from, name, e);
    struct found_facts facts = {0};
    int rc = dir < 0 ? dir : ckpt_check(dir, &c->found, true, &facts, e);

    c->is_verified = rc == 0 && !facts.is_structure_only;
    return rc;
}

int ckpt_verb_convert(const struct ckpt_options *o, const char *from,
                      const char *to)
{
    _contents_ struct contents c = {0};
    struct error e = {0};

    if (ckpt_convert_check(o, to, &e) < 0 || ckpt_place_open(from, &c, &e) < 0 ||
        refuse_inside(from, to, &c.found, &e) < 0 ||
        (c.has_sums && !c.why_no_tensors && verify(from, &c, &e) < 0)) {
        return command_fail(&e);
    }
    return ckpt_convert_contents(o, &c, to);
}
