#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make install: everything is where a user's tools look for it, and a program of
# the user's own is built against it.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command make cc pkg-config

# of NAME: a variable of the Makefile, in full.
of() { printf 'include Makefile\nshow-it:\n\t@echo $(%s)\n' "$1" | make -s --no-print-directory -C "$MUSTER_BUILDDIR" -f - show-it; }

# looks_below PYTHON: for modules below the prefix; "out" says where there.
looks_below() {
    run "$1" "$MUSTER_SRCDIR/build-aux/python-dir" "$prefix"
    [ -s out ]
}

root=$TRASH/root
prefix=$(of prefix)
lib=$root$(of libdir)

# Other scripts install from the same build, and libtool links again for it.
run flock "$MUSTER_BUILDDIR/install.lock" make -s -C "$MUSTER_BUILDDIR" install DESTDIR="$root"
is "$status" 0 'make install DESTDIR=' || { show; done_testing; }

for f in "$(of bindir)"/muster "$(of pkglibexecdir)"/muster-{mpi,watch,exec,seat,ckpt-bench} \
    "$(of pkglibexecdir)"/examples/charlm/{charlm,standalone.mk}; do
    ok "${f#"$prefix/"} is there" test -f "$root$f"
done
for page in muster.1 muster-run.1 muster-status.1 muster-job.5 muster.7 muster_ckpt.3; do
    like "$(head -c 200 "$root$(of mandir)/man${page##*.}/$page")" '.\"' "$page is a manual page"
done
run "$root$(of bindir)/muster" version
matches "$(cat out)" '^muster [0-9]' 'the program runs from there'

# A pkg-config file has paths of the prefix; the sysroot stands before them.
mkdir c
ln -s "$root" c/root
cat >c/world.c <<'END'
#include <muster.h>
#include <stdio.h>
int main(void)
{
    struct muster *m;

    if (muster_init(&m) < 0 ||
        printf("%d of %d\n", muster_rank(m), muster_world(m)) < 0) {
        return 1;
    }
    muster_finalize(m);
    return 0;
}
END
export PKG_CONFIG_PATH=c/root${lib#"$root"}/pkgconfig PKG_CONFIG_SYSROOT_DIR=c/root
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
run pkg-config --exists --print-errors muster
is "$status" 0 'pkg-config knows muster' || show
if sanitized; then
    skip 'libmuster wants the sanitizer in the program' 2
else
    ok 'a program is built by its flags' \
        cc -std=c99 -Wall -Werror -pedantic -o world c/world.c $(pkg-config --cflags --libs muster)
    run env LD_LIBRARY_PATH="$lib" ./world
    is "$(cat out)" '0 of 1' 'and runs, as a world of one'
fi

python=$(of PYTHON)
if [ "$python" = : ]; then
    skip 'no Python' 2
else
    dir=$(of pythondir)
    run env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root$dir" "$python" -c 'import muster; print(muster.rank(), muster.world())'
    is "$(cat out)" '0 1' 'the Python module is there' || show
    # A prefix that this Python (of a pyenv, say) knows nothing of is the user's
    # to name; that of the system may know it.
    if ! looks_below "$python" && looks_below /usr/bin/python3; then
        python=/usr/bin/python3
        dir=$prefix$(cat out)
        run make -s -C "$MUSTER_BUILDDIR" install-dist_musterpyDATA install-dist_musterckptpyDATA DESTDIR="$root" pythondir="$dir"
        is "$status" 0 'make install for the Python of the system' || show
    fi
    if looks_below "$python"; then
        run env PYTHONDONTWRITEBYTECODE=1 "$python" -c 'if True:
            import sys
            root, dir = sys.argv[1:]
            sys.path = [root + d if d == dir else d for d in sys.path]
            import muster
            print(muster.__file__)' "$root" "$dir"
        is "$(cat out)" "$root$dir/muster/__init__.py" 'where this Python looks for it' || show
    else
        skip "$python does not look below $prefix"
    fi
fi

# Nothing in there leads back to where it was built.
is "$(grep -rlIF "$MUSTER_BUILDDIR" "$root")" '' 'no text names the build directory'
done_testing
