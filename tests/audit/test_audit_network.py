"""The audit: sound runs pass, close to the bound in low dimension; planted faults are caught."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from audit_cases import small
from scipy.optimize import root
from scipy.special import expit
from support import NETWORK_METHODS, PRIVATE, Raw, command, network_plan, result_of, write_records

from dpadmm_mpi.audit import attack, audit
from dpadmm_mpi.methods.decentralised import accounts, algorithm
from dpadmm_mpi.methods.decentralised.adversary import worst_replacements
from dpadmm_mpi.methods.decentralised.algorithm import NetworkNodes, State
from dpadmm_mpi.methods.decentralised.audit import read_transcript
from dpadmm_mpi.methods.decentralised.audited_steps import InObjective, Pairs, as_one
from dpadmm_mpi.privacy.data_steps import DataSteps, StepCost
from dpadmm_mpi.privacy.noises import Gamma, draw
from dpadmm_mpi.problems import Logistic, node_problem
from dpadmm_mpi.types import Array


@pytest.mark.parametrize("perturbation", PRIVATE)
@pytest.mark.parametrize("method", NETWORK_METHODS)
def test_two_hundred_runs_of_everything(tmp_path: Path, method: str, perturbation: str) -> None:
    """No finding: no loss above the pure bounds, the distribution fits epsilon; and the worst loss is within a factor of 3."""
    result_of(small(method, perturbation), tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", candidates=3)
    assert report.findings == []
    bound = report.result["privacy/node_bound"][-1]
    assert (report.worst <= report.result["privacy/node_tight"][-1]).all()
    assert (report.worst / bound).max() > 1 / 3


GAUSSIAN = {"noise": "gaussian", "alpha": None, "noise_std": 0.5}


@pytest.mark.parametrize("perturbation", PRIVATE)
def test_gaussian_noise(tmp_path: Path, perturbation: str) -> None:
    """No pure bound, an epsilon that the losses fit, and losses by the Gaussian density: normal for noise on the release."""
    raw = small("r-admm", perturbation, features=2, privacy=GAUSSIAN)
    raw["privacy"] = {key: value for key, value in raw["privacy"].items() if value is not None}
    result_of(raw, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", candidates=3)
    assert report.findings == []
    assert np.isinf(report.result["privacy/bound"][-1])
    assert np.isfinite(report.result["privacy/epsilon"]).all()
    assert report.result.attributes["privacy/epsilon"]["zcdp_rho"] > 0
    assert np.nanmax(report.result["privacy/noise_std"]) == 0.5
    if perturbation == "primal":  # a sum of N(c^2/2, c^2): the variance is twice the mean
        last = report.losses[0, :, -1, 0]
        assert np.var(last) == pytest.approx(2 * np.mean(last), abs=6 * np.std(last) / np.sqrt(len(last)))


def test_gaussian_variance_for_standard_deviation_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = small("r-admm", "objective", features=2, privacy=GAUSSIAN)
    raw["privacy"] = {key: value for key, value in raw["privacy"].items() if value is not None}
    planted(monkeypatch, "variance for standard deviation")
    result_of(raw, tmp_path / "o.h5")
    monkeypatch.undo()
    assert any("not of the claimed size" in finding for finding in audit(tmp_path / "o.h5", candidates=3).findings)


@pytest.mark.parametrize("features", [3, 40])
def test_determinants_written_out(features: int) -> None:
    """Of replacements that are multiples of their record, and of others; few features and many."""
    rng = np.random.default_rng(5)
    X, f = rng.standard_normal((60, features)) / features**0.5, 0.5 * rng.standard_normal((2, features))
    step = InObjective(node_problem(X, Logistic(), 5.0, 0.3), Gamma(), 1.0, 0.4, f, np.ones_like(f), factor=1.0)
    new = np.stack([-X[4], 0.5 * X[4], 0.0 * X[4], X[9] + 1e-9, rng.standard_normal(features)])
    pairs = Pairs(np.array([4, 4, 4, 9, 9]), new)
    for run in range(2):

        def log_determinant(rows: Array, at: Array = f[run]) -> float:
            p = expit(rows @ at)
            return float(np.linalg.slogdet(5 / 60 * (rows.T * (p * (1 - p))) @ rows + 0.7 * np.eye(features))[1])

        for k, n in enumerate(pairs.replaced):
            other = X.copy()
            other[n] = new[k]
            expected = log_determinant(X) - log_determinant(other)
            assert step.log_determinants(pairs)[run, k] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("perturbation", ["penalty", "primal"])
def test_steps_are_searched_as_one(tmp_path: Path, perturbation: str) -> None:
    """Losses and ascent of several steps, whose noise and penalties differ, are those of each by itself."""
    raw = small("m-admm", perturbation, runs=5, features=3, problem={"loss": "logistic"})
    raw["algorithm"]["eta"] = {"first": 1.0, "ratio": 1.3}
    raw["privacy"] |= {"alpha": {"first": 1.0, "ratio": 1.5}}
    result = result_of(raw, tmp_path / "o.h5")
    plan, dataset = network_plan(raw)
    view = read_transcript(plan, result, dataset).view(1)
    steps = [view.step(t, slice(None)) for t in plan.releases.data_steps]
    rng = np.random.default_rng(5)
    pairs, weights = Pairs(np.array([2, 5]), rng.uniform(-0.5, 0.5, (2, 3))), rng.uniform(size=(5, 2))
    one, by_itself = as_one(steps), np.concatenate([step.losses_at(pairs, step.first_order_shifts(pairs)) for step in steps])
    shifts = one.first_order_shifts(pairs)
    np.testing.assert_allclose(one.losses_at(pairs, shifts), by_itself, atol=1e-13)
    ascent = np.sum([step.ascent(pairs, step.first_order_shifts(pairs), weights) for step in steps], axis=0)
    np.testing.assert_allclose(one.ascent(pairs, shifts, np.tile(weights, (len(steps), 1))), ascent, atol=1e-13)


def test_more_dimensions_lose_less(tmp_path: Path) -> None:
    """In many dimensions the noise rarely points along a record: realised losses stay near epsilon, far from the pure bound."""
    ratios = []
    for d in (1, 20):
        result_of(small("r-admm", "objective", features=d), tmp_path / f"{d}.h5")
        report = audit(tmp_path / f"{d}.h5", candidates=3)
        assert report.findings == []
        ratios.append((report.worst / report.result["privacy/node_bound"][-1]).max())
    assert ratios[1] < ratios[0]


def test_loss_of_one_step_by_hand(tmp_path: Path) -> None:
    """One data step, d = 1, logistic: noise and both densities written out."""
    raw = small("admm", "objective", runs=5, problem={"loss": "logistic"}) | {"iterations": 1}
    result_of(raw, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", node=1, record=2)
    plan, dataset = network_plan(raw)
    view = read_transcript(plan, report.result, dataset).view(1)
    z = view.rows[:, 0]
    flipped, stretched = z.copy(), z.copy()
    flipped[2], stretched[2] = -z[2], -np.sign(z[2])
    assert abs(z[2]) < 0.9  # so that the stretched record changes the determinant
    for run in range(5):
        f = report.result["trajectory"][run, 1, 1, 0]

        def log_density(rows: Array, f: float = f) -> float:
            p = 1 / (1 + np.exp(rows * f))
            e = -(2 / 9 * np.sum(-p * rows) + 0.5 * f + 2 * f)  # starts at zero: the pull of the penalty is 2 eta V f
            slope = 2 / 9 * np.sum(p * (1 - p) * rows**2) + 0.5 + 2
            return float(-2.0 * abs(e) + np.log(slope))

        for pair, changed in enumerate((flipped, stretched)):
            assert report.losses[0, run, 0, pair] == pytest.approx(log_density(z) - log_density(changed), abs=1e-8)


def planted(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    original = draw
    if fault == "noise with alpha twice as large":
        monkeypatch.setattr(algorithm, "draw", lambda k, s, r, n, t, alpha, d: original(k, s, r, n, t, 2 * alpha, d))
    elif fault == "noise reused in two iterations":
        monkeypatch.setattr(algorithm, "draw", lambda k, s, r, n, t, alpha, d: original(k, s, r, n, min(t, 2), alpha, d))
    elif fault == "variance for standard deviation":
        monkeypatch.setattr(algorithm, "draw", lambda k, s, r, n, t, alpha, d: original(k, s, r, n, t, alpha**2, d))
    elif fault == "the recycled step reads the records":
        work = NetworkNodes.work

        def reading(self: NetworkNodes, state: State, t: int, runs: range, phase: int) -> State:
            if not self.settings.method.is_data_step(t):
                exact = [
                    [p.data_gradient(p.signed @ f) + p.ridge * f for p, f in zip(self.problems, primal, strict=True)]
                    for primal in state.primal
                ]
                state = state._replace(gradient=np.array(exact))
            return work(self, state, t, runs, phase)

        monkeypatch.setattr(NetworkNodes, "work", reading)
    elif fault == "the same noise in all nodes":
        monkeypatch.setattr(algorithm, "draw", lambda k, s, r, n, t, alpha, d: original(k, s, r, 0 * n, t, alpha, d))
    else:
        planted_in_account(monkeypatch, fault)


def planted_in_account(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "the sign of the slope is wrong in the account":
        together = DataSteps.slope_and_curvature
        monkeypatch.setattr(DataSteps, "slope_and_curvature", lambda self, c, weight: together(self, -c, weight))
    elif fault == "half the determinant in the account":
        together = DataSteps.slope_and_curvature

        def half(self: DataSteps, c: Array, weight: Array) -> Array:
            slope = together(self, c, 1e-12 * weight)
            return slope + 0.5 * (together(self, c, weight) - slope)

        monkeypatch.setattr(DataSteps, "slope_and_curvature", half)
    elif fault == "a bound that forgets a factor 2":
        cost = accounts.paper_cost
        monkeypatch.setattr(accounts, "paper_cost", lambda r: StepCost(*(0.5 * part for part in cost(r))))


FAULTS = {
    "noise with alpha twice as large": "not of the claimed size",
    "noise reused in two iterations": "noise is used again",
    "variance for standard deviation": "not of the claimed size",
    "the recycled step reads the records": "not the recycled step",
    "a bound that forgets a factor 2": "more than the paper bound",
    "the same noise in all nodes": "noise is used again",
    "the sign of the slope is wrong in the account": "alone, more than the tighter bound charges for it",
    "half the determinant in the account": "alone, more than the tighter bound charges for it",
}


def mostly_determinants(folder: Path, method: str, perturbation: str) -> Raw:
    """One record of norm 1 at node 0 and a small penalty: the determinants are most of what a step loses near f = 0."""
    records = write_records(folder, "npz", np.ones((10, 1)), np.array([1.0, -1.0] * 5))
    return small(
        method,
        perturbation,
        data={"source": "npz", "path": str(records), "sizes": [1, 9], "records": None, "features": None},
        problem={"C": 1.0, "rho": 0.02, "loss": "logistic"},
        algorithm={"eta": 0.05},
        privacy={"alpha": 0.2, "allow_unproven": True},
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    perturbation = "primal" if "bound" in fault else "objective"
    method = "m-admm" if "reused" in fault else "r-admm"
    raw = mostly_determinants(tmp_path, method, perturbation) if "determinant" in fault else small(method, perturbation)
    result_of(raw, tmp_path / "sound.h5")
    assert audit(tmp_path / "sound.h5", candidates=3).findings == []
    planted(monkeypatch, fault)
    result_of(raw, tmp_path / "o.h5")
    monkeypatch.undo()
    findings = audit(tmp_path / "o.h5", candidates=3).findings
    assert any(FAULTS[fault] in finding for finding in findings), findings


def test_gaussian_noise_with_the_variance_for_the_deviation_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = small("r-admm", "objective", privacy={"noise": "gaussian", "noise_std": 0.7, "alpha": None})
    planted(monkeypatch, "variance for standard deviation")
    result_of(raw, tmp_path / "o.h5")
    monkeypatch.undo()
    assert any("not of the claimed size" in finding for finding in audit(tmp_path / "o.h5", candidates=2).findings)


@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_determinants_that_the_papers_exclude(tmp_path: Path, loss: str) -> None:
    """x = c1 C / (B mu) >= 1, with C = B: the tighter bound is finite, and nothing is found against it."""
    raw = small(
        "admm",
        "objective",
        100,
        problem={"C": 4.0, "rho": 0.2, "loss": loss},
        algorithm={"eta": 0.05},
        privacy={"allow_unproven": True},
    )
    result = result_of(raw, tmp_path / "o.h5")
    releases = network_plan(raw)[0].releases
    assert (releases.c1 * releases.weight >= 1.0).any()
    assert np.isfinite(result["privacy/tight"]).all()
    assert audit(tmp_path / "o.h5", candidates=3).findings == []


@pytest.mark.parametrize("perturbation", ["objective", "penalty", "primal"])
@pytest.mark.parametrize("privacy", [{"alpha": 2.0}, {"noise": "gaussian", "noise_std": 0.7, "alpha": None}])
def test_losses_by_whole_data_sets(tmp_path: Path, perturbation: str, privacy: Raw) -> None:
    """Every neighbour, those of the search too: both data sets written out, gradients, determinants and argmins in full."""
    raw = small("admm", perturbation, 2, 3, problem={"loss": "logistic"}, privacy=privacy) | {"iterations": 2}
    result = result_of(raw, tmp_path / "o.h5")
    plan, dataset = network_plan(raw)
    transcript = read_transcript(plan, result, dataset)
    view = transcript.view(1)
    step = view.step(2, slice(None))
    pairs = worst_replacements([step], np.array([0, 5]))
    assert (np.linalg.norm(pairs.new, axis=1) < 1.0 + 1e-12).all()
    losses, eta, weight = step.losses(pairs), 1.0, 2 / 9
    gaussian = "noise" in privacy

    def log_density(rows: Array, run: int) -> float:
        f0, f1 = (result["trajectory"][run, 1, j] for j in (0, 1))
        dual = 0.5 * eta * (f1 - f0)
        f = result["trajectory"][run, 2, 1]

        def gradient(f: Array) -> Array:
            return -weight * expit(-rows @ f) @ rows + 0.5 * f + 2 * dual + eta * (2 * f - f1 - f0)

        if perturbation == "primal":
            e, log_det = f - root(gradient, f, tol=1e-13).x, 0.0
        else:
            curved = weight * expit(rows @ f) * expit(-rows @ f)
            H = (rows * curved[:, None]).T @ rows + 2.5 * np.eye(3)
            e = -gradient(f) / (2.0 if perturbation == "penalty" else 1.0)
            log_det = np.linalg.slogdet(H)[1]
        return float(log_det - (e @ e / (2 * 0.7**2) if gaussian else 2.0 * np.linalg.norm(e)))

    for k, (n, new) in enumerate(zip(pairs.replaced, pairs.new, strict=True)):
        changed = view.rows.copy()
        changed[n] = new
        for run in range(2):
            assert losses[run, k] == pytest.approx(log_density(view.rows, run) - log_density(changed, run), abs=1e-7)


@pytest.mark.parametrize("perturbation", ["objective", "primal"])
def test_the_search_finds_worse_neighbours(tmp_path: Path, perturbation: str) -> None:
    """In five dimensions: its best mean is above that of every flipped record and of 300 random ones."""
    raw = small("admm", perturbation, 30, 5)
    result = result_of(raw, tmp_path / "o.h5")
    plan, dataset = network_plan(raw)
    view = read_transcript(plan, result, dataset).view(0)
    steps = [view.step(t, slice(None)) for t in plan.releases.data_steps]
    record = np.array([int(np.linalg.norm(view.rows, axis=1).argmax())])
    rng = np.random.default_rng(1)
    random = rng.standard_normal((300, 5))
    random = np.vstack([random / np.linalg.norm(random, axis=1, keepdims=True), -view.rows[record]])
    others = Pairs(np.repeat(record, len(random)), random)

    def totals(pairs: Pairs) -> Array:
        return np.sum([step.losses(pairs) for step in steps], axis=0)

    found, tried = totals(worst_replacements(steps, record)), totals(others)
    assert found[:, 0].mean() > tried.mean(axis=0).max()
    assert found[:, 1].max() > tried.max()


def test_a_loss_that_does_not_fit_delta_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epsilon that is far too small, as a wrong account would give: too many runs lie above it."""
    result_of(small("r-admm", "primal"), tmp_path / "o.h5")
    spent = accounts.Epsilon.spent
    monkeypatch.setattr(accounts.Epsilon, "spent", lambda self, r, delta: spent(self, r, delta) * 0.1 - 0.5)
    assert any("incompatible" in finding for finding in audit(tmp_path / "o.h5", candidates=3).findings)


