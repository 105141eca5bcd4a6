#!/usr/bin/env bash
# Tests in inhospitable surroundings, all at once: SIGINT ignored as under nohup, LC_ALL=C, umask 077, no HOME, a TMPDIR with spaces,
# one core, and, where root may arrange it, a /dev/shm of 4 kB and another user. Arguments go to pytest; without, a short selection.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment all,dev
[ $# -gt 0 ] || set -- tests/engine/test_signals.py tests/storage/test_journal.py tests/data/test_bounds.py

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/with spaces"
chmod 1777 "$scratch" "$scratch/with spaces"

words=(env -u HOME -u LANG LC_ALL=C "TMPDIR=$scratch/with spaces" PYTHONDONTWRITEBYTECODE=1
  "$PWD/.venv/bin/python" -m pytest -q -p no:cacheprovider --numprocesses 0 "$@")
if command -v taskset >/dev/null; then
  first=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//') # of the cores that this process may use
  words=(taskset -c "$first" "${words[@]}")
fi
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  # Somebody else; where nobody else may read the interpreter or the sources, root without its rights, whom nobody knows by number.
  for other in "setpriv --reuid=65534 --regid=65534 --clear-groups" "unshare --user"; do
    if $other env "$PWD/.venv/bin/python" -c 'import os, numpy, dpadmm_mpi; assert os.getuid()' 2>/dev/null; then
      words=($other "${words[@]}")
      break
    fi
  done
  if unshare -m true 2>/dev/null; then
    words=(unshare -m bash -c 'mount -t tmpfs -o size=4k,mode=1777 tmpfs /dev/shm && exec "$@"' bash "${words[@]}")
  else
    echo "surroundings: with the usual /dev/shm, because mounts are not allowed" >&2
  fi
fi
trap '' INT
umask 077
"${words[@]}"
