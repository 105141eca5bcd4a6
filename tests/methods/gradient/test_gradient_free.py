"""What is free, of the gradient methods: averages and consensus come from what was sent, and who is further away hears more."""

import numpy as np
import pytest
from oracles import gradient as oracle
from support import NEIGHBOURS, MakeConfig, baseline, result_of


@pytest.mark.parametrize("method", ["dp-dgd", "gossip", "dp-gradient-tracking"])
def test_averages_and_consensus_of_what_was_sent(config: MakeConfig, method: str) -> None:
    """The mean of psi(4), psi(5), psi(6); then four of Chebyshev's steps; the trajectory and the account stay."""
    raw = baseline(config, method, {"step": 0.2}, {"noise_std": 0.3})
    plain = result_of(raw)
    free = result_of(raw | {"release": {"average": "half", "consensus": 4}})
    np.testing.assert_array_equal(free["trajectory"], plain["trajectory"])
    np.testing.assert_array_equal(free["privacy/node_epsilon_sound"], plain["privacy/node_epsilon_sound"])
    mean = plain["trajectory"][0, 4:].mean(axis=0)
    np.testing.assert_allclose(free["final/averaged"][0], mean, atol=1e-12)
    np.testing.assert_allclose(
        free["final/consensus"][0], oracle.gossip_matrix(oracle.metropolis(NEIGHBOURS), 4) @ mean, atol=1e-12
    )
    before, after = (np.nan_to_num(result["privacy/pair_epsilon"]) for result in (plain, free))
    assert (after >= before - 1e-12).all()
    if method != "gossip":  # whose mixing has come there already
        assert after[0, 5] > before[0, 5]  # three edges away: consensus has brought the last gradients there
