#!/usr/bin/env bash
# 10,000 short runs, or as many as the first argument says, over every method, noise, loss and dimension, audited.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment all,dev

DPADMM_AUDIT_RUNS="${1:-10000}" pytest --numprocesses 2 tests/audit/test_audit_many.py
