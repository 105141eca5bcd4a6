"""Convergence conditions and sample sizes: cases worked by hand, bipartite graphs, and what `dpadmm check` says of them."""

from typing import Any

import numpy as np
import pytest
from support import MakeConfig, WriteToml, command

from dpadmm_mpi.methods.decentralised import sample_size
from dpadmm_mpi.methods.decentralised.convergence import (
    GraphMatrices,
    madmm_rate,
    recycling_holds,
    recycling_margins,
    smallest_gamma,
)

PAIR = GraphMatrices.of(((1,), (0,)))
TRIANGLE = GraphMatrices.of(((1, 2), (0, 2), (0, 1)))
PATH = GraphMatrices.of(((1,), (0, 2), (1,)))


def test_matrices_and_bipartiteness() -> None:
    assert TRIANGLE.laplacian.tolist() == [[2, -1, -1], [-1, 2, -1], [-1, -1, 2]]
    assert TRIANGLE.signless.tolist() == [[2, 1, 1], [1, 2, 1], [1, 1, 2]]
    assert [n.is_bipartite for n in (PAIR, TRIANGLE, PATH)] == [True, False, True]


def test_rate_by_hand() -> None:
    """Two nodes, eta = theta: (W - theta I) = 0, connectivity 2, largest singular value of W(D+A) 2 eta.

    First term theta 2 / (mu^2 2 eta) = 1/mu^2; second 2m / (mu^2 M^2 / (2 theta (mu-1)) + 2 eta).
    """
    eta, m, M = 0.5, 0.1, 1.0
    rate, mu = madmm_rate(PAIR, np.full(2, eta), eta, m, M, as_printed=False)
    grid = 1 + np.linspace(1e-3, 20, 200_001)
    by_hand = np.minimum(1 / grid**2, 2 * m / (grid**2 * M**2 / (2 * eta * (grid - 1)) + 2 * eta))
    assert rate == pytest.approx(by_hand.max(), rel=1e-4)
    assert mu == pytest.approx(grid[by_hand.argmax()], rel=1e-2)
    # Growing penalties leave the printed bound a positive smallest gap, the sound one none: the printed one is larger.
    grown = np.full(3, 2.0)
    assert madmm_rate(TRIANGLE, grown, 0.5, m, M, True)[0] > madmm_rate(TRIANGLE, grown, 0.5, m, M, False)[0]


def test_larger_penalties_are_slower() -> None:
    """[M] after Theorem 3.2."""
    rates = [madmm_rate(TRIANGLE, np.full(3, eta), 0.5, 0.1, 1.0, False)[0] for eta in (0.5, 0.8, 1.5, 3.0)]
    assert (np.diff(rates) < 0).all()


def test_recycling_margins_by_hand() -> None:
    """A triangle with one eta: everything commutes with D - A, so the margins are minima over two eigenvalues.

    D - A has the eigenvalues 0, 3, 3 and D + A the eigenvalues 4, 1, 1; D~ = 4 eta + gamma =: s. With L = mu = 2
    (iii): 1 + 4 eta/s and 1 + eta/s - 2 M^2 / (3 eta s);  (iv): 4 eta - 16 eta^2/s - 2 M^2/s and eta - 4 eta^2/s - 2 M^2/s.
    """
    eta, gamma, M = 0.7, 9.0, 1.3
    s = 4 * eta + gamma
    third = min(1 + 4 * eta / s, 1 + eta / s - 2 * M**2 / (3 * eta * s))
    fourth = min(4 * eta - 16 * eta**2 / s - 2 * M**2 / s, eta - 4 * eta**2 / s - 2 * M**2 / s)
    found = recycling_margins(TRIANGLE, np.full(3, eta), np.full(3, eta), gamma, np.full(3, M), 2.0, 2.0)
    assert found == pytest.approx((third, fourth), abs=1e-12)
    # Hence the smallest gamma: eta s = 4 eta^2 + 2 M^2, if (iii) asks for less.
    needed = max((4 * eta**2 + 2 * M**2) / eta, 2 * M**2 / (3 * eta) - eta) - 4 * eta
    penalties = [(np.full(3, eta), np.full(3, eta))]
    assert smallest_gamma(TRIANGLE, penalties, np.full(3, M), fixed=True) == pytest.approx(needed, rel=2e-3)


