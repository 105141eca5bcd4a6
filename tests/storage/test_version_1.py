"""Result files and checkpoints of format version 1, which say less about themselves, stay readable and resumable."""

import hashlib
import tomllib
from pathlib import Path

import h5py
import msgspec
import numpy as np
import pytest
from support import PROGRAMS, command, result_of

import dpadmm_mpi
from dpadmm_mpi import plots
from dpadmm_mpi.reports.html import page
from dpadmm_mpi.storage.checkpoint import Checkpoint, restart_folder
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.storage.journal import Entry, entries, frame, read_frame
from dpadmm_mpi.storage.result import accounts, words_for

COMMON = """\
name = "{name}"
seed = 11
runs = 2
iterations = 6

[data]
source = "synthetic"
train = 100
split = "even"
records = 120
features = 4
"""
RECORD = """
[record]
every = 1
trajectory = true
checkpoint = 1
optimum = false
"""
# As version 1 wrote them: keys that have come since are not there, and every noise said whether a proof is needed.
TEXTS = {
    "network": """
[network]
graph = "ring"
nodes = 5

[problem]
loss = "logistic"
C = 3.0
rho = 0.5

[algorithm]
method = "mr-admm"
eta = 0.7
gamma = 0.5
init = "random"

[privacy]
perturbation = "objective"
alpha = 5.0
delta = 1e-05
allow_unproven = false
""",
    "star": """
[network]
nodes = 5

[problem]
loss = "logistic"
reg = 0.0001

[algorithm]
method = "ps-admm"
eta = "auto"
rho = 1.0
inner_steps = 10
averaging = "uniform"
init = "zero"

[privacy]
perturbation = "gaussian"
noise_std = 0.5
delta = 1e-05
""",
    "curated": """
[network]
nodes = 5

[problem]
loss = "logistic"
lambda1 = 1e-05
regulariser = "l1"
map = "identity"

[algorithm]
method = "dp-acc-admm"
eta = "auto"
gamma = "auto"
rho = 1.0
u0 = "zero"
restart = false
init = "zero"

[privacy]
perturbation = "gaussian"
noise_std = 0.05
delta = 1e-05
""",
}
each_family = pytest.mark.parametrize("family", TEXTS)
NEW_ATTRIBUTES = ("title", "column", "units", "scale", "lower_is_better", "long_name", "references", "Conventions")


def text_of(family: str) -> str:
    return COMMON.format(name=family) + TEXTS[family] + RECORD


def make_old(path: Path, text: str) -> None:
    """Take from a new file what version 1 did not have."""
    with h5py.File(path, "r+") as file:
        file.attrs["format_version"] = 1
        file.attrs["config"] = text
        file.attrs["config_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        del file.attrs["extensions"]
        sizes = file["data/sizes"][...]
        del file["data/sizes"]
        file.create_dataset("data/sizes", data=sizes.astype(np.int64)).dims[0].attach_scale(file["node"])

        def strip(name: str, item: h5py.HLObject) -> None:
            for key in NEW_ATTRIBUTES:
                if key in item.attrs and not name.startswith("timing"):
                    del item.attrs[key]

        file.visititems(strip)


@pytest.fixture
def old(tmp_path: Path, family: str) -> Path:
    path = tmp_path / "old.h5"
    result_of(tomllib.loads(text_of(family)), path)
    make_old(path, text_of(family))
    return path


@each_family
def test_it_is_shown_as_a_new_one(old: Path, family: str, tmp_path: Path) -> None:
    """Titles, columns and axes come from the metrics and accounts of the same names."""
    result_of(tomllib.loads(text_of(family)), tmp_path / "new.h5")
    new, loaded = dpadmm_mpi.load(tmp_path / "new.h5"), dpadmm_mpi.load(old)
    assert loaded.attributes["/"]["format_version"] == 1
    assert new.attributes["/"]["format_version"] == 4
    assert accounts(loaded) == accounts(new)
    for name in ("loss", "test_error", "objective", "consensus_error", "node_loss"):
        assert words_for(loaded, name) == words_for(new, name)
    shown = [command("show", path) for path in (old, tmp_path / "new.h5")]
    assert shown[0].returncode == 0
    assert shown[0].stdout == shown[1].stdout
    assert plots.svg([loaded], "overview") == plots.svg([new], "overview")
    assert "not proven" in page([loaded]) or family != "star"
    assert loaded.to_pandas().columns.tolist() == new.to_pandas().columns.tolist()


@each_family
def test_it_can_be_run_again_audited_and_compared(old: Path, family: str, tmp_path: Path) -> None:
    again = result_of(old, tmp_path / "again.h5")
    loaded = dpadmm_mpi.load(old)
    for name, values in loaded.arrays.items():
        if not name.startswith("timing"):
            assert values.tobytes() == again[name].tobytes(), name
    process = command("audit", old, "--candidates", 2)
    assert process.returncode == 0, process.stderr
    differences = list(compare(old, tmp_path / "again.h5"))
    assert differences
    assert all("@" in line for line in differences)  # attributes, and no number


@each_family
def test_a_finished_one_is_finished_and_can_be_extended(old: Path, family: str, tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(text_of(family))
    finished = command("run", tmp_path / "old.toml", "-o", old, "--resume")
    assert (finished.returncode, finished.stdout) == (0, f"finished before: {old}\n")
    assert command("status", tmp_path / "old.toml", "-o", old).stdout.endswith("1 done\n")
    extended = command("run", tmp_path / "old.toml", "-o", old, "--resume", "--set", "iterations=9")
    assert extended.returncode == 0, extended.stderr
    result_of(tomllib.loads(text_of(family)) | {"iterations": 9}, tmp_path / "nine.h5")
    assert list(compare(old, tmp_path / "nine.h5")) == []


def make_checkpoint_old(log: Path, text: str) -> None:
    """Write journal and checkpoints again with the configuration as version 1 had it."""
    folder = restart_folder(log)
    (journal,) = folder.glob("journal-*")
    name = f"journal-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    growth = 0
    content = b""
    with (folder / "checkpoint").open("rb") as file:
        length = msgspec.msgpack.decode(read_frame(file), type=Checkpoint).length  # what follows may be torn
    for entry in entries(journal, length):
        written = Entry("config", text=text, identity=entry.identity) if entry.kind == "config" else entry
        growth += len(frame(written)) - len(frame(entry))
        content += frame(written)
    journal.unlink()
    (folder / name).write_bytes(content)
    for path in folder.glob("checkpoint*"):
        with path.open("rb") as file:
            found = msgspec.msgpack.decode(read_frame(file), type=Checkpoint)
        moved = msgspec.structs.replace(found, journal=name, length=found.length + growth)
        path.write_bytes(frame(moved))
    make_old(log, text)


@each_family
def test_a_killed_one_goes_on(family: str, tmp_path: Path) -> None:
    """As a run of version 1 leaves it when it is killed: the end is that of an undisturbed run."""
    config, out = tmp_path / "old.toml", tmp_path / "out.h5"
    config.write_text(text_of(family))
    killed = command(0, 32, "run", config, "-o", out, program=PROGRAMS / "mortal.py")
    assert killed.returncode == -9, killed.stderr
    make_checkpoint_old(out, text_of(family))
    assert np.isnan(dpadmm_mpi.load(out).loss).any()
    process = command("run", config, "-o", out, "--resume")
    assert process.returncode == 0, process.stderr
    assert "damaged" not in process.stderr
    result_of(tomllib.loads(text_of(family)), tmp_path / "undisturbed.h5")
    assert list(compare(tmp_path / "undisturbed.h5", out)) == []
    assert not restart_folder(out).exists()
