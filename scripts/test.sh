#!/usr/bin/env bash
# Set up, then lint, types, import contracts and all tests. Arguments go to pytest: bash scripts/test.sh -k privacy
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment all,dev

ruff check --quiet .
ruff format --check --quiet .
mypy
MYPYPATH=tests mypy --explicit-package-bases tests
lint-imports --no-logo
# Two at a time: most of them wait for processes that they have started. A file stays together, with what it has prepared;
# the longest come first (tests/conftest.py), not those with the most tests.
pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder "$@"
# Once more in inhospitable surroundings: a short selection, unless some tests were asked for.
[ $# -gt 0 ] || bash scripts/surroundings.sh
