#!/usr/bin/env bash
# Small changes to privacy/ and config/, one at a time: which of them no test notices? Takes hours; a name limits it, as in
#   bash scripts/mutation.sh "dpadmm_mpi.privacy.gamma_noise*"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment all,dev

mutmut run "$@"
mutmut results
