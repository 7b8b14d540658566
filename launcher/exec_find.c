/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program, looked at before it is started: where execve() says only "no
 * such file", this says which file, and why it was wanted.
 */
#include <config.h>

#include "launcher/exec_setup.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first that PATH has of that name, whether it may be run or not. */
static bool find_existing(const char *name, char *to, size_t size)
{
    const char *p = getenv("PATH");

    while (p && *p) {
        size_t len = strcspn(p, ":");
        struct stat st;

        if ((size_t)snprintf(to, size, "%.*s%s%s", (int)len, p,
                             len ? "/" : "", name) < size &&
            stat(to, &st) == 0 && !S_ISDIR(st.st_mode)) {
            return true;
        }
        p += len + (p[len] == ':');
    }
    return false;
}

static _Noreturn void fail_find(const struct setup *s, char *path, int code)
{
    char cwd[PATH_MAX] = "?";
    bool is_here;
    struct stat st;

    /* A directory of PATH that may not be searched is no news. */
    if (code == EACCES && !strchr(s->argv[0], '/') &&
        !find_existing(s->argv[0], path, PATH_MAX)) {
        code = ENOENT;
    }
    if (code == EACCES && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        exec_fail(s, EXEC_FIND, EISDIR, "it is a directory");
    }
    if (code == EACCES && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        exec_fail(s, EXEC_FIND, code, "%s is a pipe, a socket or a device", path);
    }
    if (code == EACCES && stat(path, &st) == 0) {
        exec_fail(s, EXEC_FIND, code, "%s is not executable (chmod +x makes "
                  "it so, unless its filesystem is mounted noexec)", path);
    }
    if (code != ENOENT) {
        exec_fail(s, EXEC_FIND, code, "%s", strerror(code));
    }
    if (!strchr(s->argv[0], '/')) {
        is_here = stat(s->argv[0], &st) == 0 && S_ISREG(st.st_mode);
        exec_fail(s, EXEC_FIND, code, "not found in PATH%s%s%s (%s)",
                  is_here ? ", only as ./" : "", is_here ? s->argv[0] : "",
                  is_here ? " in the working directory" : "",
                  getenv("PATH") ? getenv("PATH") : "which is not set");
    }
    if (s->argv[0][0] != '/' && getcwd(cwd, sizeof(cwd))) {
        exec_fail(s, EXEC_FIND, code, "no such file in %s", cwd);
    }
    exec_fail(s, EXEC_FIND, code, "no such file");
}

/* "#!/usr/bin/env name": would env find it? */
static void check_env(const struct setup *s, const char *name)
{
    char found[PATH_MAX];

    if (!name || name[0] == '-' || strchr(name, '=')) {
        return;
    }
    if (fs_which(name, getenv("PATH"), found, sizeof(found)) < 0) {
        exec_fail(s, EXEC_INTERPRETER, ENOENT, "interpreter %s (line 1, by "
                  "env) not found in PATH", name);
    }
}

/* The next word of *p, cut off where it ends; NULL where there is none. */
static char *next_word(char **p)
{
    char *word = *p + strspn(*p, " \t");
    size_t len = strcspn(word, " \t");

    *p = word + len + (word[len] != '\0');
    word[len] = '\0';
    return len ? word : NULL;
}

static void check_script(const struct setup *s, char *head)
{
    char *line = head + 2, *name, *arg, *base;
    size_t len = strcspn(line, "\n");

    line[len] = '\0';
    if (len && line[len - 1] == '\r') {
        exec_fail(s, EXEC_INTERPRETER, ENOENT, "line 1 ends in a carriage "
                  "return: the file has DOS line ends, save it with Unix ones");
    }
    name = next_word(&line);
    arg = next_word(&line);
    if (!name) {
        exec_fail(s, EXEC_INTERPRETER, ENOEXEC,
                  "no interpreter after #! (line 1)");
    }
    if (access(name, F_OK) < 0) {
        exec_fail(s, EXEC_INTERPRETER, errno,
                  "interpreter %s (line 1) not found", name);
    }
    if (access(name, X_OK) < 0) {
        exec_fail(s, EXEC_INTERPRETER, errno, "interpreter %s (line 1) is not "
                  "executable", name);
    }
    base = strrchr(name, '/');
    if (base && strcmp(base, "/env") == 0) {
        check_env(s, arg);
    }
}

/* The program that loads this one: musl's on a glibc system, say, or one that
 * an image has left out. execve() would only say "no such file". */
static void check_loader(const struct setup *s, const char *head, size_t len)
{
    ElfW(Ehdr) eh;
    ElfW(Phdr) ph;

    if (len < sizeof(eh)) {
        return;
    }
    memcpy(&eh, head, sizeof(eh));
    if (eh.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64
                                                      : ELFCLASS32)) {
        return;
    }
    for (size_t i = 0; i < eh.e_phnum; i++) {
        size_t at = (size_t)eh.e_phoff + i * sizeof(ph);

        if (eh.e_phoff > len || at + sizeof(ph) > len) {
            return;
        }
        memcpy(&ph, head + at, sizeof(ph));
        if (ph.p_type == PT_INTERP && ph.p_offset < len &&
            ph.p_filesz <= len - ph.p_offset && ph.p_filesz > 1 &&
            head[ph.p_offset + ph.p_filesz - 1] == '\0' &&
            access(head + ph.p_offset, X_OK) < 0) {
            exec_fail(s, EXEC_INTERPRETER, errno, "its loader %s is not there "
                      "(a program built for another system?)",
                      head + ph.p_offset);
        }
    }
}

static void check_head(const struct setup *s, const char *path)
{
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    char head[4096];
    ssize_t n;

    /* A program may be executable and not readable. */
    n = fd < 0 ? -1 : read(fd, head, sizeof(head) - 1);
    if (n > 2 && memcmp(head, "#!", 2) == 0) {
        check_script(s, head);
    } else if (n > SELFMAG && memcmp(head, ELFMAG, SELFMAG) == 0) {
        check_loader(s, head, (size_t)n);
    }
}

void exec_find(const struct setup *s, char *path)
{
    int rc = fs_which(s->argv[0], getenv("PATH"), path, PATH_MAX);

    if (rc < 0) {
        fail_find(s, path, -rc);
    }
    check_head(s, path);
}
