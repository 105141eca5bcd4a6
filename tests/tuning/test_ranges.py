"""Ranges: what can be written, what a point becomes in a configuration, and that every method's own space can be run."""

from typing import Any

import pytest
from support import WriteToml

from dpadmm_mpi import InputError
from dpadmm_mpi.config.ranges import Between, OneOf, Space, Whole, changed, read_range, settings
from dpadmm_mpi.methods import methods
from dpadmm_mpi.privacy.perturbations import Calibrated
from dpadmm_mpi.registry import is_inside
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.storage.experiments import load
from dpadmm_mpi.tuning.task import Request, Wish, make_task
from dpadmm_mpi.tuning.tuners import first_point, random_point

OWN = [name for name, cls in methods.items() if is_inside(cls)]
PRIVATE = [name for name in OWN if any(issubclass(kind, Calibrated) for kind in methods[name].perturbations)]
SMALL: dict[str, Any] = {"data": {"records": 1000, "features": 4}, "problem": {}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0.05:5:log", Between(0.05, 5.0, log=True)),
        ("1:8", Whole(1, 8)),
        ("1.0:8", Between(1.0, 8.0)),
        ("gamma,gaussian", OneOf(("gamma", "gaussian"))),
        ("3", OneOf((3,))),
        ([1, "x"], OneOf((1, "x"))),
        (0.5, OneOf((0.5,))),
    ],
)
def test_what_can_be_written(given: Any, expected: Any) -> None:
    assert read_range("key", given) == expected


@pytest.mark.parametrize(("given", "fix"), [("5:1", "below"), ("0:1:log", "above 0"), ("a:b", "LOW:HIGH"), ([], "empty")])
def test_a_range_without_sense_names_its_key(given: Any, fix: str) -> None:
    with pytest.raises(InputError, match=rf"^problem\.rho: .*{fix}"):
        read_range("problem.rho", given)


@pytest.mark.parametrize("each", [Between(0.2, 7.0), Between(0.2, 7.0, log=True), Whole(2, 9), Whole(2, 9, log=True)])
def test_shares_reach_both_ends_and_nothing_beyond(each: Between | Whole) -> None:
    values = [each.at(k / 2000) for k in range(2000)]
    assert min(values) == pytest.approx(each.low, rel=1e-9)
    assert max(values) == pytest.approx(each.high, rel=2e-3)
    if isinstance(each, Whole):
        assert set(values) == set(range(2, 10))


def test_what_a_point_says() -> None:
    """Parts of a schedule are put together, ranges in units of other keys are multiplied, keys without meaning left out."""
    space: Space = {
        "algorithm.eta.limit": Between(1.0, 9.0, times="algorithm.eta.first"),
        "algorithm.eta.first": Between(0.1, 9.0, times="problem.C/records"),
        "privacy.noise": OneOf(("gamma", "gaussian")),
        "privacy.alpha.ratio": Between(0.5, 2.0, when=("privacy.noise", "gamma")),
        "privacy.noise_std.ratio": Between(0.5, 2.0, when=("privacy.noise", "gaussian")),
    }
    point = {"algorithm.eta.limit": 4.0, "algorithm.eta.first": 0.5, "privacy.noise": "gaussian", "privacy.alpha.ratio": 1.5,
             "privacy.noise_std.ratio": 0.75}  # fmt: skip
    assert dict(settings(space, point, {"problem": {"C": 30.0}, "records": 10})) == {
        "algorithm.eta": {"limit": 6.0, "first": 1.5},
        "privacy.noise": "gaussian",
        "privacy.noise_std": {"ratio": 0.75},
    }


def test_a_schedule_as_a_whole_takes_the_place_of_its_parts() -> None:
    made = changed(methods["mr-admm"].tuned(), {"algorithm.eta": [0.5]}, "")
    assert not any(key.startswith("algorithm.eta.") for key in made)
    point = first_point(made)
    table = {"problem": {"C": 10.0}, "records": 10, "algorithm": {"eta": 7.0}}
    assert dict(settings(made, point, table))["algorithm.gamma"] == 0.5 * point["algorithm.gamma"]


@pytest.mark.parametrize("name", OWN)
def test_every_space_makes_configurations_of_its_method(name: str) -> None:
    """A law over the registry: whatever is drawn can be read, and every key of the space arrives in the configuration."""
    space = methods[name].tuned()
    single = methods[name].tuned.__qualname__.startswith("SingleSolve")  # one data step, however many iterations
    assert single == ("iterations" not in space)
    request, table = Request({**SMALL, "algorithm": {"method": name}}), {"problem": {"C": 1.0}, "records": 200}
    method = make_task(request, Wish(epsilon=1.0)).methods[0] if name in PRIVATE else None
    for number in range(6):
        point = random_point(space, generator(1, Purpose.TRIALS, iteration=number)) if number else first_point(space)
        chosen = settings(space, point, table) if method is None else method.point_settings(point)
        config = request.config([*(() if method is None else method.settings), *chosen])
        assert single or config.iterations == point["iterations"]
        parts = [key.split(".") for key in space if space[key].when is None]
        assert all(".".join(part[:2]) in dict(chosen) for part in parts)


def test_a_table_for_tune_is_no_part_of_a_run(write_toml: WriteToml) -> None:
    """[tune.space] may stand in a configuration that is run; a misspelt key in it is an error all the same."""
    with_table = load({**SMALL, "tune": {"space": {"problem": {"rho": "1:2"}, "iterations": "1:3"}}}).configs[0]
    assert with_table == load(SMALL).configs[0]
    with pytest.raises(InputError, match=r"^tune\.spaces: unknown key"):
        load({**SMALL, "tune": {"spaces": {}}})
    with pytest.raises(InputError, match=r"^tune\.space\.iterations: .*below"):
        load({**SMALL, "tune": {"space": {"iterations": "3:1"}}})
    path = write_toml({**SMALL, "tune": {"space": {"problem.rho": "1.0:2.0"}}})
    space = make_task(Request(path), Wish(epsilon=1.0, space={"iterations": "1:3"})).methods[0].space
    assert (space["problem.rho"], space["iterations"]) == (Between(1.0, 2.0), Whole(1, 3))
