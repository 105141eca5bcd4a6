"""The laws of every method: the same bits everywhere, the optimum without noise, released fields only, sound accounts."""

import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.config.files import read_table
from dpadmm_mpi.config.options import Choice, Options, fields_of
from dpadmm_mpi.engine.loop import Manner, Silent, execute
from dpadmm_mpi.engine.row_gather import by_place
from dpadmm_mpi.engine.simulation import Simulation
from dpadmm_mpi.engine.stopping import Stopper
from dpadmm_mpi.errors import Stopped
from dpadmm_mpi.methods.base import Config, Method, make_plan, methods, to_toml
from dpadmm_mpi.methods.experiment import experiment
from dpadmm_mpi.methods.metrics import Optimum
from dpadmm_mpi.methods.nodes import Nodes, State
from dpadmm_mpi.parallel.owners import assign_owners
from dpadmm_mpi.privacy.noises import lacking_for_audit, noises
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation, NoPerturbation, perturbations
from dpadmm_mpi.registry import first_line, is_inside, place_of
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.storage.result import Result, accounts
from dpadmm_mpi.testing.laws import Laws
from dpadmm_mpi.testing.threads import Threads, on_ranks
from dpadmm_mpi.types import Array

RANKS = (1, 2, 3)
SHORT = 6  # iterations of the laws that are not about convergence
NO_NUMBER = ("kkt_residual",)  # nan in iterations that solve nothing

# Small and well-conditioned, whatever the family: of these, the keys that the method's sections have.
TERMS = {"C": 1.0, "rho": 10.0, "reg": 1.0, "lambda1": 0.5, "regulariser": "l2"}
NOISE_SIZE = 5.0
NOISE_STD = 0.3


class Kind(NamedTuple):
    """A kind of noise that a method goes with: the section [privacy], and whether its audit is known."""

    privacy: dict[str, Any]
    auditable: bool

    @property
    def name(self) -> str:
        return " ".join(str(self.privacy[key]) for key in ("perturbation", "noise") if key in self.privacy)


