#!/usr/bin/env bash
# N damaged inputs (2,000, if no number is given), each in a process with limits of memory and time: bash scripts/fuzz.sh [N] [--start K]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment all,dev
export OPENBLAS_NUM_THREADS=1 PYTHONPATH=tests
exec python tests/fuzz/run_many.py "$@"
