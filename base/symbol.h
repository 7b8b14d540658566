/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of libraries that are loaded where they are there, and done without elsewhere. */
#ifndef MUSTER_BASE_SYMBOL_H
#define MUSTER_BASE_SYMBOL_H

#include <stdbool.h>

/* Puts the function `name` of a library, as dlopen() returned it, into the pointer to a
 * function that lies at `to`. False, and it is NULL, where there is none of that name. */
bool symbol_find(void *library, const char *name, void *to);

#endif
