"""`python -m dpadmm_mpi` and the console command `dpadmm`."""

import os


def main() -> None:
    # One BLAS thread per rank, from before BLAS is loaded: idle thread pools cost start-up time and cores.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    from dpadmm_mpi.cli.main import entry

    entry()


if __name__ == "__main__":
    main()
