"""The accounts of noisy gradients: one Gaussian mechanism, exactly; and what one node sees of another."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from oracles import gradient as oracle
from scipy.stats import norm
from support import MakeConfig, Raw, planned, result_of

from dpadmm_mpi import InputError
from dpadmm_mpi.methods.gradient import accounts, observers, theory
from dpadmm_mpi.methods.gradient.plan import GradientPlan
from dpadmm_mpi.networks import build, graphs
from dpadmm_mpi.networks.graphs import Graph
from dpadmm_mpi.networks.metropolis import matrix
from dpadmm_mpi.privacy.account import accounts_of, calibrate
from dpadmm_mpi.privacy.releases import GradientReleases


def releases(sigma: float = 0.05, steps: int = 5, every: int = 1, **values: Any) -> GradientReleases:
    given: dict[str, Any] = {
        "iterations": steps * every,
        "features": 3,
        "noise_std": sigma,
        "data_steps": 1 + every * np.arange(steps),
        "growth": np.ones(steps),
        "B": np.array([100.0, 40.0, 400.0]),
        "C": 2.0,
        "G": 1.0,
    }
    return GradientReleases(**(given | values))


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("sigma", [0.02, 0.3, 5.0])
def test_epsilon_is_dp_accountings(sigma: float, delta: float) -> None:
    """After k gradients with noise that grows: one Gaussian mechanism of the root of the sum of squares, to 1e-9."""
    r = releases(sigma, growth=1.2 ** np.arange(5), every=2)
    found = accounts.epsilon(r, delta)
    assert found.shape == (11, 3)
    assert (found[0] == 0.0).all()
    for t in range(1, 11):
        k = (t + 1) // 2
        for i, B in enumerate(r.B):
            mu = 2.0 * 2.0 / B * np.sqrt(np.sum((sigma * 1.2 ** np.arange(k)) ** -2.0))
            expected = gaussian_mechanism.get_epsilon_gaussian(1.0 / mu, delta)
            assert found[t, i] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_the_account_is_proven_and_infinite_without_noise() -> None:
    (account,) = accounts_of(releases(), 1e-5)
    assert (account.name, account.proven, account.delta) == ("epsilon_sound", True, 1e-5)
    assert account.details["gaussian_mu"] == pytest.approx(4.0 / 40.0 * np.sqrt(5.0) / 0.05)
    (nothing,) = accounts_of(releases(0.0), 1e-5)
    assert np.isinf(nothing.node_values).all()
    (own,) = accounts_of(releases(unaccounted="not proven: a step of somebody's own"), 1e-5)
    assert np.isinf(own.node_values).all()
    assert not own.proven


@pytest.mark.parametrize("target", [0.01, 0.5, 1.0, 10.0, 80.0])
def test_a_target_is_met_from_below(target: float) -> None:
    met = calibrate(releases(1.0, growth=np.array([1.0, 2.0, 1.0, 0.5, 1.0])), target, "sound", 1e-5)
    worst = float(accounts.epsilon(met, 1e-5)[-1].max())
    assert target * (1.0 - 1e-9) < worst <= target
    less = replace(met, noise_std=met.noise_std * (1.0 - 1e-6))
    assert float(accounts.epsilon(less, 1e-5)[-1].max()) > target


def test_a_budget_ends_the_run(config: MakeConfig) -> None:
    """As many gradients as the exact account allows; a gossip run mixes to the end of the last one's steps."""
    raw = private(config, "gossip", iterations=30, algorithm={"mixing_steps": 3})
    plan, _ = planned(raw)
    whole = accounts.epsilon(plan.releases, 1e-5)[:, :].max(axis=1)  # type: ignore[arg-type]
    budget = float(whole[4 * 3] + whole[5 * 3]) / 2.0
    raw["privacy"]["budget"] = {"epsilon": budget}
    result = result_of(raw)
    assert result["iteration"][-1] == 12
    assert (result["privacy/budget_steps"] == 4).all()
    raw["privacy"]["budget"] = {"epsilon": budget, "when_spent": "rest"}
    with pytest.raises(InputError, match='use "stop"'):
        result_of(raw)


def private(make: MakeConfig, method: str, **sections: Any) -> Raw:
    raw = make("admm", **sections)
    raw["algorithm"] = {"method": method} | sections.get("algorithm", {})
    raw["privacy"] = {"perturbation": "gaussian", "noise_std": 1.0}
    return raw


# Who sees what


NETWORKS: list[Graph] = [
    graphs["path"](nodes=5),
    graphs["ring"](nodes=6),
    graphs["star"](nodes=5),
    graphs["random"](nodes=7, probability=0.4),
]


@pytest.mark.parametrize("graph", NETWORKS, ids=lambda graph: type(graph).__name__)
def test_what_a_node_sees_is_a_projection(graph: Graph) -> None:
    """Against least squares on powers of W; nothing beyond as many edges as there were exchanges, and ever more."""
    topology = build(graph, 3)
    W = matrix(topology)
    before = np.zeros((topology.nodes, topology.nodes))
    for exchanges in (1, 2, 3, 4):
        found = observers.shares_seen(W, topology, exchanges)
        for u in range(topology.nodes):
            for v in range(topology.nodes):
                expected = oracle.seen_share(W, topology.neighbours, u, v, exchanges)
                assert found[u, v] == pytest.approx(expected, abs=1e-6)
        assert (found >= before - 1e-9).all()
        before = found