def test_no_gamma_on_bipartite_graphs() -> None:
    """SPEC 8.8: D + A is singular, so (ii) and (iv) cannot hold."""
    for network, n in ((PAIR, 2), (PATH, 3)):
        assert smallest_gamma(network, [(np.ones(n), np.ones(n))], np.ones(n), fixed=True) is None
        assert recycling_holds(network, [(np.ones(n), np.ones(n))], 1e9, np.ones(n), fixed=False)[1] <= 1e-6


def test_free_constants_never_do_worse() -> None:
    etas = [(np.full(3, 0.5), np.full(3, 0.6))]
    fixed = recycling_holds(TRIANGLE, etas, 5.0, np.ones(3), fixed=True)
    free = recycling_holds(TRIANGLE, etas, 5.0, np.ones(3), fixed=False)
    assert min(free) >= min(fixed)


def test_sample_sizes() -> None:
    """Theorem VI.2 is twice VI.1 as alpha grows ([R]'s remark), and infinite for too much noise."""
    plain = sample_size.without_noise(2.0, 0.1, 0.05)
    assert plain == pytest.approx(4 * np.log(20) / 0.01)
    assert sample_size.with_noise(2.0, 0.1, 0.05, 1e9, 10, 100.0, 5) == pytest.approx(2 * plain)
    assert sample_size.with_noise(2.0, 0.1, 0.05, 1e-3, 10, 100.0, 5) == np.inf
    sizes = [sample_size.with_noise(1.0, 0.2, 0.05, alpha, 10, 1000.0, 5) for alpha in (5.0, 10.0, 100.0)]
    assert (np.diff(sizes) < 0).all()


def check(write_toml: WriteToml, config: MakeConfig, *overrides: str, **sections: Any) -> str:
    settings = [word for override in overrides for word in ("--set", override)]
    return command("check", write_toml(config(**sections)), *settings).stdout


def test_check_says_it_in_words(write_toml: WriteToml, config: MakeConfig) -> None:
    bipartite = check(write_toml, config, method="r-admm", network={"graph": "ring", "nodes": 6, "path": None})
    assert "no gamma can meet them: the graph is bipartite" in bipartite
    complete, weak = {"graph": "complete", "nodes": 6, "path": None}, {"eta": 0.05}
    odd = check(write_toml, config, method="r-admm", network=complete, algorithm=weak)
    assert "the smallest gamma that meets them is" in odd
    gamma = float(odd.split("smallest gamma that meets them is ")[1].split(";")[0])
    kept = check(
        write_toml,
        config,
        f"algorithm.gamma={1.01 * gamma}",
        method="r-admm",
        network={"graph": "complete", "nodes": 6, "path": None},
    )
    assert "holds  convergence: (iii), (iv)" in kept
    m_admm = check(write_toml, config, method="m-admm", perturbation="penalty")
    theorem = "eta(t+1) >= eta(t) >= theta > 0, bounded, theta the same for all ([M] Theorem 3.1), margin 0"
    assert f"holds  convergence: {theorem}" in m_admm
    assert "no rate is proven" in m_admm
    equal = check(write_toml, config, "algorithm.eta=0.7", method="m-admm", perturbation="penalty")
    assert "([M] (23), best mu =" in equal
    assert "w * " in m_admm
    unequal = check(write_toml, config, method="mr-admm", perturbation="objective")
    assert "FAILS  optimum: one dual step for all nodes" in unequal
    assert "no number is enough" in check(write_toml, config, "privacy.alpha=1e-3", method="r-admm", perturbation="objective")
    assert "epsilon at delta = 1e-05:" in unequal
    assert "to improve" in unequal
