#!/usr/bin/env bash
# Build the site into docs/_build/html, with warnings as errors, and check every link inside it. Links to other sites are not tried.
#   bash scripts/docs.sh            notebooks executed, or taken from the last time
#   bash scripts/docs.sh --quick    notebooks shown without outputs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment all,docs
[ "${1:-}" = --quick ] && execution=off || execution=cache
sphinx-build -q -W --keep-going -b html -d docs/_build/doctrees -D nb_execution_mode=$execution docs docs/_build/html
python docs/building/check_links.py docs/_build/html
echo "docs/_build/html/index.html"
