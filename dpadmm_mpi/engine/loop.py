"""One configuration on all ranks: plan, records, the loop, the log."""

import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpadmm_mpi.data.dataset import Dataset, Loader, same_records, shards_of
from dpadmm_mpi.engine.row_gather import Observer
from dpadmm_mpi.engine.simulation import Simulation
from dpadmm_mpi.engine.stopping import Meetings, Stopper
from dpadmm_mpi.errors import DpadmmError, InputError
from dpadmm_mpi.methods.base import Config, Plan, make_plan
from dpadmm_mpi.parallel.collective import agree, on_root
from dpadmm_mpi.parallel.owners import assign_owners, owners_of_records
from dpadmm_mpi.parallel.transport import Transport
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.registry import blaming
from dpadmm_mpi.storage.run_status import noting_failure
from dpadmm_mpi.types import Array, Ints

if TYPE_CHECKING:
    from dpadmm_mpi.storage.recorder import Recorder
    from dpadmm_mpi.storage.result import Result


class Silent:
    """Watches nothing."""

    def begin(self, plan: Plan[Any]) -> None:
        pass

    def row(self, runs: range, iteration: int, values: Mapping[str, Array]) -> None:
        pass

    def end(self, seconds: float) -> None:
        pass


@dataclass(frozen=True)
class Manner:
    """How configurations are run, all of a job alike."""

    force: bool = False  # replace what exists
    resume: bool = False  # go on from an earlier part, if there is one
    threads: int = 1  # of BLAS
    brief: bool = False  # of the result, keep what a table needs


class Basis(NamedTuple):
    """What the problems of all nodes, and where they are, depend on."""

    dataset: Dataset[Any]
    owner: Ints
    terms: tuple[Any, ...] | None  # None: nothing is known

    def is_like(self, other: "Basis") -> bool:
        known = self.terms is not None and self.terms == other.terms and np.array_equal(self.owner, other.owner)
        return known and same_records(self.dataset, other.dataset)


class HandedOn:
    """What a configuration leaves to the next one of the job, which often has the same records."""

    def __init__(self) -> None:
        self.basis: Basis | None = None  # on rank 0
        self.problems: Sequence[NodeProblem] = ()  # of this rank's nodes

    def put(self, basis: Basis | None, problems: Sequence[NodeProblem]) -> None:
        self.basis, self.problems = basis, problems


