"""The checks for other people's classes: sound classes pass, and each law says in a sentence what breaks it."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import dpadmm_mpi as dp
from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods import Admm, Decentralised, Node, State, methods
from dpadmm_mpi.methods.star.method import PSAdmm
from dpadmm_mpi.networks.topology import Channel
from dpadmm_mpi.privacy.noises import Gamma, noises
from dpadmm_mpi.privacy.perturbations import NoPerturbation, Objective
from dpadmm_mpi.problems.losses import ScalarSlope
from dpadmm_mpi.testing import Threads, check_loss, check_method, check_source, on_ranks
from dpadmm_mpi.types import Array


def broken_laws(check: Any, *arguments: Any, **options: Any) -> list[str]:
    """The sentences with which a check ends."""
    with pytest.raises(AssertionError) as caught:
        check(*arguments, **options)
    return str(caught.value).split("\n")[1:]


class ObjectiveOnly(Admm):
    """ADMM with noise in the objective alone: the other places that noise may enter are not what these tests are about."""

    perturbations: ClassVar[tuple[type[dp.privacy.Perturbation], ...]] = (NoPerturbation, Objective)


# Sound ones


@pytest.mark.parametrize("cls", [methods["mr-admm"], PSAdmm, methods["dp-acc-admm"]])
def test_methods_of_the_package(cls: type[dp.methods.Method]) -> None:
    check_method(cls)


@pytest.mark.parametrize(
    "loss",
    [dp.problems.Logistic(), dp.problems.HuberHinge(width=0.2), dp.problems.HuberRegression(), dp.problems.LeastSquares()],
)
def test_losses_of_the_package(loss: dp.problems.Loss) -> None:
    check_loss(loss)


def test_a_source_of_the_package(tmp_path: Path, rng: np.random.Generator) -> None:
    X, y = rng.uniform(-2.0, 2.0, (50, 3)), np.where(rng.random(50) < 0.5, 3.0, 7.0)
    np.savez(tmp_path / "records.npz", X=X, y=y)
    check_source(dp.data.sources["npz"](path=str(tmp_path / "records.npz"), positive=7), X, y)


TYPED_IN = '''
import dpadmm_mpi as dp
from dpadmm_mpi.methods.star.method import StarAdmm


@dp.method("typed-in")
class TypedIn(StarAdmm):
    """No file holds it."""

    weight: float = 0.5


@dp.loss("typed-in")
class TypedInLoss(dp.problems.Logistic):
    """Nor this one."""


dp.testing.check_method(TypedIn, weight=0.25)
dp.testing.check_loss(TypedInLoss())
'''


def test_classes_that_were_typed_in() -> None:
    """As in a notebook: the class has no file that could be loaded again."""
    process = subprocess.run([sys.executable, "-"], input=TYPED_IN, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")


# Methods that break a law


def test_a_method_that_remembers_outside_its_state() -> None:
    memory: dict[int, Array] = {}

    @dp.method("forgetful")
    class Forgetful(ObjectiveOnly):
        """Keeps a number that no checkpoint has."""

        def dual_step(self, node: Node, state: State, t: int) -> State:
            before = memory.get(t - 1)
            memory[t] = state.primal.copy()
            state = super().dual_step(node, state, t)
            if before is None or before.shape != state.primal.shape:
                return state
            return state._replace(dual=state.dual + 1e-3 * (state.primal - before))

    words = "\n".join(broken_laws(check_method, Forgetful, optimum=False))
    assert "give other bits" in words
    assert "what is not in the state does not survive" in words


def test_a_method_that_depends_on_the_rank() -> None:
    @dp.method("local-mean")
    class LocalMean(ObjectiveOnly):
        """Takes the mean over the nodes that happen to be on its rank."""

        def dual_step(self, node: Node, state: State, t: int) -> State:
            state = super().dual_step(node, state, t)
            return state._replace(dual=state.dual + 1e-3 * state.primal.mean(axis=1, keepdims=True))

    words = "\n".join(broken_laws(check_method, LocalMean))
    assert "2 ranks give other bits than one" in words
    assert "3 ranks give other bits than one" in words
    assert "from the centralised optimum after 150 iterations, above 0.0001" in words


def test_a_method_that_gives_its_records_away() -> None:
    """Its steps use the records without noise, and it says that the accounts of ADMM hold."""

    @dp.method("leaking")
    class Leaking(ObjectiveOnly):
        """Releases the exact argmin, whatever the noise."""

        def penalty(self, node: Node, state: State, t: int, noise: Array) -> tuple[Array, Array]:
            return super().penalty(node, state, t, 1e-3 * noise)

        def accounts(self, releases: dp.privacy.Releases, delta: float) -> Sequence[dp.privacy.Account]:
            return dp.privacy.accounts_of(releases, delta)

    found = broken_laws(check_method, Leaking, optimum=False)
    assert any(law.startswith("objective gamma: the audit says: ") for law in found)


def test_a_noise_from_outside_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half as large as it says: the laws of a method try every registered noise that an audit can examine."""
    monkeypatch.setattr(noises, "_classes", dict(noises.items()))

    @dp.noise("quiet")
    class Quiet(Gamma):
        """Gamma noise of half the size, with the account of the whole."""

        def scaled(self, unit: Array, parameter: Array) -> Array:
            return 0.5 * super().scaled(unit, parameter)

        def pure_loss(self, shift: Array, parameter: Array) -> Array:
            return super().pure_loss(shift, parameter)

        def random_loss(self, features: int, subspace: int) -> Any:
            return super().random_loss(features, subspace)

    @dp.noise("unknown")
    class Unknown(Quiet):
        """The same, with a key that nobody sets, so that nothing can be tried."""

        size_of_it: float  # type: ignore[misc]  # keywords only, as all options

    @dp.method("plain")
    class Plain(ObjectiveOnly):
        """ADMM as it is."""

    found = broken_laws(check_method, Plain, optimum=False)
    assert found
    assert all(law.startswith("objective quiet: the audit says: ") for law in found)


