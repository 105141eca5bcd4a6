"""`dpadmm attack` on star methods ([S] 2.4): what x_i and z say about one record to one who knows all others."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dpadmm_mpi as dp
from dpadmm_mpi.audit import attack
from dpadmm_mpi.cli.main import cli
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.star.attack import response
from dpadmm_mpi.methods.star.svrg import Inner


def recorded(path: Path, method: str, **sections: Any) -> Path:
    raw: dict[str, Any] = {
        "name": method,
        "iterations": 30,
        "network": {"nodes": 3},
        "data": {"records": 300, "features": 6},
        "problem": {"reg": 0.01},
        "algorithm": {"method": method, "rho": 0.2},
        "record": {"trajectory": True},
    }
    for name, table in sections.items():
        raw[name] = {**raw.get(name, {}), **table} if isinstance(table, dict) else table
    dp.run(raw, path, force=True)
    return path


@pytest.mark.parametrize("sections", [{}, {"problem": {"local_ridge": 0.1}}, {"problem": {"regulariser": "l1"}}])
def test_exact_consensus_admm_gives_a_record_away(tmp_path: Path, sections: dict[str, Any]) -> None:
    """From one iteration already, to 1e-9, whatever g and with a ridge; the true record is the likeliest of all."""
    path = recorded(tmp_path / "run.h5", "star-admm", **sections)
    for node, record in ((0, 0), (2, 41)):
        found = attack(path, node, record)
        assert found.errors[0, 0] < 1e-9
        assert found.errors.max() < 1e-6
        assert found.ranks[0] == 1
        assert np.isinf(found.bound).all()


@pytest.mark.parametrize("averaging", ["uniform", "extrapolated"])
def test_variance_reduction_gives_it_away_in_the_end(tmp_path: Path, averaging: str) -> None:
    """Without noise the sampling alone hides the record at first, and less and less as the iterates come to rest."""
    path = recorded(
        tmp_path / "run.h5", "s-admm", algorithm={"averaging": averaging, "inner_steps": 300}, iterations=60, runs=3
    )
    found = attack(path, 1, 3)
    assert np.all(found.ranks == 1)
    assert np.all(found.errors[:, -1] < 0.1)
    assert found.errors[:, -1].mean() < 0.5 * found.errors[:, 0].mean()


def test_noise_hides_it(tmp_path: Path) -> None:
    """Mean rank near the middle of the candidates, and an error as large as the record, where epsilon is small."""
    path = recorded(tmp_path / "run.h5", "ps-admm", privacy={"target": 1.0}, runs=12, iterations=8)
    found = attack(path, 1, 3)
    assert found.bound[-1] == pytest.approx(1.0, rel=1e-3)
    assert 15 < found.ranks.mean() < 65
    assert found.errors[:, -1].min() > 0.3
    little = attack(recorded(path, "ps-admm", privacy={"noise_std": 1e-4}, runs=2), 1, 3)
    assert np.all(little.ranks == 1)


@pytest.mark.parametrize("extrapolated", [False, True])
def test_the_response_of_the_average_to_a_push(extrapolated: bool) -> None:
    """Two plain loops of a quadratic, with and without a push in every step: their averages differ by R times the push."""
    inner = Inner(steps=7, eta=0.3, rho=0.5, v_L=0.9, extrapolated=extrapolated, noise_std=0.0)
    xi = 4 * 0.3 / (1 - 2 * 0.3 * 0.9)

    def average(h: float, push: float) -> float:
        vs = [1.7]
        for _ in range(7):
            vs.append(vs[-1] - 0.3 * (h * vs[-1] - 0.4 + push))
        hats = [((0.6 - xi) * a + xi * b) / 0.6 for a, b in pairwise(vs)]
        return float(np.mean(hats if extrapolated else vs[1:]))

    for h in (0.5, 0.62, 0.9):
        assert response(inner, np.array([h]))[0] == pytest.approx((average(h, 0.01) - average(h, 0.0)) / 0.01, rel=1e-9)


def test_the_command_draws_both(tmp_path: Path) -> None:
    """A table with a row for each file, and the picture."""
    exact = recorded(tmp_path / "exact.h5", "star-admm", iterations=5)
    private = recorded(tmp_path / "private.h5", "ps-admm", privacy={"noise_std": 0.5}, iterations=5, runs=2)
    done = CliRunner().invoke(cli, ["attack", str(exact), str(private), "--node", "1", "-o", str(tmp_path / "a.png")])
    assert done.exit_code == 0, done.output
    assert "star-admm" in done.output
    assert "1 of " in done.output
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_what_cannot_be_attacked_is_refused(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.h5", "star-admm", iterations=2)
    with pytest.raises(InputError, match="--node 3: there are the nodes 0 to 2"):
        attack(path, 3)
    with pytest.raises(InputError, match="--record 100: node 0 has the records 0 to 79"):
        attack(path, 0, 100)
    path = recorded(path, "star-admm", iterations=2, record={"trajectory": False})
    with pytest.raises(InputError, match=r"record\.trajectory = true"):
        attack(path)
