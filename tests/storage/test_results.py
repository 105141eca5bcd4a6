"""The HDF5 file: layout, self-description, xarray, pandas, tables, and files that are none."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from handmade import star_file
from support import MakeConfig, result_of

import dpadmm_mpi
from dpadmm_mpi.errors import InputError, unreported_writes
from dpadmm_mpi.methods import parse
from dpadmm_mpi.methods.decentralised.algorithm import NetworkNodes, State
from dpadmm_mpi.storage import recorder
from dpadmm_mpi.storage.layout import small_integers
from dpadmm_mpi.storage.result import accounts, is_proven, words_for


@pytest.fixture(scope="module")
def file(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "out.h5"
    result_of(shared_config("mr-admm", "objective", runs=3, iterations=5), path)
    return path


SHAPES = {
    "iteration": (6,), "node": (6,), "run": (3,),
    "loss": (3, 6), "node_loss": (3, 6, 6), "objective": (3, 6), "consensus_error": (3, 6), "test_error": (3, 6),
    "kkt_residual": (3, 6, 6), "privacy/bound": (6,), "privacy/node_bound": (6, 6), "privacy/tight": (6,),
    "privacy/node_tight": (6, 6), "privacy/alpha": (6, 6), "algorithm/eta": (6, 6), "graph/edges": (6, 2),
    "data/sizes": (6,), "data/node_of_record": (240,), "final/primal": (3, 6, 4), "final/dual": (3, 6, 4),
    "trajectory": (3, 6, 6, 4), "timing/compute_seconds": (3, 6, 6), "timing/owner": (6,),
}  # fmt: skip


def test_layout(file: Path) -> None:
    """Names and shapes as documented, float64 or whole numbers, every axis with its dimension scale."""
    with h5py.File(file) as f:
        for name, shape in SHAPES.items():
            assert f[name].shape == shape, name
            assert f[name].dtype == np.float64 or f[name].dtype.kind == "i", name
            if not f[name].is_scale:
                assert all(len(dim) == 1 for dim in f[name].dims), name
        assert [dim[0].name for dim in f["node_loss"].dims] == ["/run", "/iteration", "/node"]
        for key in ("format", "format_version", "software", "softwareVersion", "date", "config", "config_sha256",
                    "complete", "softwareDependencies"):  # fmt: skip
            assert key in f.attrs, key
        assert f.attrs["format"] == "dpadmm_mpi"
        assert f.attrs["complete"]
        assert np.isfinite(f["loss"]).all()


def test_every_object_explains_itself(file: Path, tmp_path: Path) -> None:
    """Words, unit and references on every dataset, coordinates included, a title on every group; of all families."""
    star: dict[str, Any] = {
        "algorithm": {"method": "ps-admm", "inner_steps": 2},
        "privacy": {"perturbation": "gaussian", "target": 2.0},
    }
    curated: dict[str, Any] = {"algorithm": {"method": "dp-admm"}, "privacy": {"perturbation": "gaussian", "target": 2.0}}
    faulty = {"network": {"faults": {"loss": 0.3}, "time": {"latency": 0.02}}}
    for name, raw in (("star", star), ("curated", curated), ("faulty", faulty)):
        table: dict[str, Any] = {"iterations": 2, "data": {"records": 60, "features": 3}, **raw}
        dpadmm_mpi.run(table, tmp_path / f"{name}.h5")
    for path in (file, *tmp_path.glob("*.h5")):
        with h5py.File(path) as f:
            objects: dict[str, Any] = {"/": f}
            f.visititems(objects.__setitem__)
            for name, item in objects.items():
                wanted = ["references", *(["title"] if isinstance(item, h5py.Group) else ["long_name", "description"])]
                wanted += ["units"] if isinstance(item, h5py.Dataset) and item.dtype.kind in "if" else []
                assert not [key for key in wanted if not item.attrs.get(key)], name
                assert item.attrs["references"] != "none" and not str(item.attrs.get("long_name")).endswith("a coordinate"), (
                    name
                )
            assert f.attrs["Conventions"].startswith("CF-")
            assert f["timing/compute_seconds"].attrs["units"] == "s"
    loaded = dpadmm_mpi.load(file)
    assert words_for(loaded, "loss").axis == "mean loss"  # a pure number needs no unit at an axis
    assert "Information Forensics and Security, 2020" in loaded.attributes["/"]["references"]


def test_whole_numbers_take_few_bytes_and_come_back_as_they_were(tmp_path: Path) -> None:
    """A number and a node for each of 20,000 records: a byte of each at most, where both were eight."""
    path = tmp_path / "many.h5"
    dpadmm_mpi.run({"iterations": 1, "data": {"records": 20_000, "features": 2}}, path)
    with h5py.File(path) as f:
        assert f["data/node_of_record"].dtype == np.int8 and f["data/record"].dtype == np.int16
        assert sum(f[name].id.get_storage_size() for name in ("data/node_of_record", "data/record")) < 20_000
    loaded = dpadmm_mpi.load(path)
    assert loaded["data/record"].dtype == np.int64 and np.array_equal(loaded["data/record"], np.arange(20_000))
    assert np.bincount(loaded["data/node_of_record"] + 1).tolist()[1:] == loaded["data/sizes"].tolist()


@pytest.mark.parametrize(("largest", "bytes_"), [(127, 1), (128, 2), (32_767, 2), (32_768, 4), (2**31 - 1, 4), (2**31, 8)])
def test_the_smallest_type_that_holds_all(largest: int, bytes_: int) -> None:
    for values in (np.array([0, largest]), np.array([-largest - 1, 5])):
        small = small_integers(values)
        assert (small.itemsize, small.tolist()) == (bytes_, values.tolist())


def test_configuration_in_the_file_is_the_resolved_one(file: Path) -> None:
    import hashlib
    import tomllib

    attributes = dpadmm_mpi.load(file).attributes["/"]
    resolved = tomllib.loads(attributes["config"])
    assert resolved["algorithm"]["gamma"] == 0.5  # a default, filled in
    assert parse(resolved).seed == 11
    assert hashlib.sha256(attributes["config"].encode()).hexdigest() == attributes["config_sha256"]


def test_memory_and_file_hold_the_same(config: MakeConfig, tmp_path: Path) -> None:
    raw = config("r-admm", "primal", runs=2)
    in_memory = result_of(raw)
    from_file = result_of(raw, tmp_path / "out.h5")
    loaded = dpadmm_mpi.load(tmp_path / "out.h5")
    for name, values in in_memory.arrays.items():
        if not name.startswith("timing"):
            assert values.tobytes() == from_file[name].tobytes() == loaded[name].tobytes()


def test_every_nth_iteration_and_the_last(config: MakeConfig) -> None:
    """Fewer rows of the same run; privacy is that of the recorded iterations."""
    full = result_of(config("r-admm", "objective", iterations=8))
    some = result_of(config("r-admm", "objective", iterations=8, record={"every": 3, "trajectory": False}))
    assert some.iteration.tolist() == [0, 3, 6, 8]
    for name in ("loss", "node_loss", "test_error"):
        assert np.array_equal(some[name], full[name][:, [0, 3, 6, 8]])
    assert np.array_equal(some.bound, full.bound[[0, 3, 6, 8]])
    # The residual of a row is the largest since the row before: nothing hides between the rows.
    assert np.array_equal(some["kkt_residual"][0, 1], np.fmax(full["kkt_residual"][0, 1], full["kkt_residual"][0, 3]))
    assert "trajectory" not in some


def test_to_xarray(file: Path) -> None:
    dataset = dpadmm_mpi.load(file).to_xarray()
    assert dataset["loss"].dims == ("run", "iteration")
    assert dataset["privacy/node_bound"].dims == ("iteration", "node")
    assert dataset["loss"].mean("run").sel(iteration=5) == pytest.approx(dpadmm_mpi.load(file).loss[:, 5].mean())
    assert dataset.attrs["complete"]


def test_to_pandas(file: Path) -> None:
    """A row for each run and iteration; measurements as they are, the accounts repeated in every run."""
    result = dpadmm_mpi.load(file)
    frame = result.to_pandas()
    assert list(frame) == ["run", "iteration", "loss", "test_error", "objective", "consensus_error", "distance_to_optimum",
                           "bound", "tight", "epsilon"]  # fmt: skip
    assert len(frame) == 3 * 6
    for row in frame.itertuples():
        assert row.loss == result.loss[row.run, row.iteration]
        assert row.epsilon == result["privacy/epsilon"][row.iteration]
    assert frame.groupby("iteration").loss.mean()[5] == pytest.approx(result.loss[:, 5].mean())


def test_to_pandas_keeps_what_was_reached_and_whatever_is_there(tmp_path: Path) -> None:
    path = star_file(tmp_path / "star.h5", extra=True)
    with h5py.File(path, "r+") as star:
        star["loss"][2, 20:] = np.nan
    frame = dpadmm_mpi.load(path).to_pandas()
    assert len(frame) == 3 * 31 + 20
    assert frame.groupby("run").iteration.max().tolist() == [30, 30, 19, 30]
    assert list(frame)[2:] == ["loss", "test_error", "objective", "objective_gap", "consensus_error", "gradient_norm",
                               "epsilon_paper", "epsilon_sound", "moments"]  # fmt: skip


def test_accounts_of_both_families(file: Path, tmp_path: Path) -> None:
    """Name and title, the paper's first; node datasets and parameters are none."""
    assert accounts(dpadmm_mpi.load(file)) == [
        ("bound", "P(t), the paper's bound"), ("tight", "tighter pure bound"), ("epsilon", "epsilon (delta 1e-05)"),
    ]  # fmt: skip
    star = dpadmm_mpi.load(star_file(tmp_path / "star.h5", extra=True))
    assert accounts(star) == [
        ("epsilon_paper", "paper's epsilon (delta 0.001)"), ("epsilon_sound", "sound epsilon (delta 0.001)"),
        ("moments", "moments"),
    ]  # fmt: skip
    assert [is_proven(star, name) for name, _ in accounts(star)] == [False, True, False]