def test_a_method_without_accounts_is_sound() -> None:
    @dp.method("unaccounted")
    class Unaccounted(ObjectiveOnly):
        """Nobody has accounted for it, and it says so."""

        def dual_step(self, node: Node, state: State, t: int) -> State:
            return super().dual_step(node, state, t)

    check_method(Unaccounted)


def test_a_method_with_accounts_that_cannot_be() -> None:
    @dp.method("boasting")
    class Boasting(ObjectiveOnly):
        """Claims a proof of infinity, and losses that fall."""

        def accounts(self, releases: dp.privacy.Releases, delta: float) -> Sequence[dp.privacy.Account]:
            shape = (releases.iterations + 1, releases.nodes)
            falling = np.broadcast_to(np.linspace(2.0, 1.0, shape[0])[:, None], shape)
            infinite = np.full(shape, np.inf)
            return [
                dp.privacy.Account("bound", "bound", falling, "none", True, "none"),
                dp.privacy.Account("tight", "tight", infinite, "none", True, "none"),
            ]

    words = "\n".join(broken_laws(check_method, Boasting, optimum=False))
    assert "the account bound falls from one iteration to the next" in words
    assert "the account tight is infinite, but says that it is proven" in words


def test_a_method_that_sends_something_else_later() -> None:
    """What the engine finds in the first iterations, the check finds in all of them."""
    from dpadmm_mpi.methods.decentralised.algorithm import NetworkNodes
    from dpadmm_mpi.methods.decentralised.plan import NetworkPlan
    from dpadmm_mpi.methods.nodes import Phase

    class LateNodes(NetworkNodes):
        def phases(self, t: int) -> tuple[Phase, ...]:
            return (Phase("dual" if t == 6 else "primal", "edges"),)

    class LatePlan(NetworkPlan):
        def make_nodes(self, places: Any, problems: Any) -> NetworkNodes:
            return LateNodes(self.settings, places, problems)

    @dp.method("late")
    class Late(ObjectiveOnly):
        """Sends its dual variable in the sixth iteration."""

        def plan(self, config: Any, topology: Any, dataset: Any) -> Any:
            made = super().plan(config, topology, dataset)
            return LatePlan(**{name: getattr(made, name) for name in made.__dataclass_fields__})

    found = broken_laws(check_method, Late, optimum=False)
    assert "what rank 0 sends in iteration 6 is none of the released fields (primal)" in found


def test_options_and_words() -> None:
    class Nameless(Admm):
        """Not registered."""

    assert broken_laws(check_method, Nameless) == ['it is not registered: put @dp.method("NAME") above the class']

    @dp.method("demanding")
    class Demanding(Decentralised):
        """Has an option without a default."""

        weight: float  # type: ignore[misc]  # keywords only: the order does not matter

    assert broken_laws(check_method, Demanding) == ["every option needs a default, but weight has none"]


def test_a_method_that_raises() -> None:
    @dp.method("raising")
    class Raising(Admm):
        """Cannot be run."""

        def dual_step(self, node: Node, state: State, t: int) -> State:
            raise ValueError("no such thing")

    (sentence,) = broken_laws(check_method, Raising)
    assert sentence.startswith("it runs: ")
    assert "ValueError: no such thing" in sentence


# Losses that break a law


def test_a_loss_with_wrong_constants() -> None:
    @dp.loss("optimistic")
    class Optimistic(dp.problems.Logistic):
        """Flatter than it is, it says."""

        curvature_bound: ClassVar[float] = 0.2

    found = broken_laws(check_loss, Optimistic())
    assert found[0].startswith("curvature_bound = 0.2, but second is 0.25 at z = 0")


