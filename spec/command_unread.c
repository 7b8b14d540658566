/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launchers that are seen in a command, and whose options cannot be read: each
 * process of muster would start one, and that one starts processes of its own.
 */
#include <config.h>

#include "base/str.h"
#include "spec/command_wrap.h"

#include <string.h>

/* Launchers whose options are not read. */
void command_warn_of_unread(const struct context *c, const struct node *word)
{
    static const char *const names[] = {"accelerate", "srun", NULL};
    const char *name = command_basename(word->text);

    for (size_t i = 0; names[i]; i++) {
        if (strcmp(names[i], name) == 0) {
            report_warn(c->report, &word->place,
                        "%s starts processes of its own, and would be started "
                        "as each of muster's; expected the program itself",
                        name);
        }
    }
}

static bool is_mpi(const char *name)
{
    return strcmp(name, "mpirun") == 0 || strcmp(name, "mpiexec") == 0;
}

/* A word of a text that begins a command, as far as can be told. */
static bool begins(const char *text, const char *at)
{
    static const char *const before[] = {"do",   "else",  "env",  "exec",
                                         "nohup", "then", "time", NULL};
    const char *end = at, *word;
    char name[16];

    while (end > text && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    if (end == text || strchr(";&|(\n", end[-1])) {
        return true;
    }
    for (word = end; word > text && !strchr(" \t;&|(\n", word[-1]);) {
        word--;
    }
    if ((size_t)(end - word) >= sizeof(name)) {
        return command_assignment(word);
    }
    memcpy(name, word, (size_t)(end - word));
    name[end - word] = '\0';
    return command_assignment(name) || command_is_in(before, name);
}

/* A launcher that a text runs; of mpirun only the last command, for one that
 * prepares something is meant as it stands. NULL: none. */
static const char *launcher_in(const char *text)
{
    static const char *const names[] = {"torchrun", "deepspeed", "horovodrun",
                                        "mpirun", "mpiexec", "srun", NULL};

    for (size_t i = 0; names[i]; i++) {
        size_t len = strlen(names[i]);

        for (const char *s = strstr(text, names[i]); s;
             s = strstr(s + 1, names[i])) {
            const char *begin = s, *rest = s + len + strcspn(s + len, ";&\n");

            while (begin > text && !strchr(" \t;&|(\n\"'", begin[-1])) {
                begin--;
            }
            rest += strspn(rest, ";& \t\n");
            if ((s == begin || s[-1] == '/') &&
                (s[len] == ' ' || s[len] == '\t' || s[len] == '\n') &&
                begins(text, begin) && (!is_mpi(names[i]) || !*rest)) {
                return names[i];
            }
        }
    }
    return strstr(text, "-m torch.distributed.run ") ? "torch.distributed.run"
           : strstr(text, "-m torch.distributed.launch ")
               ? "torch.distributed.launch" : NULL;
}

void command_warn_of_text(const struct wrap *w)
{
    const char *name = launcher_in(w->text->text);

    if (name) {
        report_warn(w->c->report, &w->text->place,
                    "%s in the text of %.40s -c is started by each of muster's "
                    "processes, and starts processes of its own; expected %s "
                    "alone as the command, or the program itself with nodes and "
                    "procsPerNode", name,
                    command_basename(w->shell->items[0]->text), name);
    }
}

static bool is_launcher(const struct wrap *w, struct node **words, size_t n)
{
    struct command cmd = {.c = w->c, .argv = words, .n = n};

    return command_is_launcher(&cmd);
}

/* Behind a program that is not known, such as one that enters a container. */
void command_warn_of_words(const struct wrap *w, struct node **words, size_t n)
{
    if (command_is_python(words[0]->text) || strchr(words[0]->text, '.')) {
        return;
    }
    for (size_t i = 1; i + 1 < n; i++) {
        if (words[i - 1]->text[0] != '-' && !is_mpi(words[i]->text) &&
            is_launcher(w, words + i, n - i)) {
            const char *name = command_basename(words[i]->text);

            report_warn(w->c->report, &words[i]->place,
                        "%s behind %.60s is started by each of muster's "
                        "processes, and starts processes of its own; expected "
                        "its program there, with nodes and procsPerNode",
                        name, words[0]->text);
            return;
        }
    }
}
