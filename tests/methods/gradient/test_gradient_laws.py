"""The laws of every method on the single solves: bits and restarts on several ranks, released fields, accounts, audit."""

import pytest

from dpadmm_mpi.methods import methods
from dpadmm_mpi.testing import check_method


@pytest.mark.parametrize("name", ["one-shot", "central-objective"])
def test_single_solves(name: str) -> None:
    """The floor has one place: two of three ranks have none, before and after a restart. It ends at the optimum at once."""
    check_method(methods[name], iterations=2, tolerance=1e-9, optimum=name == "central-objective")
