"""Numbers of a curve, by hand."""

import numpy as np
import pytest
from reproduce.made_up import ends, runs

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reproduce.quantities import QUANTITIES, values

#            0    1    2    3    4    5    6    7
WAVY = [9.0, 5.0, 6.0, 4.0, 3.0, 3.5, 4.5, 3.6]


def of(name: str, *curves: list[float], level: float = 0.0) -> list[float]:
    return list(QUANTITIES[name](runs(*curves), "loss", level))


def test_by_hand() -> None:
    falling = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    assert of("end", WAVY, falling) == [3.6, 1.0]
    assert of("rises", WAVY, falling) == pytest.approx([3 / 7, 0.0])
    assert of("even rises", WAVY, falling) == pytest.approx([2 / 3, 0.0])  # at 2 and 6, not at 4
    assert of("compensated", WAVY, falling) == pytest.approx([1 / 2, 1.0])  # 4 < 5, but 3.6 > 3.5
    assert of("oscillation", WAVY, falling) == pytest.approx([(1.5 + 0.75 + 0.95) / 3, 0.0])
    assert of("oscillation", WAVY, level=4) == pytest.approx([(0.75 + 0.95) / 2])
    assert of("record passes", WAVY) == [4.0]
    assert of("seconds", WAVY) == [16.0]


def test_an_update_is_how_far_the_nodes_move() -> None:
    """Two nodes in the plane: steps of 5 and 1, then of 3 and 1, then none; the level leaves out the iterations before it."""
    first, second = np.array([[0, 0], [3, 4], [3, 1], [3, 1]]), np.array([[0, 0], [1, 0], [2, 0], [2, 0]])
    result = runs([4.0, 3.0, 2.0, 1.0])
    result.arrays["trajectory"] = np.stack([first, second], axis=1)[None].astype(float)
    assert QUANTITIES["update"](result, "loss", 0.0).tolist() == pytest.approx([(3 + 2 + 0) / 3])
    assert QUANTITIES["update"](result, "loss", 2.0).tolist() == pytest.approx([(2 + 0) / 2])


def test_steps_are_counted_to_the_last_crossing() -> None:
    assert of("steps", WAVY, level=4.2) == [7.0]
    assert of("steps", WAVY, level=10.0) == [0.0]
    assert of("steps", WAVY, level=1.0) == [8.0]  # never: one past the last
    assert of("odd steps", WAVY, level=4.2) == [3.0]


def test_the_spread_is_the_distance_from_the_median() -> None:
    assert list(values({"a": ends(1.0, 2.0, 5.0)}, "a", "loss", "deviation")) == [1.0, 0.0, 3.0]


def test_a_star_gathers_variants_and_an_account_has_no_runs() -> None:
    results = {"seed=8, rho=1": ends(1.0), "seed=9, rho=1": ends(2.0), "seed=8, rho=10": ends(3.0)}
    assert list(values(results, "*, rho=1", "loss")) == [1.0, 2.0]
    assert np.ndim(values(results, "seed=8, rho=1", "privacy/bound")) == 0
    with pytest.raises(InputError, match="fits the name of no variant"):
        values(results, "*, rho=7", "loss")


def test_virtual_seconds_and_bytes_until_a_level() -> None:
    """When the value stays below it for good; where it never does, a round after the last."""
    result = runs(WAVY, [9.0] * 8)
    result.arrays["network/seconds"] = np.array([[0.0, 1, 3, 6, 10, 15, 21, 28], [0.0, 2, 4, 6, 8, 10, 12, 14]])
    result.arrays["network/bytes"] = 100.0 * result["network/seconds"]
    assert QUANTITIES["virtual seconds"](result, "loss", 4.2).tolist() == [28.0, 16.0]
    assert QUANTITIES["bytes"](result, "loss", 5.5).tolist() == [600.0, 1600.0]
