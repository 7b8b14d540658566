# SPDX-License-Identifier: Apache-2.0
#
# What a run leaves on the hosts of a bed, beside the run directory; to be sourced
# after harness.sh. `remember` before the first run, `as_before` after each. Needs $BED,
# and $there, the folder of muster in it.

# what_is_there HOST: its processes, listening sockets, files and shared memory,
# to be compared with what was there before. The session directories of an mpirun or
# a daemon of it that was killed are not looked at: Open MPI leaves those; nor are Slurm's
# files, which are its own. The parts of the shell that looks are its children.
what_is_there() {
    on "$1" sh -c '
        echo "processes:"; ps -e -o pid=,ppid=,stat=,args= | awk -v me=$$ "
            \$1 != me && \$2 != me && \$3 !~ /^Z/ && !/sshd/ { \$1 = \$2 = \$3 = \"\"; print }" | sort
        echo "sockets:"; ss -H -l -n -t -u -x | awk "{ print \$1, \$5 }" | grep -v ":22\$" | sort
        echo "files:"; find /tmp /dev/shm -xdev -mindepth 1 ! -path "/tmp/muster-$(id -u)" ! -path "/tmp/ompi.*" ! -path "/tmp/prte*" ! -path "/tmp/slurm*" | sort
        echo "shared memory:"; tail -n +2 /proc/sysvipc/shm /proc/sysvipc/sem'
}

# How it is on each host, by name.
look_around() { local h; for h in $(cat "$BED/state/hosts"); do echo "== $h"; what_is_there "$h"; done; }
remember() { look_around >"$TRASH/before"; }
as_before() { look_around >"$TRASH/after"; cmp -s "$TRASH/before" "$TRASH/after"; }
# sweep HOST: for whom nobody is left there who could take its files away. muster gc
# leaves alone what is younger than a minute.
sweep() { on "$1" sh -c 'touch -d "2 minutes ago" /tmp/muster-*/*; exec "$0" gc' "$there/muster" >gc.out 2>&1; }
nothing_left() {
    local h
    ok 'nor anything that it had' wait_for 60 as_before && return
    diag "$(diff "$TRASH/before" "$TRASH/after")"
    for h in $(cat "$BED/state/hosts"); do
        diag "$h: $(on "$h" sh -c 'date +%T; ls -l --time-style=full-iso /tmp/muster-*/*; tail -n 20 /tmp/muster-*/*/agent-*.log' 2>/dev/null)"
    done
}