def execute(
    config: Config,
    transport: Transport,
    output: Path | None = None,
    observer: Observer | None = None,
    *,
    manner: Manner = Manner(),
    stopper: Stopper | None = None,
    holders: Ints | None = None,
    handed_on: HandedOn | None = None,
) -> "Result | None":
    """Run one configuration on all ranks; rank 0 returns the result, the others None.

    `stopper` may end the run early, by Stopped on all ranks. `holders` are the ranks that have the records of the nodes
    already, and so host them; without, nodes are spread evenly. `handed_on` is what the configuration before has left on the
    same ranks.
    """
    from threadpoolctl import threadpool_limits

    begin = time.perf_counter()
    observer = observer or Silent()
    handed_on = handed_on or HandedOn()
    basis: Basis | None = None  # on rank 0
    output, resume = transport.broadcast((output, manner.resume))
    compare_extensions(transport, config)
    if output is not None and resume and on_root(transport, lambda: _is_finished(output, config)):
        return _load(output) if transport.rank == 0 else None

    def settle() -> tuple[Plan[Any], Loader[Any], Ints, bool]:
        nonlocal basis
        plan, dataset = make_plan(config)
        hub = plan.topology.has_hub
        if holders is None or (plan.is_central and transport.size == 1):
            owner = assign_owners(plan.sizes, transport.size, hub, plan.is_central)
        elif plan.is_central:
            raise InputError(f"algorithm.method: {config.method_name} needs all records in one place; give them all to rank 0")
        else:
            owner = owners_of_records(holders, transport.size, hub)
        basis = Basis(dataset, owner, plan.problem_terms)
        again = handed_on.basis is not None and basis.is_like(handed_on.basis)
        if again:
            basis = handed_on.basis
        return plan, dataset.loader, owner, again

    def address(node: int) -> Any:
        assert basis is not None  # asked on rank 0 only
        return basis.dataset.address(node)

    with threadpool_limits(limits=manner.threads):
        plan, loader, owner, again = on_root(transport, settle)
        if not again:
            handed_on.put(None, ())  # their memory is free before other records come
            addresses = transport.deal(owner[: plan.nodes], address)
            handed_on.put(basis, agree(transport, lambda: _load_problems(plan, loader, addresses)))
            addresses = []  # of a million nodes they take a hundred megabytes
        dataset, problems = None if basis is None else basis.dataset, handed_on.problems
        hosts = transport.gather_objects(platform.node())
        simulation = agree(transport, lambda: Simulation(transport, plan, owner, problems))
        agree(transport, simulation.refuse_unreleased)
        recorder = agree(transport, lambda: _open_log(output, simulation, dataset, hosts, manner.force, resume=resume))
        meetings = None if output is None else Meetings(transport, config.record.checkpoint, stopper)
        if recorder is None or dataset is None:
            with noting_failure(output), blaming():
                simulation.simulate(None, Silent(), meetings)
            return None
        try:
            with noting_failure(output), blaming():
                observer.begin(plan)
                simulation.measures.test = dataset.test()
                simulation.measures.classes = len(plan.target.classes)
                simulation.simulate(recorder, observer, meetings)
                recorder.finish(time.perf_counter() - begin)
            result = recorder.result(manner.brief)
        except BaseException:
            with suppress(DpadmmError):  # what has gone wrong first is what is said
                recorder.close()
            raise
        finally:
            observer.end(time.perf_counter() - begin)
        recorder.close()
        return result


def compare_extensions(transport: Transport, config: Config) -> None:
    """Every rank must have loaded the very same files."""
    mine = {extension.path: extension.sha256 for extension in config.extensions}
    everyone = transport.gather_objects((platform.node(), mine))
    for rank, (host, theirs) in enumerate(everyone):
        if theirs != everyone[0][1]:
            path = next(iter(sorted(theirs.items() ^ everyone[0][1].items())))[0]
            error = InputError(
                f"extensions: rank {rank} on {host} has another {path} than rank 0 on {everyone[0][0]}; make all hosts see the "
                "same files"
            )
            error.everywhere = True
            raise error


def _is_finished(output: Path, config: Config) -> bool:
    from dpadmm_mpi.storage.resume import is_finished

    return is_finished(output, config)


def _load(output: Path) -> "Result":
    from dpadmm_mpi.storage.result import load

    return load(output)


def _load_problems(plan: Plan[Any], loader: Loader[Any], addresses: list[Any]) -> Sequence[NodeProblem]:
    """The problems of this rank's nodes; the rank makes or reads its own records, and no others."""
    return plan.problems(shards_of(loader, addresses))


def _open_log(
    output: Path | None,
    simulation: Simulation[Any],
    dataset: Dataset[Any] | None,
    hosts: list[str],
    force: bool,
    *,
    resume: bool,
) -> "Recorder | None":
    """The recorder on rank 0, which has the data set; None elsewhere."""
    if dataset is None:
        return None
    from dpadmm_mpi.storage import recorder
    from dpadmm_mpi.storage.resume import Opening, open_log

    plan, shapes, data = simulation.plan, simulation.state_shapes(), dataset

    def describe(record: "Recorder") -> None:
        record.describe(data, simulation.owner, hosts, simulation.transport.library)

    if output is None:
        record = recorder.create(plan, shapes, None)
        describe(record)
        return record
    return open_log(output, Opening(plan, data, shapes, simulation.final, describe), force=force, resume=resume)
