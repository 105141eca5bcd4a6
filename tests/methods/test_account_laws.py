"""Laws of the accounts on whatever a configuration may ask for: totals never fall, and the tighter bound is tighter."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support import PRIVATE, ledger, network_releases

from dpadmm_mpi.methods.decentralised import accounts
from dpadmm_mpi.privacy.releases import CuratedReleases, NetworkReleases, StarReleases

POSITIVE = st.floats(1e-3, 1e3)
DELTA = st.floats(1e-9, 0.5)


@st.composite
def networks(draw: st.DrawFn) -> NetworkReleases:
    """Nodes of their own sizes, degrees and penalties; every step touches the records, or every second one."""
    nodes, steps, every = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 2))

    def column(values: st.SearchStrategy[Any]) -> Any:
        return np.array(draw(st.lists(values, min_size=nodes, max_size=nodes)), dtype=np.float64)

    growth = draw(st.floats(1.0, 1.5)) ** np.arange(steps)[:, None]
    sizes = column(st.integers(10, 10_000))
    eta = column(POSITIVE) * growth
    return network_releases(
        draw(st.sampled_from(PRIVATE)),
        iterations=every * steps,
        data_steps=1 + every * np.arange(steps),
        eta=eta,
        theta=np.full_like(eta, eta.min()),
        alpha=column(POSITIVE) * draw(st.floats(0.7, 1.4)) ** np.arange(steps)[:, None],
        V=column(st.integers(1, 8)),
        B=sizes,
        C=draw(st.floats(0.01, 1.0)) * sizes.min(),
        rho=draw(POSITIVE),
        c1=draw(st.floats(0.05, 5.0)),
        G=draw(st.floats(0.1, 4.0)),
        features=draw(st.integers(1, 30)),
    )


@settings(max_examples=60)
@given(networks(), DELTA)
def test_networks(releases: NetworkReleases, delta: float) -> None:
    totals = ledger(releases, delta)
    for name, account in totals.items():
        assert account.node_values.shape == (releases.iterations + 1, releases.nodes)
        assert (account.node_values[0] == 0.0).all()
        finite = np.isfinite(account.node_values[-1])
        assert (np.diff(account.node_values[:, finite], axis=0) >= 0.0).all(), name
    bound, tight, epsilon = (totals[name].node_values for name in ("bound", "tight", "epsilon"))
    if accounts.condition_failure(releases) is None:
        assert (tight <= bound * (1.0 + 1e-12)).all()
    assert (epsilon <= tight * (1.0 + 1e-9)).all()


@settings(max_examples=15)
@given(networks(), st.floats(1.0, 3.0))
def test_more_noise_and_more_records_cost_less(releases: NetworkReleases, factor: float) -> None:
    before = ledger(releases)
    for better in (replace(releases, parameter=releases.parameter / factor), replace(releases, B=releases.B * factor)):
        for name, account in ledger(better).items():
            finite = np.isfinite(before[name].node_values)
            assert (account.node_values[finite] <= before[name].node_values[finite] * (1.0 + 1e-6)).all(), name


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 100_000), st.floats(1e-6, 1e3), st.floats(0.1, 4.0), DELTA)
def test_curators(iterations: int, records: int, noise_std: float, c: float, delta: float) -> None:
    releases = CuratedReleases(iterations=iterations, features=5, noise_std=noise_std, records=records, shards=2, c=c)
    for name, account in ledger(releases, delta).items():
        assert (account.node_values[0] == 0.0).all()
        assert (np.diff(account.node_values, axis=0) >= 0.0).all(), name


@settings(max_examples=10)
@given(st.integers(1, 3), st.lists(st.integers(1, 5000), min_size=1, max_size=2), st.floats(0.1, 100.0), DELTA)
def test_providers(iterations: int, sizes: list[int], noise_std: float, delta: float) -> None:
    releases = StarReleases(
        iterations=iterations, features=5, noise_std=noise_std, inner_steps=5, M=np.array(sizes, dtype=np.float64)
    )
    for name, account in ledger(releases, delta).items():
        assert (account.node_values[0] == 0.0).all()
        assert (np.diff(account.node_values, axis=0) >= -1e-12).all(), name
