"""Many short runs over all methods, places of the noise, losses and dimensions: nothing is found against any account.

2,000 runs, or as many as DPADMM_AUDIT_RUNS says (scripts/audit_many.sh: 10,000, over every combination).
"""

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from audit_cases import small
from scipy import stats
from support import NETWORK_METHODS, PRIVATE, Raw, network_plan, result_of

from dpadmm_mpi.audit import audit
from dpadmm_mpi.data.dataset import SyntheticLoader
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.methods.decentralised import accounts
from dpadmm_mpi.types import Array

RUNS = int(os.environ.get("DPADMM_AUDIT_RUNS", "2000"))
LONG = RUNS >= 10_000
NOISES: dict[str, Raw] = {"gamma": {"alpha": 2.0}, "gaussian": {"noise_std": 0.7}}
OTHERS = list(product(NOISES, ("logistic", "huber"), (1, 2, 5)))
# Each method with each place of the noise; what else there is takes turns, unless there is time for everything.
COMBINATIONS = [
    (method, perturbation, *other)
    for k, (method, perturbation) in enumerate(product(NETWORK_METHODS, PRIVATE))
    for other in (OTHERS if LONG else OTHERS[k % len(OTHERS) : k % len(OTHERS) + 1])
]


def of_noise(noise: str) -> Raw:
    return {"noise": noise, "alpha": None, **NOISES[noise]}


@pytest.mark.parametrize(("method", "perturbation", "noise", "loss", "features"), COMBINATIONS)
def test_nothing_is_found(tmp_path: Path, method: str, perturbation: str, noise: str, loss: str, features: int) -> None:
    """No data step above its supremum, its proof or its charge, no total above an account, and the noise is as claimed."""
    raw = small(method, perturbation, -(-RUNS // len(COMBINATIONS)), features, problem={"loss": loss}, privacy=of_noise(noise))
    result_of(raw, tmp_path / "o.h5")
    assert audit(tmp_path / "o.h5", candidates=3).findings == []


def roc(raw: Raw, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    """ln p_D - ln p_D^ of runs with the records D, and of runs with D^: record 0 of node 0 has norm 1, and another label."""
    shard, found = SyntheticLoader.shard, []
    for sign in (1, -1):

        def changed(self: SyntheticLoader, address: tuple[int, int, int | None], sign: int = sign) -> Shard:
            made = shard(self, address)
            if address[0] == 0:
                made.y[0] *= sign
                rows = np.asarray(made.X)
                rows[0] /= np.linalg.norm(rows[0])
            return made

        monkeypatch.setattr(SyntheticLoader, "shard", changed)
        monkeypatch.setattr(SyntheticLoader, "shards", lambda self, addresses: map(self.shard, addresses))
        result_of(raw, folder / f"{sign}.h5")
        found.append(sign * audit(folder / f"{sign}.h5", node=0, record=0, adversaries=0).losses[0, :, -1, 0])
        monkeypatch.undo()
    return found


@pytest.mark.parametrize("noise", NOISES)
def test_the_best_attacker_stays_below_the_curve_of_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    """The likelihood-ratio attacker, who cannot be beaten: its true positives are at most e^epsilon false positives + delta.

    Both rates have confidence bounds, as rare to be wrong as 5 standard errors. An account of a third of the epsilon would be
    refuted.
    """
    raw = small("admm", "objective", RUNS // 2, 1, privacy=of_noise(noise)) | {"iterations": 2}
    own, other = roc(raw, tmp_path, monkeypatch)
    level = 2 * stats.norm.sf(5.0)
    thresholds = np.quantile(own, np.linspace(0.02, 0.98, 49))[:, None]
    hits, alarms = ((losses[None] > thresholds).sum(axis=1) for losses in (own, other))
    lowest = stats.beta.ppf(level, hits, len(own) - hits + 1)
    highest = stats.beta.ppf(1 - level, alarms + 1, len(other) - alarms)
    releases = network_plan(raw)[0].releases

    def refuted(share: float) -> bool:
        deltas = (1e-4, 1e-3, 0.01, 0.03, 0.1)
        return any((lowest > np.exp(share * accounts.epsilon(releases, d)[-1, 0]) * highest + d).any() for d in deltas)

    assert not refuted(1.0)
    assert refuted(1 / 3)
    assert own.mean() > 0 > other.mean()
