"""Shared by all tests: small configurations, and runs under a real mpiexec."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from dpadmm_mpi.methods.decentralised import algorithm as decentralised
from dpadmm_mpi.privacy import releases as mechanisms

# Mathematics and launchers alike: one BLAS thread, root and more ranks than cores allowed.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OPENBLAS_NUM_THREADS": "1",
}
LAUNCHES = 3  # of mpiexec, which sometimes fails under load before any rank has begun:
NOT_LAUNCHED = (213, True)  # its exit code, and whether it speaks of its own server
TIMEOUT = 60  # seconds within which every job must have ended: nobody hangs

METHODS = tuple(decentralised.METHODS)
PERTURBATIONS = tuple(mechanisms.PERTURBATIONS)

# Small configurations that the promises about restarts are tested on: name -> raw configuration, from the fixture `config`.
RESTARTS = {
    "admm": lambda make: make("admm"),
    "m-admm": lambda make: make("m-admm"),
    "r-admm": lambda make: make("r-admm", "primal", record={"optimum": True}),
    "mr-admm": lambda make: make("mr-admm", "objective", record={"trajectory": False, "every": 2}),
    "star-admm": lambda make: around_a_hub(make, "star-admm", record={"optimum": True}),
    "s-admm": lambda make: around_a_hub(make, "s-admm", {"inner_steps": 20}),
    "ps-admm": lambda make: around_a_hub(make, "ps-admm", {"inner_steps": 20, "averaging": "extrapolated"}, noise_std=0.3),
    "gl-admm": lambda make: around_a_hub(make, "gl-admm", record={"optimum": True}),
    "gl-acc-admm": lambda make: around_a_hub(make, "gl-acc-admm", {"restart": True}),
    "dp-admm": lambda make: around_a_hub(make, "dp-admm", {"u0": "as-printed"}, noise_std=0.05),
    "dp-acc-admm": lambda make: around_a_hub(make, "dp-acc-admm", noise_std=0.05, record={"every": 2, "trajectory": False}),
}


def around_a_hub(make, method, algorithm=(), noise_std=None, record=()):
    """A small configuration of the star or the curated family."""
    raw = make("admm", features=5) | {"name": method, "network": {"nodes": 5}, "problem": {}}
    raw["algorithm"] = {"method": method, "init": "random"} | dict(algorithm)
    raw["privacy"] = {} if noise_std is None else {"noise_std": noise_std}
    raw["record"] = raw["record"] | dict(record)
    return raw


# Six nodes with degrees 1 to 4.
EDGES = [(0, 1), (0, 2), (1, 2), (2, 3), (2, 4), (4, 5)]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A cache of the tests' own, also for the processes that they start."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["DPADMM_DATA"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def real_data():
    """The folder with the papers' data sets, from DPADMM_TEST_DATA."""
    folder = os.environ.get("DPADMM_TEST_DATA")
    if not folder:
        pytest.skip("DPADMM_TEST_DATA does not name a folder with the papers' data sets")
    assert Path(folder).is_dir()
    return Path(folder)


@pytest.fixture(scope="session")
def fetched(real_data, cache):
    """fetched(name): the data set brought into the tests' cache, as `dpadmm data fetch --from` does it."""

    def bring(name):
        process = command("data", "fetch", name, "--from", real_data)
        assert process.returncode == 0, process.stderr
        return name

    return bring


@pytest.fixture
def edge_file(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("".join(f"{i} {j}\n" for i, j in EDGES))
    return path


@pytest.fixture
def config(edge_file):
    """make(method, perturbation, **sections): a small, quick configuration with unequal degrees and uneven shards."""

    def make(method="admm", perturbation="none", iterations=6, runs=1, features=4, **sections):
        eta = {
            "admm": 0.7,
            "r-admm": 0.7,
            "m-admm": [0.5 + 0.1 * i for i in range(6)],
            "mr-admm": [{"first": 0.5 + 0.1 * i, "ratio": 1.02} for i in range(6)],
        }[method]
        if perturbation == "dual" and method == "mr-admm":
            eta = [0.5 + 0.1 * i for i in range(6)]
        raw = {
            "name": f"{method} {perturbation}",
            "seed": 11,
            "runs": runs,
            "iterations": iterations,
            "data": {"source": "synthetic", "features": features, "records": 240, "train": 200, "split": "uneven",
                     "concentration": 5.0},
            "network": {"graph": "edges", "path": str(edge_file)},
            "problem": {"C": 3.0, "rho": 0.5},
            "algorithm": {"method": method, "eta": eta},
            "privacy": {"perturbation": perturbation},
            "record": {"trajectory": True},
        }  # fmt: skip
        if perturbation != "none":
            raw["privacy"]["alpha"] = 5.0
        for name, table in sections.items():
            raw[name] = {**raw[name], **table} if isinstance(table, dict) else table
            raw[name] = {key: value for key, value in raw[name].items() if value is not None}
        return raw

    return make


@pytest.fixture
def write_toml(tmp_path):
    def write(raw, name="config.toml"):
        path = tmp_path / name
        path.write_text(tomli_w.dumps(raw))
        return path

    return write


def command(*arguments, ranks=None, program=None, environment=None, cwd=None, launcher=()):
    """Run `dpadmm ...` (or another program) alone or under mpiexec; the completed process, never later than TIMEOUT."""
    start = [sys.executable, "-m", "dpadmm_mpi"] if program is None else [sys.executable, str(program)]
    if ranks is not None:
        start = [str(Path(sys.executable).parent / "mpiexec"), *launcher, "-n", str(ranks), *start]
    for _ in range(LAUNCHES):
        process = subprocess.run(
            [*start, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env={**os.environ, **MPI_ENVIRONMENT, **(environment or {})},
            cwd=cwd,
            check=False,
        )
        if (process.returncode, "PMIx server's listener thread" in process.stderr) != NOT_LAUNCHED:
            break
    return process


def shard_of(dataset, node):
    """A fresh copy of a node's records."""
    return dataset.loader.shard(dataset.address(node))


def sentences(process):
    """What dpadmm itself said on standard error, without the launcher's own words."""
    return [line[line.index("dpadmm:") :] for line in process.stderr.splitlines() if "dpadmm:" in line]


@pytest.fixture
def rng():
    return np.random.default_rng(20180710)