def check_method(
    cls: type[Method],
    *,
    iterations: int = 150,
    tolerance: float = 1e-4,
    optimum: bool = True,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """The laws of every method, on small problems, in this process.

    It runs, and records numbers. It has the same bits on 1, 2 and 3 ranks, and after a stop and a restart on another number of
    ranks. Without noise it ends at the centralised optimum. Only what it declares as released travels. With every kind of
    noise that it takes, registered ones from outside included, its runs are accounted for, and the audit finds nothing against
    that; or they say infinity and "not proven". Its options have defaults, survive being written and read, and its docstring
    says what it is.

    Parameters
    ----------
    cls : the method, registered by @dp.method("NAME")
    iterations : of the run that ends at the optimum
    tolerance : largest relative distance to the optimum at its end
    optimum : False for a method that does not end at the optimum, and is not meant to
    config : further sections and keys of the configuration, as in {"problem": {"C": 2.0}}
    **options : of the method, where others than its defaults are to be tried

    Raises
    ------
    AssertionError
        A sentence for each law that the method breaks.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> dp.testing.check_method(dp.methods.Admm, eta=0.5)
    """
    laws = Laws(f"{place_of(cls)}: {cls.__name__}")
    laws.expect(bool(first_line(cls).strip()), "it needs a docstring, whose first line says what it is")
    names = [name for name, known in methods.items() if known is cls]
    if not names:
        laws.expect(False, 'it is not registered: put @dp.method("NAME") above the class')
        laws.conclude()
    needed = [f.name for f in fields_of(cls) if f.required and f.name not in options]
    laws.expect(not needed, f"every option needs a default, but {', '.join(needed)} has none")
    if not needed:
        with tempfile.TemporaryDirectory(prefix="dpadmm-check-") as folder:
            _Trial(names[0], cls, options, config or {}, Path(folder), laws).all_laws(
                iterations, tolerance if optimum else None
            )
    laws.conclude()


class _Trial:
    """One method on small problems."""

    def __init__(
        self, name: str, cls: type[Method], options: Mapping[str, Any], config: Mapping[str, Any], folder: Path, laws: Laws
    ) -> None:
        self.cls, self.folder, self.laws = cls, folder, laws
        self._options, self._config = {"method": name, **options}, config

    def config(self, iterations: int, kind: Kind | None, **record: Any) -> Config:
        """A small configuration; without noise, or with the given kind."""
        raw: dict[str, Any] = {
            "name": "check",
            "seed": 7,
            "runs": 2,
            "iterations": iterations,
            "data": {
                "source": "synthetic",
                "records": 250,
                "features": 4,
                "train": 200,
                "split": "uneven",
                "concentration": 5.0,
            },
            "network": {"nodes": 5} if self.cls.hub else {"graph": "random", "nodes": 6, "probability": 0.5},
            "problem": _known(self.cls.terms, TERMS),
            "algorithm": self._options,
            "privacy": {"perturbation": "none"} if kind is None else kind.privacy,
            "record": record,
        }
        for key, value in self._config.items():
            raw[key] = {**raw[key], **value} if isinstance(value, Mapping) and isinstance(raw.get(key), dict) else value
        return experiment(raw).configs[0]

    def all_laws(self, iterations: int, tolerance: float | None) -> None:
        laws, kinds = self.laws, list(_kinds(self.cls))
        plain = any(issubclass(NoPerturbation, taken) for taken in self.cls.perturbations)
        first = kinds[0] if kinds else None
        with laws.law("options"):
            self._options_survive(self.config(SHORT, first))
        with laws.law("it runs"):
            self._numbers(self.run(self.config(SHORT, first, trajectory=True), "serial.h5"))
            with laws.law("ranks"):
                self._same_on_all_ranks(self.config(SHORT, first, trajectory=True))
            with laws.law("restart"):
                self._same_after_a_restart(self.config(SHORT, first, trajectory=True))
            with laws.law("released fields"):
                laws.broken += _unreleased(self.config(SHORT, first))
            if plain and tolerance is not None:
                with laws.law("optimum"):
                    self._ends_at_the_optimum(self.config(iterations, None, optimum=True), tolerance)
            for kind in kinds:
                with laws.law(f"privacy with {kind.name} noise"):
                    self._is_accounted(kind)

    def run(self, config: Config, name: str, ranks: int = 1) -> Result:
        """Rank 0's result, in a file of this name."""

        def work(transport: Threads) -> Result | None:
            return execute(config, transport, self.folder / name, manner=Manner(resume=True))

        result = on_ranks(ranks, work)[0]
        assert result is not None
        return result

    def _options_survive(self, config: Config) -> None:
        text = to_toml(config)
        again = to_toml(experiment(read_table(self.folder / "check.toml", text)).configs[0])
        self.laws.expect(again == text, f"its options are not what they were after being written and read:\n{text}\n{again}")

    def _numbers(self, result: Result) -> None:
        arrays = [name for name, dims in result.dims.items() if dims[:1] == ("run",) and name not in ("run", *NO_NUMBER)]
        empty = [name for name in arrays if not name.startswith("restart/") and not np.isfinite(result[name]).all()]
        self.laws.expect(not empty, f"what it records must be finite numbers, but {', '.join(empty)} has others")

    def _differs(self, name: str) -> str:
        """How a file differs from that of one rank; "" if it does not."""
        return next(iter(compare(self.folder / "serial.h5", self.folder / name)), "")

    def _same_on_all_ranks(self, config: Config) -> None:
        for ranks in RANKS[1:]:
            self.run(config, f"{ranks}.h5", ranks)
            difference = self._differs(f"{ranks}.h5")
            self.laws.expect(not difference, f"{ranks} ranks give other bits than one: {difference}")

    def _same_after_a_restart(self, config: Config) -> None:
        for before, after in ((1, 2), (3, 1)):
            name = f"{before}-{after}.h5"
            stopped = self._stop(config, name, before)
            self.laws.expect(stopped, "a stop in the middle of it was not possible")
            self.run(config, name, after)
            difference = self._differs(name)
            self.laws.expect(
                not difference,
                f"a stop on {before} ranks and a restart on {after} give other bits: {difference}; what is not in the state "
                "does not survive",
            )

    def _stop(self, config: Config, name: str, ranks: int) -> bool:
        """Run it and stop it after a few iterations; whether that was possible."""

        def work(transport: Threads) -> None:
            execute(config, transport, self.folder / name, stopper=_EarlyStop())

        try:
            on_ranks(ranks, work)
        except Stopped:
            return True
        return False

    def _ends_at_the_optimum(self, config: Config, tolerance: float) -> None:
        distance = float(self.run(config, "optimum.h5")["distance_to_optimum"][:, -1].max())
        self.laws.expect(
            distance <= tolerance,
            f"without noise it is at a relative distance of {distance:.1e} from the centralised optimum after "
            f"{config.iterations} iterations, above {tolerance:g}; give more iterations, or optimum=False if it is not meant "
            "to end there",
        )

    def _is_accounted(self, kind: Kind) -> None:
        from dpadmm_mpi.audit import audit

        name = f"{kind.name}.h5"
        result = self.run(self.config(SHORT, kind, trajectory=True), name)
        everything = [(account, result[f"privacy/node_{account}"]) for account, _ in accounts(result)]
        self.laws.expect(bool(everything), f"a run with {kind.name} noise has no privacy account")
        for account, values in everything:
            self.laws.broken += [f"{kind.name}: the account {account} {what}" for what in _wrong_with(values)]
            proven = bool(result.attributes[f"privacy/{account}"]["proven"])
            self.laws.expect(
                bool(np.isfinite(values).all()) or not proven,
                f"{kind.name}: the account {account} is infinite, but says that it is proven",
            )
        if kind.auditable and everything and all(np.isfinite(values).all() for _, values in everything):
            findings = audit(self.folder / name, candidates=5).findings
            self.laws.broken += [f"{kind.name}: the audit says: {finding}" for finding in findings]


class _EarlyStop(Stopper):
    """Stops a run at its second meeting, as a signal would."""

    def __init__(self) -> None:
        super().__init__()
        self._meetings = 0
        self.hear = self._count

    def _count(self) -> int:
        self._meetings += 1
        return int(signal.SIGTERM) if self._meetings > 1 else 0


def _known(cls: type[Options], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of keys that a class has; of a choice, where it is one of them."""
    taken = [f for f in fields_of(cls) if f.name in values]
    return {f.name: values[f.name] for f in taken if not isinstance(f.role, Choice) or values[f.name] in f.role.registry}


def _kinds(cls: type[Method]) -> Iterator[Kind]:
    """The kinds of noise that a method takes and that can be set up without knowing more of them."""
    for name, perturbation in perturbations.items():
        if not perturbation.private or not issubclass(perturbation, cls.perturbations):
            continue
        if not issubclass(perturbation, DataStepPerturbation):
            if all(not f.required for f in fields_of(perturbation)):  # on gradients: the audit knows the package's own
                known = _known(perturbation, {"noise_std": NOISE_STD})
                yield Kind({"perturbation": name, **known}, auditable=is_inside(perturbation))
            continue
        for noise_name, noise in noises.items():
            if all(not f.required or f.name == noise.parameter for f in fields_of(noise)):
                privacy = {"perturbation": name, "noise": noise_name, noise.parameter: NOISE_SIZE}
                yield Kind(privacy, auditable=not lacking_for_audit(noise))


def _wrong_with(values: Array) -> list[str]:
    """What no account of any run can be: (iterations, nodes)."""
    found = []
    if np.isnan(values).any() or (values < 0.0).any():
        found.append("must be numbers from 0 to infinity")
    elif (np.diff(np.where(np.isinf(values), np.finfo(float).max, values), axis=0) < 0.0).any():
        found.append("falls from one iteration to the next, but what was released stays released")
    return found


class _NoLog:
    """Takes everything and writes nothing."""

    sought = True
    found: Optimum | None = None
    reached: Mapping[int, tuple[int, dict[str, Array]]] = {}

    def state_of(self, runs: range) -> dict[str, Array]:
        return {}

    def optimum(self, found: Optimum | None) -> None:
        return

    def row(self, runs: range, row: int, iteration: int, values: dict[str, Array]) -> None:
        return

    def consensus_row(self, runs: range, row: int, values: dict[str, Array]) -> None:
        pass

    def checkpoint(self, runs: range, iteration: int, state: dict[str, Array], seconds: float) -> None:
        return

    def end_of_runs(self, runs: range, final: dict[str, Array], state: dict[str, Array]) -> None:
        return


class _Watched:
    """The nodes of a rank; keeps what they declare as released, at every moment at which something is sent."""

    def __init__(self, nodes: Nodes[Any]) -> None:
        self._nodes = nodes
        self.allowed: list[tuple[int, dict[str, Array]]] = []  # iteration, and the released fields

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        state = self._nodes.work(state, t, runs, phase)
        fields = state._asdict()
        self.allowed.append((t, {name: by_place(fields[name]).copy() for name in self._nodes.released if name in fields}))
        return state


def _unreleased(config: Config) -> list[str]:
    """What has travelled along the edges without being declared as released."""

    def work(transport: Threads) -> list[str]:
        plan, dataset = make_plan(config)
        owner = assign_owners(plan.sizes, transport.size, plan.topology.has_hub, plan.is_central)
        mine = np.flatnonzero(owner[: plan.nodes] == transport.rank)
        problems = plan.problems(dataset.loader.shard(dataset.address(int(node))) for node in mine)
        simulation = Simulation(transport, plan, owner, problems)
        watched = _Watched(simulation.nodes)
        simulation.nodes = watched
        if transport.rank == 0:
            simulation.measures.test = dataset.test()
        simulation.simulate(_NoLog() if transport.rank == 0 else None, Silent(), None)
        found = []
        for message, (t, allowed) in zip(transport.sent, watched.allowed, strict=True):
            if not any(np.array_equal(message.values, values, equal_nan=True) for values in allowed.values()):
                found.append(
                    f"what rank {transport.rank} sends in iteration {t} is none of the released fields ({', '.join(allowed)})"
                )
        return found[:1]

    return [sentence for rank in on_ranks(RANKS[-1], work) for sentence in rank][:1]
