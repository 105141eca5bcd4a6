#!/usr/bin/env bash
# Faults from outside, over all families: kills at system calls, power cuts, errors of the system; serial and on two ranks. A table
# of what was injected, and exit code 1 if something did not hold. So many faults, and a seed, as in
#   bash scripts/faults.sh 1000 7
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment all,dev

cd tests
exec python -m faults.campaign "${1:-1000}" "${2:-1}"
