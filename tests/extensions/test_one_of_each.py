"""One class of each kind from a file outside the package: run, killed, resumed, audited, plotted, run again, submitted."""

import signal
from pathlib import Path

import numpy as np
import pytest
from support import KILLED, command, needs_shared_memory, sentences

import dpadmm_mpi as dp
from dpadmm_mpi.methods.base import fingerprint
from dpadmm_mpi.storage.checkpoint import restart_folder
from dpadmm_mpi.storage.experiments import load as load_experiment

HERE = Path(__file__).parent


def identical(a: Path, b: Path) -> None:
    process = command("diff", a, b)
    assert (process.returncode, process.stdout) == (0, "identical\n"), process.stdout


def test_killed_on_three_ranks_and_resumed_on_two(shelf: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    process = command(1, 4, "run", shelf / "all.toml", "-o", out, ranks=3, program=HERE / "mortal_rank.py")
    assert process.returncode in KILLED, process.stderr
    assert (restart_folder(out) / "checkpoint").exists()
    process = command("run", shelf / "all.toml", "-o", out, "--resume", ranks=2)
    assert process.returncode == 0, process.stderr
    identical(shelf / "serial.h5", out)


def test_everything_that_was_chosen_is_recorded(shelf: Path) -> None:
    result = dp.load(shelf / "serial.h5")
    for word in ("averaged-dual", "polar", "twofold", "ramp", "wheel", "semicolons", "growing", "shrink"):
        assert f'"{word}"' in result.config_text
    assert str(shelf / "mine.py") in result.config_text
    assert result["norm"].shape == (2, 9)
    assert result["node_accuracy"].shape == (2, 9, 6)
    assert np.allclose(result["norm"], np.linalg.norm(result["trajectory"].mean(axis=2), axis=-1))
    assert np.array_equal(result["privacy/doubled"], 2.0 * result["privacy/bound"])
    assert np.isfinite(result["privacy/bound"]).all()
    assert (np.diff(result["data/sizes"]) > 0).all()
    assert result.attributes["norm"]["title"] == "norm of the classifier"
    assert result.attributes["node_accuracy"]["description"] == "Share of a node's own records that it gets right"


def test_shown_with_new_columns(shelf: Path) -> None:
    process = command("show", shelf / "serial.h5")
    assert process.returncode == 0, process.stderr
    assert "norm" in process.stdout.split("\n")[0]
    assert "2 P(t)" in process.stdout  # as left out, where 80 columns are not enough
    assert "2 P(t)" in command("show", shelf / "serial.h5", "--columns", "norm,2 P(t)").stdout.split("\n")[0]


def test_plotted_by_a_kind_of_its_own_and_by_the_name_of_a_metric(shelf: Path, tmp_path: Path) -> None:
    for target, arguments in (
        ("kind.svg", ("--kind", "norms", "--extension", shelf / "mine.py")),
        ("name.svg", ("--kind", "norm")),
    ):
        process = command("plot", shelf / "serial.h5", *arguments, "-o", tmp_path / target)
        assert process.returncode == 0, process.stderr
        assert "norm of the classifier" in (tmp_path / target).read_text()


def test_the_audit_finds_nothing(shelf: Path) -> None:
    process = command("audit", shelf / "serial.h5", "--candidates", 5)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "2 P(t)" in process.stdout
    assert process.stdout.endswith("nothing found against the accounts\n")


def test_the_result_file_is_run_again(shelf: Path, tmp_path: Path) -> None:
    process = command("run", shelf / "serial.h5", "-o", tmp_path / "again.h5", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    identical(shelf / "serial.h5", tmp_path / "again.h5")


@needs_shared_memory
def test_packed_and_by_index_as_array_jobs_do(own: Path) -> None:
    sweep = own / "sweep.toml"
    sweep.write_text((own / "all.toml").read_text() + '\n[sweep]\n"privacy.alpha" = [2.0, 4.0]\n')
    process = command("run", sweep, "-o", own / "packed", "--pack", ranks=2)
    assert process.returncode == 0, process.stderr
    process = command("run", sweep, "-o", own / "array", "--index", 1)
    assert process.returncode == 0, process.stderr
    (made,) = (own / "array").glob("*.h5")
    identical(own / "packed" / made.name, made)


def test_submit_hands_the_extension_on(own: Path) -> None:
    text = (own / "all.toml").read_text().replace('extensions = ["mine.py"]\n', "")
    (own / "without.toml").write_text(text)
    process = command("submit", "without.toml", "--scheduler", "slurm", "--extension", "mine.py", cwd=own)
    assert process.returncode == 0, process.stderr
    assert "dpadmm run without.toml --extension mine.py --resume" in process.stdout


UNACCOUNTED = ("--set", "algorithm.method=half-steps", "--set", "data.train=180")


def test_steps_without_an_account_record_infinity(own: Path) -> None:
    process = command("run", own / "all.toml", *UNACCOUNTED, "-o", own / "half.h5")
    assert process.returncode == 0, process.stderr
    (note,) = sentences(process)
    assert "the privacy loss is infinite, not proven: half-steps has a dual_step of its own" in note
    assert str(own / "mine.py") in note
    result = dp.load(own / "half.h5")
    for account in ("bound", "tight", "epsilon", "doubled"):
        assert np.isinf(result[f"privacy/{account}"]).all()
        assert not result.attributes[f"privacy/{account}"]["proven"]
    assert "not proven" in str(result.attributes["/"]["notes"])


def test_steps_without_an_account_cannot_meet_a_target(own: Path) -> None:
    process = command("run", own / "all.toml", *UNACCOUNTED, "--set", "privacy.target=3.0", "-o", own / "half.h5")
    assert process.returncode == 2
    (sentence,) = sentences(process)
    assert "privacy.target: cannot be met: not proven: half-steps has a dual_step of its own" in sentence


def test_noise_without_an_account_records_infinity(own: Path) -> None:
    laplace = ("--set", "privacy.noise=laplace", "--set", "privacy.rate=3.0", "--set", "privacy.perturbation=objective")
    text = (own / "all.toml").read_text().replace("alpha = 4.0\n", "")
    (own / "laplace.toml").write_text(text)
    process = command("run", own / "laplace.toml", *laplace, "-o", own / "laplace.h5")
    assert process.returncode == 0, process.stderr
    result = dp.load(own / "laplace.h5")
    assert np.isinf(result["privacy/bound"][1:]).all()
    assert not result.attributes["privacy/bound"]["proven"]
    assert (result["privacy/rate"][1:] == 3.0).all()
    process = command("audit", own / "laplace.h5")
    assert process.returncode == 2
    assert "has no log_ratio of its own" in sentences(process)[0]


def change_a_byte(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace("One class of each kind", "One class of Each kind"))


@pytest.fixture
def stopped(own: Path) -> Path:
    """A folder with a finished result, done.h5, and one that was killed, half.h5; the extension has changed since."""
    assert command("run", own / "all.toml", "-o", own / "done.h5").returncode == 0
    process = command(0, 4, "run", own / "all.toml", "-o", own / "half.h5", program=HERE / "mortal_rank.py")
    assert process.returncode == -signal.SIGKILL
    change_a_byte(own / "mine.py")
    return own


def test_a_changed_extension_is_refused(stopped: Path) -> None:
    attempts: list[tuple[object, ...]] = [
        ("run", stopped / "all.toml", "-o", stopped / "half.h5", "--resume"),
        ("run", stopped / "done.h5", "-o", stopped / "again.h5"),
        ("audit", stopped / "done.h5"),
    ]
    for attempt in attempts:
        process = command(*attempt)
        assert process.returncode == 2, attempt
        (sentence,) = sentences(process)
        assert f"{stopped / 'mine.py'} has changed" in sentence


def test_ranks_with_different_contents_are_refused(own: Path) -> None:
    process = command("run", own / "all.toml", "-o", own / "out.h5", ranks=2, program=HERE / "two_minds.py")
    assert process.returncode == 2
    (sentence,) = sentences(process)
    assert str(own / "mine.py") in sentence
    assert not (own / "out.h5").exists()


def test_the_fingerprint_depends_on_the_extension(own: Path) -> None:
    before = fingerprint(load_experiment(own / "all.toml").configs[0])
    assert fingerprint(load_experiment(own / "all.toml").configs[0]) == before
    change_a_byte(own / "mine.py")
    assert fingerprint(load_experiment(own / "all.toml").configs[0]) != before
