"""Shared by all tests: small configurations, plans of them, and processes under a real mpiexec."""

import atexit
import bz2
import gzip
import json
import lzma
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pytest

import dpadmm_mpi
from dpadmm_mpi.api.result import Result
from dpadmm_mpi.data.dataset import Dataset, InMemory
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.methods import Config, Curated, Decentralised, Plan, make_plan, methods, parse
from dpadmm_mpi.methods.curated.plan import CuratedPlan
from dpadmm_mpi.methods.decentralised.plan import NetworkPlan
from dpadmm_mpi.methods.star.plan import StarPlan
from dpadmm_mpi.privacy.account import Account, accounts_of
from dpadmm_mpi.privacy.noises import Gamma
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation, perturbations
from dpadmm_mpi.privacy.releases import NetworkReleases, Releases
from dpadmm_mpi.problems.losses import Logistic
from dpadmm_mpi.registry import Registry, is_inside
from dpadmm_mpi.storage.experiments import load
from dpadmm_mpi.types import Array, Matrix

Raw: TypeAlias = dict[str, Any]  # a configuration as TOML has it
Words: TypeAlias = object  # what becomes a word of a command line
Process: TypeAlias = subprocess.CompletedProcess[str]

TOP = Path(__file__).parents[1]
PROGRAMS = Path(__file__).parent / "programs"  # that tests start instead of dpadmm
MPIEXEC = str(Path(sys.executable).parent / "mpiexec")
HOME = [] if "HOME" in os.environ else ["env", f"HOME={tempfile.gettempdir()}"]  # without one Open MPI does not start

# Mathematics and launchers alike: one BLAS thread, root and more ranks than cores allowed.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OPENBLAS_NUM_THREADS": "1",
}
LAUNCHES = 3  # of mpiexec, which sometimes fails under load before any rank has begun:
NOT_LAUNCHED = (213, True)  # its exit code, and whether it speaks of its own server
# Exit codes of mpiexec after a kill of a rank: the signal's, or, where ranks talk over sockets because /dev/shm is too small,
# that of another rank's MPI, which sees one close.
KILLED = (128 + signal.SIGKILL, 14)
TIMEOUT = 180  # seconds within which every job must have ended, also on a busy machine: nobody hangs
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


needs_shared_memory = pytest.mark.skipif(
    Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free < 16 << 20,
    reason="groups of ranks, MPICH and tensorboardX need shared memory, and /dev/shm has less than 16 MB",
)


def names_of(registry: Registry[Any], base: type[object]) -> tuple[str, ...]:
    """The package's own classes of a kind that derive from `base`, by name."""
    return tuple(name for name, cls in registry.items() if issubclass(cls, base) and is_inside(cls))


NETWORK_METHODS = names_of(methods, Decentralised)
CURATED_METHODS = names_of(methods, Curated)
PRIVATE = names_of(perturbations, DataStepPerturbation)
PERTURBATIONS = ("none", *PRIVATE)

# Six nodes with degrees 1 to 4.
EDGES = [(0, 1), (0, 2), (1, 2), (2, 3), (2, 4), (4, 5)]
NEIGHBOURS = [sorted({j for edge in EDGES for j in edge if i in edge and j != i}) for i in range(6)]


class MakeConfig(Protocol):
    """The fixture `config`: a small configuration, with other values in some of its sections."""

    def __call__(
        self,
        method: str = "admm",
        perturbation: str = "none",
        iterations: int = 6,
        runs: int = 1,
        features: int = 4,
        **sections: Any,
    ) -> Raw: ...


class WriteToml(Protocol):
    """The fixture `write_toml`: a configuration as a file."""

    def __call__(self, raw: Raw, name: str = "config.toml") -> Path: ...


def write_edges(path: Path) -> Path:
    path.write_text("".join(f"{i} {j}\n" for i, j in EDGES))
    return path