def test_opens_in_xarray_without_this_package(file: Path) -> None:
    import xarray as xr

    with xr.open_dataset(file, engine="h5netcdf") as dataset:
        assert dataset["node_loss"].dims == ("run", "iteration", "node")
        assert np.array_equal(dataset["loss"], dpadmm_mpi.load(file).loss)
    with xr.open_dataset(file, engine="h5netcdf", group="privacy") as dataset:
        assert dataset["bound"].dims == ("iteration",)


def test_files_that_are_none(tmp_path: Path, file: Path) -> None:
    (tmp_path / "text.h5").write_text("hello")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = 1
    (tmp_path / "cut.h5").write_bytes(file.read_bytes()[:5000])
    refused = {
        "missing": "no such file",
        "text": "not a readable HDF5 file",
        "other": "not one of dpadmm_mpi's",
        "cut": "cut short or damaged",
    }
    for name, sentence in refused.items():
        with pytest.raises(InputError, match=sentence):
            dpadmm_mpi.load(tmp_path / f"{name}.h5")


def test_rows_reach_the_disk_before_the_mark_of_completion(
    config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush at the latest every `checkpoint` iterations, also when not every iteration has a row; complete comes last."""
    events: list[int | str] = []
    flush, set_attribute = h5py.File.flush, h5py.AttributeManager.modify

    def noted_flush(self: h5py.File) -> Any:
        events.append(int(np.isfinite(self["loss"][0]).sum()) if "loss" in self else -1)
        return flush(self)

    def noted_attribute(self: h5py.AttributeManager, name: str, value: Any) -> Any:
        if name == "complete" and value:
            events.append("complete")
        return set_attribute(self, name, value)

    monkeypatch.setattr(h5py.File, "flush", noted_flush)
    monkeypatch.setattr(h5py.AttributeManager, "modify", noted_attribute)
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 1e9)
    result_of(config(iterations=20, record={"every": 3, "checkpoint": 7, "trajectory": False}), tmp_path / "o.h5")

    def rows() -> list[int]:
        """Rows in the file at each flush, without those of the set-up."""
        return [event for event in events if isinstance(event, int) and event > 0]

    assert rows()[:3] == [4, 7, 8]  # iterations 9 and 18 are the first ones at least 7 after the flush before; then the end
    assert events.index("complete") == len(events) - 2
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", -1.0)
    events.clear()
    result_of(config(iterations=4, record={"checkpoint": 1000}), tmp_path / "p.h5")
    assert rows()[:5] == [1, 2, 3, 4, 5]


def test_a_result_introduces_itself(file: Path) -> None:
    result = dpadmm_mpi.load(file)
    assert len(repr(result)) < 1000
    assert "privacy/bound" in repr(result)
    with pytest.raises(KeyError, match=r"losss; there are .*loss"):
        result["losss"]


def test_run_wants_one_configuration() -> None:
    raw = {"variant": [{"name": "a"}, {"name": "b"}], "iterations": 1, "data": {"records": 50, "features": 3}}
    with pytest.raises(InputError, match='choose one of "a", "b"'):
        result_of(raw)
    assert result_of(raw, only="b").name == "b"


def test_what_was_recorded_before_a_failure_is_kept(
    config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All iterations before the one that fails, the last of them too."""
    work = NetworkNodes.work

    def fail(self: NetworkNodes, state: State, t: int, runs: range, phase: int) -> State:
        if t == 7:
            raise dpadmm_mpi.RunError("planted")
        return work(self, state, t, runs, phase)

    monkeypatch.setattr(NetworkNodes, "work", fail)
    with pytest.raises(dpadmm_mpi.RunError, match="planted"):
        result_of(config("admm", iterations=20), tmp_path / "out.h5")
    loss = dpadmm_mpi.load(tmp_path / "out.h5")["loss"][0]
    assert np.isfinite(loss[:7]).all()
    assert np.isnan(loss[7:]).all()


def test_a_write_that_fails_without_a_word_is_never_marked_complete(
    config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What h5py could not write while it forgot an object was noted by the command line; the next log is not blamed for it."""
    put_rows = recorder.Recorder._put_rows

    def fail(self: recorder.Recorder, run: int, row: int, blocks: dict[str, Any]) -> None:
        put_rows(self, run, row, blocks)
        unreported_writes.append("planted")

    monkeypatch.setattr(recorder.Recorder, "_put_rows", fail)
    with pytest.raises(dpadmm_mpi.RunError, match=r"out.h5 cannot be written \(planted\); .*--resume"):
        result_of(config("admm", iterations=3), tmp_path / "out.h5")
    assert not dpadmm_mpi.load(tmp_path / "out.h5").complete
    monkeypatch.setattr(recorder.Recorder, "_put_rows", put_rows)
    assert result_of(config("admm", iterations=3), tmp_path / "other.h5").complete
