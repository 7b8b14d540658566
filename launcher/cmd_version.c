/* SPDX-License-Identifier: Apache-2.0 */
/* muster version: what this binary is, and of which formats it speaks. */
#include <config.h>

#include "launcher/commands.h"

#include "base/buf.h"
#include "base/build.h"
#include "launcher/jsonw.h"
#include "launcher/options.h"
#include "launcher/show.h"
#include "launcher/rundir.h"
#include "launcher/status.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <uv.h>

struct version_options {
    enum show_format format;
};

static const struct option_def table[] = {
    SHOW_OPTION(struct version_options, format),
    {0},
};

static const struct options options = {
    .command = "version",
    .usage = "[-o json|yaml]",
    .about = "Shows the version and the build of muster, the formats that it "
             "writes, and the libraries that it runs with.",
    .table = table,
};

static void write_version(struct buf *to)
{
    struct jsonw w = jsonw_start(to);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "version", PACKAGE_VERSION);
    jsonw_opt_str(&w, "build", build_id());
    jsonw_int(&w, "run_directory_format", RUNDIR_FORMAT);
    jsonw_int(&w, "status_format", STATUS_VERSION);
    jsonw_str(&w, "libuv", uv_version_string());
    jsonw_str(&w, "jansson", jansson_version_str());
    jsonw_str(&w, "libsodium", sodium_version_string());
    jsonw_end_object(&w);
}

int cmd_version(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct version_options set = {0};
    _buf_ struct buf json = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    if (set.format == SHOW_TABLE || set.format == SHOW_WIDE) {
        printf("muster %s\n", build_name());
        return EXIT_OK;
    }
    write_version(&json);
    return show_json(&json, set.format);
}