def small_configs(edge_file: Path) -> MakeConfig:
    """A maker of small, quick configurations with unequal degrees and uneven shards."""

    def make(
        method: str = "admm",
        perturbation: str = "none",
        iterations: int = 6,
        runs: int = 1,
        features: int = 4,
        **sections: Any,
    ) -> Raw:
        eta: Any = {
            "admm": 0.7,
            "r-admm": 0.7,
            "m-admm": [0.5 + 0.1 * i for i in range(6)],
            "mr-admm": [{"first": 0.5 + 0.1 * i, "ratio": 1.02} for i in range(6)],
        }[method]
        if perturbation == "dual" and method == "mr-admm":
            eta = [0.5 + 0.1 * i for i in range(6)]
        raw: Raw = {
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


def around_a_hub(
    make: MakeConfig, method: str, algorithm: Raw | None = None, noise_std: float | None = None, record: Raw | None = None
) -> Raw:
    """A small configuration of the star or the curated family."""
    raw = make("admm", features=5) | {"name": method, "network": {"nodes": 5}, "problem": {}}
    raw["algorithm"] = {"method": method, "init": "random"} | (algorithm or {})
    raw["privacy"] = {} if noise_std is None else {"noise_std": noise_std}
    raw["record"] = raw["record"] | (record or {})
    return raw


def baseline(make: MakeConfig, method: str, algorithm: Raw, privacy: Raw | None = None) -> Raw:
    """A small configuration of the gradient family, or with a single solve; without noise unless it is given."""
    raw = make("admm") | {"name": method, "privacy": privacy or {"perturbation": "none"}}
    raw["algorithm"] = {"method": method, "init": "random"} | algorithm
    return raw


# Small configurations that the promises about restarts are tested on: name -> raw configuration, from the fixture `config`.
RESTARTS: dict[str, Callable[[MakeConfig], Raw]] = {
    "admm": lambda make: make("admm"),
    "m-admm": lambda make: make("m-admm"),
    "r-admm": lambda make: make("r-admm", "primal", record={"optimum": True}),
    "mr-admm": lambda make: (
        make("mr-admm", "objective", record={"trajectory": False, "nodes": False, "every": 2})
        | {"release": {"average": "all", "recycle": 2, "consensus": 5}}
    ),
    "star-admm": lambda make: around_a_hub(make, "star-admm", record={"optimum": True}) | {"release": {"average": "all"}},
    "s-admm": lambda make: around_a_hub(make, "s-admm", {"inner_steps": 20}),
    "ps-admm": lambda make: around_a_hub(make, "ps-admm", {"inner_steps": 20, "averaging": "extrapolated"}, noise_std=0.3),
    "gl-admm": lambda make: around_a_hub(make, "gl-admm", record={"optimum": True}) | {"release": {"average": {"from": 3}}},
    "gl-exact-admm": lambda make: around_a_hub(make, "gl-exact-admm", {"rho": 0.1}),
    "gl-acc-admm": lambda make: around_a_hub(make, "gl-acc-admm", {"restart": True}),
    "dp-admm": lambda make: around_a_hub(make, "dp-admm", {"u0": "as-printed"}, noise_std=0.05),
    "dp-acc-admm": lambda make: around_a_hub(make, "dp-acc-admm", noise_std=0.05, record={"every": 2, "trajectory": False}),
    "arc-admm": lambda make: baseline(make, "arc-admm", {"eta": 0.7}, {"perturbation": "objective", "alpha": 5.0}),
    "gossip": lambda make: baseline(make, "gossip", {"mixing_steps": 3}, {"noise_std": 0.3}),
    "dp-gradient-tracking": lambda make: baseline(make, "dp-gradient-tracking", {"step": 0.2}, {"noise_std": 0.3}),
}


# Runs and plans


def result_of(config: str | Path | Mapping[str, Any] | None, output: str | Path | None = None, **options: Any) -> Result:
    """dpadmm_mpi.run in this process, which always has a result."""
    result = dpadmm_mpi.run(config, output, **options)
    assert result is not None
    return result


def parsed(raw: Raw | Path, *overrides: str, only: str | None = None) -> Config:
    """The one configuration of a table or a file."""
    (config,) = load(raw, overrides, only).configs
    return config


def planned(raw: Raw | Path, *overrides: str) -> tuple[Plan[Any], Dataset[Any]]:
    return make_plan(parsed(raw, *overrides))


def network_plan(raw: Raw | Path) -> tuple[NetworkPlan, Dataset[Any]]:
    plan, dataset = planned(raw)
    assert isinstance(plan, NetworkPlan)
    return plan, dataset


def star_plan(raw: Raw | Path) -> tuple[StarPlan, Dataset[Any]]:
    plan, dataset = planned(raw)
    assert isinstance(plan, StarPlan)
    return plan, dataset


def curated_plan(raw: Raw | Path) -> tuple[CuratedPlan, Dataset[Any]]:
    plan, dataset = planned(raw)
    assert isinstance(plan, CuratedPlan)
    return plan, dataset


def network_releases(perturbation: str, *, alpha: Array, **values: Any) -> NetworkReleases:
    """Releases with Gamma noise at `alpha`, (K, N), in a data step; of the logistic loss unless `values` say otherwise."""
    noise = Gamma(alpha=1.0)
    kind = perturbations[perturbation]
    made = kind(noise=noise) if issubclass(kind, DataStepPerturbation) else kind()
    private = noise if made.private else None
    loss: dict[str, Any] = {"G": 1.0, "c1": 0.25, "decreasing": True, "tie": Logistic().slope_and_curvature}
    if {"G", "c1"} & values.keys():  # another loss, of which nothing but its bounds is known
        loss |= {"decreasing": False, "tie": None}
    given: dict[str, Any] = {"perturbation": made, "noise": private, "parameter": alpha}
    return NetworkReleases(**(given | loss | values))


def ledger(releases: Releases, delta: float = 1e-5) -> dict[str, Account]:
    """All accounts of what was released, by name."""
    return by_name(accounts_of(releases, delta))


def by_name(accounts: Sequence[Account]) -> dict[str, Account]:
    return {account.name: account for account in accounts}


def shard_of(dataset: Dataset[Any], node: int) -> Shard:
    """A fresh copy of a node's records."""
    return dataset.loader.shard(dataset.address(node))


def records_for_testing(dataset: Dataset[Any]) -> Shard:
    """The test records, which fit into the memory."""
    test = dataset.test()
    assert isinstance(test, InMemory)
    return test.shard


def dense(X: Matrix) -> Array:
    return X if isinstance(X, np.ndarray) else X.toarray()


def rows_of(dataset: Dataset[Any], node: int) -> Array:
    """The features of a node's records, dense."""
    return dense(shard_of(dataset, node).X)


def dataset_of(nodes: int = 3, seed: int = 1, **data: Any) -> Dataset[Any]:
    """The records of a [data] section."""
    return parse({"data": data}).data.dataset(nodes, seed)


def all_records(dataset: Dataset[Any]) -> tuple[Array, Array]:
    """Features and labels of all nodes, in node order."""
    shards = [shard_of(dataset, i) for i in range(len(dataset.sizes))]
    return np.concatenate([dense(s.X) for s in shards]), np.concatenate([s.y for s in shards])


# Files with records


def libsvm_text(X: Array, y: Array) -> str:
    rows = zip(X, y, strict=True)
    return "".join(f"{int(v):+d} " + " ".join(f"{j + 1}:{float(a)!r}" for j, a in enumerate(x) if a) + "\n" for x, v in rows)


def csv_text(X: Array, y: Array, header: bool = True) -> str:
    lines = ["label," + ",".join(f"x{j}" for j in range(X.shape[1]))] if header else []
    for x, v in zip(X, y, strict=True):
        cells = [repr(float(a)) for a in x]
        lines.append(",".join([f"{v:g}", *cells] if header else [*cells, f"{v:g}"]))
    return "\n".join(lines) + "\n"


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    ".gz": lambda content: gzip.compress(content, mtime=0),  # no clock: the workers of the tests must agree on their names
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def write_records(folder: Path, source: str, X: Array, y: Array, suffix: str = "") -> Path:
    path = folder / f"records.{source}{suffix}"
    if source == "npz":
        np.savez(path, X=X, y=y)
    else:
        text = libsvm_text(X, y) if source == "libsvm" else csv_text(X, y)
        path.write_bytes(COMPRESS[suffix](text.encode()))
    return path


# Processes


def as_from_a_terminal() -> None:
    """In a new process, before its program: signals as an interactive shell leaves them, however the tests were started.

    A child inherits what is ignored or blocked: under nohup or behind `&` SIGINT is, and nothing could be interrupted.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def popen(words: Sequence[Words], **options: Any) -> "subprocess.Popen[str]":
    """A process of its own, which answers to signals; text in its pipes."""
    return subprocess.Popen([str(word) for word in words], text=True, preexec_fn=as_from_a_terminal, **options)


def dpadmm(*arguments: Words, ranks: int | None = None, program: Path | None = None, launcher: Sequence[str] = ()) -> list[str]:
    """The words of `dpadmm ...`, or of another program, alone or under mpiexec."""
    start = [sys.executable, "-m", "dpadmm_mpi"] if program is None else [sys.executable, str(program)]
    if ranks is not None:
        start = [*HOME, MPIEXEC, *launcher, "-n", str(ranks), *start]
    return [*start, *map(str, arguments)]


def command(
    *arguments: Words,
    ranks: int | None = None,
    program: Path | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    launcher: Sequence[str] = (),
) -> Process:
    """Run `dpadmm ...` (or another program) alone or under mpiexec; the completed process, never later than TIMEOUT.

    One that is alone in the usual environment is a fork of a prepared process, without the second that its imports take.
    """
    words = dpadmm(*arguments, ranks=ranks, program=program, launcher=launcher)
    if ranks is None and environment is None:
        return prepared().run(words, cwd or Path.cwd())
    for _ in range(LAUNCHES):
        process = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env={**os.environ, **MPI_ENVIRONMENT, **(environment or {})},
            cwd=cwd,
            check=False,
            preexec_fn=as_from_a_terminal,
        )
        if (process.returncode, "PMIx server's listener thread" in process.stderr) != NOT_LAUNCHED:
            break
    return process


class Prepared:
    """The other end of programs/prepared.py."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, PROGRAMS / "prepared.py", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **MPI_ENVIRONMENT},
            )
        atexit.register(self.close)

    def run(self, words: Sequence[str], folder: Path) -> Process:
        """What `subprocess.run` does with the words of a Python process, which is killed after TIMEOUT."""
        order = {"environment": {**os.environ, **MPI_ENVIRONMENT}, "folder": str(folder), "words": words[1:]}
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [output.fileno(), errors.fileno()])
            child = int(self._orders.recv(99))
            self._orders.settimeout(TIMEOUT)
            try:
                code = int(self._orders.recv(99))
            except BaseException as error:  # the limit of the whole test too
                os.kill(child, signal.SIGKILL)
                self._orders.settimeout(None)
                self._orders.recv(99)
                if isinstance(error, TimeoutError):
                    raise subprocess.TimeoutExpired(words, TIMEOUT) from None
                raise
            self._orders.settimeout(None)
            texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (output, errors)]
        return subprocess.CompletedProcess(list(words), code, *texts)

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


@cache
def prepared() -> Prepared:
    """One for all tests of this process."""
    return Prepared()


def sentences(process: Process) -> list[str]:
    """What dpadmm itself said on standard error, without the launcher's own words."""
    return [line[line.index("dpadmm:") :] for line in process.stderr.splitlines() if "dpadmm:" in line]
