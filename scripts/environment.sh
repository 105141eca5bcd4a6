# Sourced by the other scripts: the environment .venv in the top folder, with what they need installed.
# Usage: prepare_environment EXTRAS, for example prepare_environment mpi,plot

prepare_environment() {
  local extras=$1 python=${PYTHON:-python3} stamp=".venv/installed-$1"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or later is needed; set PYTHON to one, as in PYTHON=python3.12 bash $0" >&2
    exit 2
  }
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  if ! cmp -s pyproject.toml "$stamp"; then
    echo "Installing dpadmm-mpi[$extras] into .venv ..."
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
    cp pyproject.toml "$stamp"
  fi
  PATH="$PWD/.venv/bin:$PATH"
  export PATH
}

# Open MPI refuses to run as root, or with more ranks than cores, unless it is told that this is meant.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
