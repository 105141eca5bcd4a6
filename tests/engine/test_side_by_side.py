"""Runs that go side by side: which ones do, and that each is the run that it would be alone."""

import numpy as np
import pytest
from support import RESTARTS, MakeConfig, Raw, planned, result_of

from dpadmm_mpi.methods import base as plan
from dpadmm_mpi.methods.base import SIDE_BY_SIDE


def groups(raw: Raw) -> list[range]:
    return planned(raw)[0].groups_of_runs


@pytest.mark.parametrize("runs", [1, 2, SIDE_BY_SIDE, SIDE_BY_SIDE + 1, 3 * SIDE_BY_SIDE])
def test_groups_are_all_runs_in_order(config: MakeConfig, runs: int) -> None:
    found = groups(config(runs=runs))
    assert [run for group in found for run in group] == list(range(runs))
    assert max(map(len, found)) == min(runs, SIDE_BY_SIDE)


def test_large_states_and_large_shards_make_smaller_groups(config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six nodes with four features; the largest of the uneven shards has more than 40 of the 200 records."""
    raw = config(runs=6)
    monkeypatch.setattr(plan, "STATE_NUMBERS", 3 * 6 * 4)
    assert list(map(len, groups(raw))) == [3, 3]
    monkeypatch.setattr(plan, "RECORD_NUMBERS", 40)
    assert list(map(len, groups(raw))) == [1] * 6


@pytest.mark.parametrize("name", RESTARTS)
def test_a_run_is_the_same_in_any_company(config: MakeConfig, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Alone, in pairs and all together: its own noise, its own start, the same numbers but for round-off."""
    raw = RESTARTS[name](config) | {"runs": 5, "iterations": 6}
    together = result_of(raw)
    assert len({values.tobytes() for values in together["final/primal"]}) == 5
    for size in (1, 2):
        monkeypatch.setattr(plan, "SIDE_BY_SIDE", size)
        apart = result_of(raw)
        duals = ("final/dual",) if "final/dual" in together else ()
        of_nodes = "node_loss" if "node_loss" in together else "node_loss_mean"  # or record.nodes is false
        for measure in ("loss", "objective", "consensus_error", "test_error", of_nodes, "final/primal", *duals):
            np.testing.assert_allclose(apart[measure], together[measure], rtol=1e-8, atol=1e-9)
