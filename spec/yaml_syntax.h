/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text that is no YAML: the words of libyaml as found and expected. Private to
 * the loader.
 */
#ifndef MUSTER_SPEC_YAML_SYNTAX_H
#define MUSTER_SPEC_YAML_SYNTAX_H

#include "spec/report.h"

#include <stddef.h>
#include <yaml.h>

/* Where a mark is, or `fixed` if that is not NULL. */
struct place yaml_place(const char *file, const struct place *fixed,
                        const yaml_mark_t *mark);

/* Reports why `p` stopped in `text`: -ERR_SPEC, or -ENOMEM without a report. */
int yaml_syntax_error(const yaml_parser_t *p, const char *text, size_t len,
                      const char *file, const struct place *fixed,
                      struct report *r);

#endif
