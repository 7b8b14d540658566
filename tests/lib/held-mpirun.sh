# SPDX-License-Identifier: Apache-2.0
#
# An mpirun under which muster-mpi never starts on node3: its rank there waits for
# ever, while there is no file "pass" beside it. In the current directory; to be
# sourced.

printf '#!/bin/bash\n[ "$(hostname)" != node3 ] || [ -e "%s/pass" ] || exec sleep 1000\nexec "$@"\n' "$PWD" >held
cat >held-mpirun <<END
#!/bin/bash
words=()
for word; do
    case \$word in
    */muster-mpi) words+=("$PWD/held" "\$word") ;;
    *) words+=("\$word") ;;
    esac
done
exec "$(command -v mpirun)" "\${words[@]}"
END
chmod +x held held-mpirun
