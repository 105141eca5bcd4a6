#!/usr/bin/env bash
# Set up, then lint, types and all tests. Arguments go to pytest: bash scripts/test.sh -k privacy
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment all,dev

ruff check --quiet .
ruff format --check --quiet .
mypy
pytest "$@"