def test_seen_losses_are_those_of_the_projection(rng: np.random.Generator) -> None:
    """20,000 times a leaf of a star, node 4, sees what the middle sends in three exchanges: the sum of the other three leaves.
    The best test of a shift at node 1 has the advantage of a Gaussian mechanism with a third of mu^2, to 5 standard errors."""
    topology = build(graphs["star"](nodes=5), 1)
    W = matrix(topology)
    share = float(observers.shares_seen(W, topology, 3)[1, 4])
    assert share == pytest.approx(1.0 / 3.0)
    M = np.array([np.linalg.matrix_power(W, k)[0] for k in range(3)] + [np.eye(5)[4]])
    shift, count = 2.0, 20_000
    direction = np.linalg.pinv(M @ M.T, rcond=1e-9, hermitian=True) @ (M @ np.eye(5)[1])  # of the likelihood ratio
    scores = rng.standard_normal((count, 5)) @ M.T @ direction
    threshold = 0.5 * shift * share
    caught, accused = np.mean(scores + shift * share > threshold), np.mean(scores > threshold)
    expected = 2.0 * norm.cdf(0.5 * shift * np.sqrt(share)) - 1.0
    assert caught - accused == pytest.approx(expected, abs=5.0 * np.sqrt(0.5 / count))


def test_the_printed_formula_is_no_bound() -> None:
    """On a path the end sees its neighbour's messages: the first tells its neighbour's vector, the second with that the next
    node's, and so on. The printed sum of what each message tells by itself is far below: the noise in them is the same."""
    topology = build(graphs["path"](nodes=6), 1)
    W = matrix(topology)
    y0, y1 = np.eye(6)[1], W[1]
    own, of_neighbour = np.eye(6)[0], np.eye(6)[1]
    known = y1 - W[1, 1] * of_neighbour - W[1, 0] * own  # what is left of the second message
    np.testing.assert_allclose(known, W[1, 2] * np.eye(6)[2])  # is node 2's vector, with node 2's noise alone
    assert (y0 == of_neighbour).all()
    assert observers.shares_seen(W, topology, 2)[2, 0] == pytest.approx(1.0)
    printed = observers.printed_shares(W, topology, (1.0, 1.0), 2)
    assert printed[2, 0] == pytest.approx(W[1, 2] ** 2 / np.sum(W[1] ** 2))
    assert printed[2, 0] < 0.4


def test_pairs_are_recorded(config: MakeConfig) -> None:
    """Never above the local account, as large for neighbours, less for who is further away; the printed one beside it."""
    raw = private(config, "gossip", iterations=7, algorithm={"mixing_steps": 3})
    result = result_of(raw)
    pairs, local = result["privacy/pair_epsilon"], result["privacy/node_epsilon_sound"][-1]
    assert np.isnan(np.diag(pairs)).all()
    assert (np.nan_to_num(pairs) <= local[:, None] * (1.0 + 1e-12)).all()
    assert pairs[0, 1] == pytest.approx(local[0])
    assert pairs[0, 3] < 0.95 * local[0]  # two edges away: the last of three gradients has come no further than one
    assert "not proven" in result.attributes["privacy/pair_epsilon_printed"]["description"]
    assert result["privacy/pair_epsilon_printed"].shape == (6, 6)


def test_what_has_not_arrived_is_not_seen(config: MakeConfig) -> None:
    """Descent: one edge in an iteration. Tracking: two, for both vectors travel."""
    for method, hops in (("dp-dgd", 1), ("dp-gradient-tracking", 2)):
        plan, _ = planned(private(config, method, iterations=3))
        assert isinstance(plan, GradientPlan)
        mu = observers.delayed_mu(accounts.mu(plan.releases), plan.topology, hops)
        local = accounts.mu(plan.releases)
        # 0 to 5 is 0-2, 2-4, 4-5: three edges
        assert mu[0, 5] == pytest.approx(local[1 if hops == 1 else 2, 0])
        assert mu[0, 3] == pytest.approx(local[2 if hops == 1 else 3, 0])
        np.testing.assert_allclose(plan.pair_epsilon(1e-5)[0, 5], accounts.epsilon_of(mu[0, 5:6], 1e-5)[0])


def test_tracking_converges_where_its_condition_holds(config: MakeConfig) -> None:
    """The distance shrinks at least at the rate that is said, and the largest step that is allowed has a rate below 1."""
    L, m, c = 2.0, 1.5, 0.6
    largest = theory.largest_tracking_step(L, m, c)
    assert theory.tracking_rate(0.999 * largest, L, m, c) < 1.0 <= theory.tracking_rate(1.001 * largest, L, m, c)
    assert theory.largest_tracking_step(L, m, 0.0) == pytest.approx(2.0 / L, rel=1e-5)
    raw = private(config, "dp-gradient-tracking", iterations=300, problem={"C": 1.0, "rho": 10.0}, record={"optimum": True})
    raw["privacy"] = {"perturbation": "none"}
    plan, _ = planned(raw)
    assert isinstance(plan, GradientPlan)
    step = 0.5 * theory.largest_tracking_step(0.25 + 10 / 6, 10 / 6, plan.contraction)
    rate = theory.tracking_rate(step, 0.25 + 10 / 6, 10 / 6, plan.contraction)
    raw["algorithm"]["step"] = step
    distance = result_of(raw)["distance_to_optimum"][0]
    assert rate < 1.0
    assert distance[-1] <= 10.0 * distance[100] * rate**200