def test_the_audit_reads_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it needs is taken from one reading, so that a file that changes meanwhile is not mixed with itself."""
    path = tmp_path / "o.h5"
    result_of(small("r-admm", "objective", runs=3), path)
    opened: list[str] = []
    init = h5py.File.__init__

    def noted(self: h5py.File, name: object, *arguments: Any, **options: Any) -> None:
        if isinstance(name, str | Path):  # not a handle of a file that is open already
            opened.append(str(name))
        init(self, name, *arguments, **options)

    monkeypatch.setattr(h5py.File, "__init__", noted)
    for examine in (lambda: audit(path, candidates=2), lambda: attack(path)):
        opened.clear()
        examine()
        assert opened == [str(path)]


def test_audit_command(tmp_path: Path) -> None:
    result_of(small("r-admm", "objective", runs=20), tmp_path / "o.h5")
    process = command("audit", tmp_path / "o.h5", "--candidates", 3, "-o", tmp_path / "a.png")
    assert process.returncode == 0, process.stderr
    assert "nothing found against the accounts" in process.stdout
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert command("audit", tmp_path / "o.h5", "--node", 1, "--record", 8).returncode == 0
    for arguments, sentence in (
        (("--node", 5), "there are the nodes 0 to 1"),
        (("--node", 0, "--record", 4), "node 0 has the records 0 to 3"),
        (("--record", 0), "say the node"),
    ):
        refused = command("audit", tmp_path / "o.h5", *arguments)
        assert (refused.returncode, sentence in refused.stderr) == (2, True)
    plain = small("r-admm", "objective", runs=2, privacy={"perturbation": "none"})
    del plain["privacy"]["alpha"]
    result_of(plain, tmp_path / "plain.h5")
    assert "nothing to audit" in command("audit", tmp_path / "plain.h5").stderr
    result_of(small("r-admm", "objective", runs=2, record={"trajectory": False}), tmp_path / "none.h5")
    assert "holds no trajectory" in command("audit", tmp_path / "none.h5").stderr


def test_audit_command_says_1_for_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, "noise with alpha twice as large")
    result_of(small("r-admm", "objective"), tmp_path / "o.h5")
    monkeypatch.undo()
    process = command("audit", tmp_path / "o.h5", "--candidates", 2)
    assert process.returncode == 1
    assert "finding: the noise is not of the claimed size" in process.stdout
