/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/unread.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

bool unread_is_there(int fd)
{
    struct stat st;
    off_t at;
    int n = 0;

    if (fstat(fd, &st) < 0) {
        return false;
    }
    if (S_ISREG(st.st_mode)) {
        at = lseek(fd, 0, SEEK_CUR);
        return at >= 0 && at < st.st_size;
    }
    return (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) &&
           ioctl(fd, FIONREAD, &n) == 0 && n > 0;
}

void unread_note(bool is_mpi)
{
    if (unread_is_there(0)) {
        fprintf(stderr, "muster: note: standard input is not passed on: the "
                "workers' is empty. Name the file on the program's command "
                "line%s; </dev/null is without this note\n",
                is_mpi ? ", or have mpirun give it to rank 0, by `mpirun -n N "
                         "muster exec -- PROGRAM <FILE`" : "");
    }
}
