#!/usr/bin/env bash
# Which lines the tests reach, processes that they start included: a table, and htmlcov/index.html. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment all,dev

coverage erase
coverage run -m pytest "$@" || failed=$?
coverage combine --quiet
coverage html --quiet
coverage report --skip-covered --sort=cover
exit "${failed:-0}"