def test_a_loss_that_is_not_vectorised() -> None:
    @dp.loss("flat")
    class Flat(dp.problems.Logistic):
        """Forgets the shape of what it gets."""

        def second(self, z: Array) -> Array:
            return super().second(z).ravel()

    found = broken_laws(check_loss, Flat())
    assert "second(z) has the shape (15,) for z of shape (3, 5); it must be the same" in found


def test_a_loss_that_changes_its_argument() -> None:
    @dp.loss("careless")
    class Careless(dp.problems.Logistic):
        """Works in place."""

        def value(self, z: Array) -> Array:
            z *= 1.0 + 1e-3
            return super().value(z)

    assert "value(z) must not change z" in broken_laws(check_loss, Careless())


def test_a_loss_with_another_scalar_form() -> None:
    def slope(margin: float, parameters: Array) -> float:
        return -0.5

    @dp.loss("two-faced")
    class TwoFaced(dp.problems.Logistic):
        """Compiled, it is something else."""

        scalar_slope: ClassVar[ScalarSlope | None] = staticmethod(slope)

    found = broken_laws(check_loss, TwoFaced())
    assert any(law.startswith("scalar_slope is off by 5.0e-01 from first") for law in found)


# Sources that break a law


def write(folder: Path, rng: np.random.Generator) -> tuple[Path, Array, Array]:
    X, y = rng.uniform(-0.4, 0.4, (40, 3)), np.where(rng.random(40) < 0.5, 1.0, -1.0)
    np.savez(folder / "records.npz", X=X, y=y)
    return folder / "records.npz", X, y


def test_a_source_that_changes_the_records(tmp_path: Path, rng: np.random.Generator) -> None:
    @dp.source("rounded")
    class Rounded(dp.data.FileSource):
        """Loses digits."""

        def read_file(self, path: Path, features: int | None) -> dp.data.Records:
            with np.load(path) as arrays:
                return dp.data.Records(y=arrays["y"], X=arrays["X"].round(3))

    path, X, y = write(tmp_path, rng)
    found = broken_laws(check_source, Rounded(path=str(path)), X, y)
    assert found[0].startswith("the features of record 0 are")


def test_a_source_that_is_never_the_same(tmp_path: Path, rng: np.random.Generator) -> None:
    @dp.source("restless")
    class Restless(dp.data.FileSource):
        """Is prepared anew each time."""

        def identity(self, files: dict[str, Path]) -> list[Any]:
            return [time.time_ns()]

        def read_file(self, path: Path, features: int | None) -> dp.data.Records:
            with np.load(path) as arrays:
                return dp.data.Records(y=arrays["y"], X=arrays["X"])

    path, X, y = write(tmp_path, rng)
    found = broken_laws(check_source, Restless(path=str(path)), X, y)
    assert "the second time they must come from the cache, and are prepared again" in found


# Ranks as threads


def test_a_rank_that_fails_stops_the_others() -> None:
    def work(transport: Threads) -> None:
        if transport.rank == 1:
            raise ValueError("no")
        transport.broadcast(None)

    with pytest.raises(ValueError, match="no"):
        on_ranks(3, work)


def test_ranks_that_wait_for_each_other_give_up() -> None:
    def work(transport: Threads) -> None:
        if transport.rank > 0:
            transport.gather_objects(1)

    with pytest.raises(RunError, match=r"a rank has waited 0\.2 seconds for the others"):
        on_ranks(3, work, patience=0.2)


def test_groups_of_ranks() -> None:
    def work(transport: Threads) -> tuple[int, int, list[int]]:
        group = transport.split(transport.rank % 2)
        return group.rank, group.size, group.gather_objects(transport.rank)

    assert on_ranks(4, work) == [(0, 2, [0, 2]), (0, 2, [1, 3]), (1, 2, [0, 2]), (1, 2, [1, 3])]


def test_messages_and_gatherings() -> None:
    """A ring of five places on two ranks: every place hears its two neighbours, and rank 0 gets the rows in order."""
    ring, owner = Channel(tuple(tuple(sorted(((i - 1) % 5, (i + 1) % 5))) for i in range(5))), np.array([0, 1, 0, 1, 1])

    def work(transport: Threads) -> Array | None:
        mine = np.flatnonzero(owner == transport.rank)
        links = transport.links(ring, owner, 1)
        links.start(mine[:, None].astype(float))
        assert np.array_equal(links.finish()[:, 0], links.known)
        assert transport.deal(owner, lambda place: 10 * place) == (10 * mine).tolist()
        return transport.start_gather(mine[:, None].astype(float), owner).finish()

    gathered, nothing = on_ranks(2, work)
    assert nothing is None
    assert gathered is not None
    assert np.array_equal(gathered[:, 0], np.arange(5))
