"""The HDF5 file: layout, self-description, xarray, and files that are none."""

import h5py
import numpy as np
import pytest

import dpadmm_mpi
from dpadmm_mpi.config import parse
from dpadmm_mpi.errors import InputError


@pytest.fixture
def file(config, tmp_path):
    path = tmp_path / "out.h5"
    dpadmm_mpi.run(config("mr-admm", "objective", runs=3, iterations=5), path)
    return path


SHAPES = {
    "iteration": (6,), "node": (6,), "run": (3,),
    "loss": (3, 6), "node_loss": (3, 6, 6), "objective": (3, 6), "consensus_error": (3, 6), "test_error": (3, 6),
    "kkt_residual": (3, 6, 6), "privacy/bound": (6,), "privacy/node_bound": (6, 6), "privacy/tight": (6,),
    "privacy/node_tight": (6, 6), "privacy/alpha": (6, 6), "algorithm/eta": (6, 6), "graph/edges": (6, 2),
    "data/sizes": (6,), "data/node_of_record": (240,), "final/primal": (3, 6, 4), "final/dual": (3, 6, 4),
    "trajectory": (3, 6, 6, 4), "timing/compute_seconds": (3, 6, 6), "timing/owner": (6,),
}  # fmt: skip


def test_layout(file):
    """Names and shapes as documented, float64 or int64, every axis with its dimension scale."""
    with h5py.File(file) as f:
        for name, shape in SHAPES.items():
            assert f[name].shape == shape, name
            assert f[name].dtype in (np.float64, np.int64), name
            if not f[name].is_scale:
                assert all(len(dim) == 1 for dim in f[name].dims), name
        assert [dim[0].name for dim in f["node_loss"].dims] == ["/run", "/iteration", "/node"]
        for key in ("format", "format_version", "software", "softwareVersion", "date", "config", "config_sha256",
                    "complete", "softwareDependencies"):  # fmt: skip
            assert key in f.attrs, key
        assert f.attrs["format"] == "dpadmm_mpi"
        assert f.attrs["complete"]
        assert np.isfinite(f["loss"]).all()


def test_configuration_in_the_file_is_the_resolved_one(file):
    import hashlib
    import tomllib

    attributes = dpadmm_mpi.load(file).attributes["/"]
    resolved = tomllib.loads(attributes["config"])
    assert resolved["algorithm"]["gamma"] == 0.5  # a default, filled in
    assert parse(resolved).seed == 11
    assert hashlib.sha256(attributes["config"].encode()).hexdigest() == attributes["config_sha256"]


def test_memory_and_file_hold_the_same(config, tmp_path):
    raw = config("r-admm", "primal", runs=2)
    in_memory = dpadmm_mpi.run(raw)
    from_file = dpadmm_mpi.run(raw, tmp_path / "out.h5")
    loaded = dpadmm_mpi.load(tmp_path / "out.h5")
    for name, values in in_memory.arrays.items():
        if not name.startswith("timing"):
            assert values.tobytes() == from_file[name].tobytes() == loaded[name].tobytes()


def test_every_nth_iteration_and_the_last(config):
    """Fewer rows of the same run; privacy is that of the recorded iterations."""
    full = dpadmm_mpi.run(config("r-admm", "objective", iterations=8))
    some = dpadmm_mpi.run(config("r-admm", "objective", iterations=8, record={"every": 3, "trajectory": False}))
    assert some.iteration.tolist() == [0, 3, 6, 8]
    for name in ("loss", "node_loss", "test_error"):
        assert np.array_equal(some[name], full[name][:, [0, 3, 6, 8]])
    assert np.array_equal(some.bound, full.bound[[0, 3, 6, 8]])
    # The residual of a row is the largest since the row before: nothing hides between the rows.
    assert np.array_equal(some["kkt_residual"][0, 1], np.fmax(full["kkt_residual"][0, 1], full["kkt_residual"][0, 3]))
    assert "trajectory" not in some


def test_to_xarray(file):
    dataset = dpadmm_mpi.load(file).to_xarray()
    assert dataset["loss"].dims == ("run", "iteration")
    assert dataset["privacy/node_bound"].dims == ("iteration", "node")
    assert dataset["loss"].mean("run").sel(iteration=5) == pytest.approx(dpadmm_mpi.load(file).loss[:, 5].mean())
    assert dataset.attrs["complete"]


def test_opens_in_xarray_without_this_package(file):
    import xarray as xr

    with xr.open_dataset(file, engine="h5netcdf") as dataset:
        assert dataset["node_loss"].dims == ("run", "iteration", "node")
        assert np.array_equal(dataset["loss"], dpadmm_mpi.load(file).loss)
    with xr.open_dataset(file, engine="h5netcdf", group="privacy") as dataset:
        assert dataset["bound"].dims == ("iteration",)


def test_files_that_are_none(tmp_path, file):
    (tmp_path / "text.h5").write_text("hello")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = 1
    (tmp_path / "cut.h5").write_bytes(file.read_bytes()[:5000])
    refused = {"missing": "no such file", "text": "not a readable HDF5 file", "other": "not one of dpadmm_mpi's", "cut": "cut"}
    for name, sentence in refused.items():
        with pytest.raises(InputError, match=sentence):
            dpadmm_mpi.load(tmp_path / f"{name}.h5")


def test_rows_reach_the_disk_before_the_mark_of_completion(config, tmp_path, monkeypatch):
    """A flush at the latest every `checkpoint` iterations, also when not every iteration has a row; complete comes last."""
    from dpadmm_mpi import recorder

    events = []
    flush, set_attribute = h5py.File.flush, h5py.AttributeManager.__setitem__

    def noted_flush(self):
        events.append(int(np.isfinite(self["loss"][0]).sum()) if "loss" in self else -1)
        return flush(self)

    def noted_attribute(self, name, value):
        if name == "complete" and value:
            events.append("complete")
        return set_attribute(self, name, value)

    monkeypatch.setattr(h5py.File, "flush", noted_flush)
    monkeypatch.setattr(h5py.AttributeManager, "__setitem__", noted_attribute)
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 1e9)
    dpadmm_mpi.run(config(iterations=20, record={"every": 3, "checkpoint": 7, "trajectory": False}), tmp_path / "o.h5")
    rows = [event for event in events if isinstance(event, int)]
    assert rows[1:4] == [4, 7, 8]  # iterations 9 and 18 are the first ones at least 7 after the flush before; then the end
    assert events.index("complete") == len(events) - 2
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", -1.0)
    events.clear()
    dpadmm_mpi.run(config(iterations=4, record={"checkpoint": 1000}), tmp_path / "p.h5")
    assert events[1:6] == [1, 2, 3, 4, 5]


def test_a_result_introduces_itself(file):
    result = dpadmm_mpi.load(file)
    assert len(repr(result)) < 1000
    assert "privacy/bound" in repr(result)
    with pytest.raises(KeyError, match=r"losss; there are .*loss"):
        result["losss"]


def test_run_wants_one_configuration():
    raw = {"variant": [{"name": "a"}, {"name": "b"}], "iterations": 1, "data": {"records": 50, "features": 3}}
    with pytest.raises(InputError, match='choose one of "a", "b"'):
        dpadmm_mpi.run(raw)
    assert dpadmm_mpi.run(raw, only="b").name == "b"
