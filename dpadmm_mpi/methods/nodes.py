"""What the engine asks of the nodes of one rank: phases of work, one exchange of a named field, and receiving."""

from collections import namedtuple
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.problems.newton import TOLERANCE
from dpadmm_mpi.rng import Purpose, generators
from dpadmm_mpi.types import Array, Ints

DIVERGED = 1e100  # squares of it are still numbers


class State(Protocol):
    """What places carry from one iteration to the next: a named tuple of arrays."""

    @property
    def _fields(self) -> tuple[str, ...]: ...

    def _asdict(self) -> dict[str, Any]: ...


S = TypeVar("S", bound=State)


def replaced(state: S, fields: Mapping[str, Array]) -> S:
    """The state with other values of some fields."""
    changed: S = cast(Any, state)._replace(**fields)
    return changed


def extended(state: S, fields: Mapping[str, Array]) -> S:
    """The state with further fields."""
    return cast(S, _extended_type(type(state), tuple(fields))(*cast(Any, state), *fields.values())) if fields else state


@cache
def _extended_type(kind: type[Any], fields: tuple[str, ...]) -> type[Any]:
    return namedtuple(kind.__name__, (*kind._fields, *fields))


class Phase(NamedTuple):
    """One exchange: the field of the state that leaves the places, and the channel of the network that it goes along.

    Along "edges" a place sends the same to all neighbours and receives a sum; along "arcs" it sends a vector of its own to
    each of them and receives each by itself: the field is then one of `arc_fields`.
    """

    field: str
    channel: str
    weighted: bool = False  # what comes in is the sum with Metropolis weights, not the plain one


class Nodes(Protocol[S]):
    """The places of one rank, in some runs that go side by side. State goes in, state comes out.

    Every field is (runs, places of this rank, width), but for `hub_fields`, which have a place where the hub is, and none
    elsewhere, and `arc_fields`, which have one for each neighbour of each of these places, in the order of `Topology.arcs`.
    What is not in the state does not survive a restart.
    """

    @property
    def released(self) -> tuple[str, ...]:
        """Fields that travel between places; nothing else ever does."""
        ...

    @property
    def hub_fields(self) -> tuple[str, ...]: ...

    @property
    def arc_fields(self) -> tuple[str, ...]: ...

    def initial(self, runs: range) -> S: ...

    def phases(self, t: int) -> Iterable[Phase]:
        """The exchanges of iteration t, the same on every rank; at t = 0 those that set up the first one."""
        ...

    def work(self, state: S, t: int, runs: range, phase: int) -> S:
        """What the places do before the exchange of a phase; nothing at t = 0."""
        ...

    def receive(self, state: S, t: int, runs: range, phase: int, incoming: Array) -> S:
        """The sum of what each place received, in ascending order of the senders, has come in; or what each arc brought."""
        ...

    def recorded(self, state: S) -> S:
        """The state after a row of the record was made of it."""
        ...


def starting_points(init: str, seed: int, runs: range, places: Ints, features: int) -> Array:
    """(runs, places, features): zero, or standard normal whatever the records."""
    points = np.zeros((len(runs), len(places), features))
    if init == "random":
        for point, rng in zip(points.reshape(-1, features), generators(seed, Purpose.INIT, runs, places, 0), strict=True):
            rng.standard_normal(out=point)
    return points


def refuse_inexact(residuals: Array, runs: range, nodes: Ints, t: int, tolerance: float | None = None) -> None:
    """Residuals are (runs, nodes), those of solves with a tolerance over it in units of TOLERANCE.

    The privacy proofs are about the exact argmin, or about one to the tolerance (docs/mathematics.md, section 6).
    """
    failed = np.argwhere(~(residuals <= TOLERANCE))
    if len(failed):
        r, k = failed[0]
        where, found = f"run {runs[r] + 1}, node {nodes[k]}, iteration {t}", float(residuals[r, k])
        if tolerance is not None:
            raise RunError(
                f"{where}: the local solve stopped at a gradient of norm {found * tolerance / TOLERANCE:.1e}, above "
                f"algorithm.tolerance = {tolerance:g}; raise it"
            )
        raise RunError(
            f"{where}: the local solve stopped at a relative KKT residual of {found:.1e}, above {TOLERANCE:.0e}; scale the "
            "features or raise problem.rho or algorithm.eta"
        )
