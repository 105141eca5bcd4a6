"""What the fuzzing begins with: configurations of all families, a file of each format, results, and a run that was stopped."""

import io
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fuzz.judging import say
from fuzz.mutations import Case

KEPT = Path(__file__).parent / "corpus"  # files that a person has written

COMMANDS_ON_RESULTS: tuple[tuple[str, ...], ...] = (
    ("show", "r.h5"),
    ("show", "r.h5", "--csv"),
    ("show", "r.h5", "--json"),
    ("show", "r.h5", "--latex"),
    ("show", "r.h5", "--against", "0,1"),
    ("plot", "r.h5", "-o", "new.png"),
    ("plot", "r.h5", "other.h5", "-o", "new.svg", "--kind", "loss-privacy"),
    ("plot", "r.h5", "-o", "new.png", "--kind", "nodes"),
    ("plot", "r.h5", "-o", "new.png", "--kind", "network"),
    ("plot", "r.h5", "-o", "new.png", "--kind", "partition"),
    ("report", "r.h5", "-o", "new.html"),
    ("watch", "r.h5", "--once"),
    ("diff", "r.h5", "other.h5"),
    ("audit", "r.h5", "--candidates", "1", "--adversaries", "0"),
    ("attack", "r.h5"),
    ("compose", "r.h5", "other.h5"),
    ("status", "c.toml", "-o", "r.h5"),
    ("run", "r.h5", "-o", "new.h5"),
    ("run", "c.toml", "-o", "r.h5", "--resume", "--set", "iterations=5"),
)


def numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(24, 3)).round(3)
    return X / np.linalg.norm(X, axis=1, keepdims=True).max(), np.where(rng.random(24) < 0.5, -1.0, 1.0)


def npz(**arrays: Any) -> bytes:
    memory = io.BytesIO()
    np.savez(memory, **arrays)
    return memory.getvalue()


def data_files() -> dict[str, bytes]:
    """A file of each format, by its name, all of the same records."""
    X, y = numbers()
    rows = [
        f"{v:g}," + ",".join(f"{a:.4f}" for a in x) + "," + ("a", "b")[k % 2] for k, (x, v) in enumerate(zip(X, y, strict=True))
    ]
    lines = [f"{v:+g} " + " ".join(f"{j + 1}:{a:.4f}" for j, a in enumerate(x)) for x, v in zip(X, y, strict=True)]
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        file["X"], file["y"] = X, y
    sparse = {"data": np.ones(24), "indices": np.zeros(24, dtype=np.int32), "indptr": np.arange(25), "shape": np.array([24, 3])}
    return {
        "records.csv": ("label,one,two,three,colour\n" + "\n".join(rows) + "\n").encode(),
        "records.libsvm": ("\n".join(lines) + "\n").encode(),
        "records.npz": npz(X=X, y=y),
        "sparse.npz": npz(y=y, **sparse),
        "records.h5": memory.getvalue(),
    }


def _config(text: str) -> bytes:
    return (KEPT / text).read_bytes()


def _beside() -> dict[str, bytes]:
    """What configurations refer to."""
    kept = {path.name: path.read_bytes() for path in KEPT.glob("*") if path.suffix in (".txt", ".csv")}
    return {**kept, **data_files(), "map.npz": npz(A=np.eye(3))}


def config_seeds() -> list[Case]:
    """Every kept configuration, checked and run."""
    found = []
    beside = _beside()
    for path in sorted(KEPT.glob("*.toml")):
        files = {"c.toml": path.read_bytes(), **beside}
        target = "new" if b"[sweep]" in path.read_bytes() else "new.h5"
        found += [Case(files, ("check", "c.toml"), "c.toml"), Case(files, ("run", "c.toml", "-o", target), "c.toml")]
    return found


def data_seeds() -> list[Case]:
    """Each format in a run and before `data info`; a graph, a partition and a map from files."""
    found = []
    for name, content in data_files().items():
        kind = {"csv": "csv", "libsvm": "libsvm", "npz": "npz", "h5": "hdf5"}[name.split(".")[-1]]
        steps = 'preprocess = ["drop-missing", "one-hot", "scale-rows"]' if kind == "csv" else 'preprocess = ["scale-rows"]'
        config = f'iterations = 1\n[data]\nsource = "{kind}"\npath = "{name}"\n{steps}\n[network]\nnodes = 2\n'
        files = {"c.toml": config.encode(), name: content}
        found += [Case(files, ("check", "c.toml"), name), Case(files, ("data", "info", name), name)]
    for config, damaged in (
        ("edges.toml", "edges.txt"),
        ("parts.toml", "nodes.csv"),
        ("faults.toml", "trace.txt"),
        ("faults.toml", "graphs.txt"),
        ("map.toml", "map.csv"),
        ("map-npz.toml", "map.npz"),
    ):
        found.append(Case({**_beside(), config: _config(config)}, ("check", config), damaged))
    return found


def made() -> tuple[dict[str, bytes], dict[str, bytes], bytes]:
    """A result and another one; a result with its restart folder; their configuration."""
    config = _config("run.toml")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "c.toml").write_bytes(config)
        assert say(("run", "c.toml", "-o", "r.h5"), place).code == 0
        assert say(("run", "c.toml", "-o", "other.h5", "--set", "seed=2"), place).code == 0
        assert say(("run", "c.toml", "-o", "s.h5", "--walltime", "0:00"), place).code == 75
        results = {name: (place / name).read_bytes() for name in ("r.h5", "other.h5")}
        stopped = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("s.h5*/*")} | {
            "s.h5": (place / "s.h5").read_bytes()
        }
    return results, stopped, config


def result_seeds(results: dict[str, bytes], config: bytes) -> list[Case]:
    files = {**results, "c.toml": config}
    return [Case(files, words, "r.h5") for words in COMMANDS_ON_RESULTS]


def restart_seeds(stopped: dict[str, bytes], config: bytes) -> list[Case]:
    files = {**stopped, "c.toml": config}
    commands = (("run", "c.toml", "-o", "s.h5", "--resume"), ("status", "c.toml", "-o", "s.h5"), ("watch", "s.h5", "--once"))
    damaged = [name for name in stopped if not name.endswith("lock")]
    return [Case(files, words, name) for words in commands for name in damaged]


def all_seeds() -> list[Case]:
    results, stopped, config = made()
    return [*config_seeds(), *data_seeds(), *result_seeds(results, config), *restart_seeds(stopped, config)]
