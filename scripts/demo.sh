#!/usr/bin/env bash
# Set up, run the quickstart in one process and on five ranks, show that both results are identical, draw a picture.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
prepare_environment mpi,plot

mkdir -p demo
echo
echo "1. The quickstart (configs/quickstart.toml) in one process:"
dpadmm run configs/quickstart.toml -o demo/serial.h5 --force
echo
echo "2. The same on five MPI ranks, one for each node of the network:"
mpiexec -n 5 dpadmm run configs/quickstart.toml -o demo/ranks.h5 --force
echo
echo "3. Are the two files the same, to the bit?"
dpadmm diff demo/serial.h5 demo/ranks.h5
echo
echo "4. A picture:"
dpadmm plot demo/serial.h5 -o demo/quickstart.png
echo
echo "Next:"
echo "  source .venv/bin/activate      # then dpadmm is a command of this shell"
echo "  dpadmm init                    # my.toml, a commented configuration to change"
echo "  dpadmm run my.toml             # and docs/index.md leads on from there"
