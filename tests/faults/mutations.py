"""Result files as they must not be: each mutation takes a good file, open for writing, and spoils one thing.

A mutation that a reader can do without (an object that no command needs) is listed in HARMLESS: these are read as before.
"""

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

SCALES = ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")  # HDF5's own bookkeeping

Mutation = Callable[[h5py.File], None]


def _replaced(file: h5py.File, name: str, values: Any, scales: bool = True, **options: Any) -> None:
    """Other values in place of a dataset, with its attributes, and its scales where the shape allows."""
    old = file[name]
    attributes = {
        key: value for key, value in old.attrs.items() if key not in ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")
    }
    dims = [axis.values()[0].name if axis.values() else None for axis in old.dims]
    del file[name]
    new = file.create_dataset(name, data=values, **options)
    for key, value in attributes.items():
        new.attrs[key] = value
    for axis, dim in enumerate(dims if scales else []):
        if dim is not None and axis < new.ndim and dim in file:
            new.dims[axis].attach_scale(file[dim])


def missing(name: str) -> Mutation:
    def spoil(file: h5py.File) -> None:
        del file[name]

    return spoil


def without_attribute(name: str, key: str) -> Mutation:
    def spoil(file: h5py.File) -> None:
        del file[name].attrs[key]

    return spoil


def attribute(name: str, key: str, value: Any) -> Mutation:
    def spoil(file: h5py.File) -> None:
        if key in file[name].attrs:
            del file[name].attrs[key]
        file[name].attrs[key] = value

    return spoil


def values(name: str, change: Callable[[Any], Any], **options: Any) -> Mutation:
    return lambda file: _replaced(file, name, change(file[name][...]), **options)


def entry(name: str, value: Any) -> Mutation:
    """One number of a dataset; a whole number as near to it as the dataset's type can hold."""

    def spoil(file: h5py.File) -> None:
        kind = file[name].dtype
        fits = np.clip(value, np.iinfo(kind).min, np.iinfo(kind).max) if kind.kind == "i" else value
        file[name][(0,) * file[name].ndim] = fits

    return spoil


def linked(name: str, link: Callable[[h5py.File], Any]) -> Mutation:
    def spoil(file: h5py.File) -> None:
        del file[name]
        file[name] = link(file)

    return spoil


def _text(array: Any) -> Any:
    return np.array([str(value) for value in np.ravel(array)], dtype=h5py.string_dtype())


def _compound(array: Any) -> Any:
    return np.array([(1, 2.0)] * max(1, len(array)), dtype=[("a", "i8"), ("b", "f8")])


def _stranger(name: str) -> Mutation:
    def spoil(file: h5py.File) -> None:
        del file[name]
        file.create_group(name)

    return spoil


def _huge(file: h5py.File) -> None:
    del file["loss"]
    file.create_dataset("loss", shape=(2, 1 << 40), dtype="f8", chunks=(1, 1 << 16))


def _external_bytes(file: h5py.File) -> None:
    del file["loss"]
    file.create_dataset("loss", shape=(2, 4), dtype="f8", external=[("/dev/zero", 0, h5py.h5f.UNLIMITED)])


def _virtual(file: h5py.File) -> None:
    del file["loss"]
    layout = h5py.VirtualLayout(shape=(2, 4), dtype="f8")
    layout[...] = h5py.VirtualSource("elsewhere.h5", "loss", shape=(2, 4))
    file.create_virtual_dataset("loss", layout)


def _references(file: h5py.File) -> None:
    del file["data/sizes"]
    file.create_dataset("data/sizes", data=np.array([file["run"].ref] * 5, dtype=h5py.ref_dtype))


def _named_type(file: h5py.File) -> None:
    file["graph/type"] = np.dtype("f8")


def _wrong_scale(file: h5py.File) -> None:
    file["loss"].dims[0].detach_scale(file["run"])
    file["loss"].dims[0].attach_scale(file["node"])


def _no_scale(file: h5py.File) -> None:
    file["loss"].dims[1].detach_scale(file["iteration"])


def _invalid_utf8(file: h5py.File) -> None:
    del file.attrs["name"]
    file.attrs.create("name", b"\xff\xfe\xfd", dtype=h5py.string_dtype("utf-8"))


def _many_objects(file: h5py.File) -> None:
    for k in range(2_050):
        file.create_group(f"many/{k}")


REQUIRED = (
    "run", "iteration", "node", "feature", "loss", "timing", "timing/compute_seconds", "timing/wait_seconds",
    "timing/bytes_sent", "timing/owner", "graph", "graph/edges", "graph/end", "graph/edge", "data", "data/node_of_record",
    "data/record", "data/sizes", "restart", "restart/state", "restart/number", "privacy/bound", "privacy/node_bound",
    "privacy/node_epsilon", "privacy/curve", "privacy/renyi",
    "privacy/curve_epsilon", "privacy/renyi_order", "data/label", "data/label_distance", "data/label_counts",
)  # fmt: skip
NUMERIC = (
    "loss",
    "iteration",
    "node",
    "timing/owner",
    "graph/edges",
    "data/sizes",
    "privacy/bound",
    "privacy/curve",
    "trajectory",
)
TEXT_KEYS = (
    ("/", "name"), ("/", "config"), ("/", "config_sha256"), ("/", "notes"), ("loss", "title"), ("loss", "column"),
    ("loss", "units"),
    ("privacy/bound", "theorem"), ("privacy/bound", "neighbouring_relation"), ("privacy/bound", "title"), ("data", "source"),
    ("restart/state", "fields"),
)  # fmt: skip

MUTATIONS: dict[str, Mutation] = {
    **{f"missing {name}": missing(name) for name in REQUIRED},
    **{f"{name} as text": values(name, _text, scales=False) for name in NUMERIC},
    **{f"{name} as pairs": values(name, _compound, scales=False) for name in NUMERIC},
    **{f"{name} without entries": values(name, lambda a: a[:0], scales=False) for name in NUMERIC},
    **{f"{name} with an axis more": values(name, lambda a: a[..., None], scales=False) for name in NUMERIC},
    **{f"{name} as one number": values(name, lambda a: a.ravel()[0], scales=False) for name in NUMERIC},
    **{f"{name} as bytes": values(name, lambda a: a.astype(np.uint8)) for name in ("loss", "iteration", "data/sizes")},
    **{f"{name} with a row more": values(name, lambda a: np.concatenate([a, a[:1]])) for name in NUMERIC},
    **{f"{name} as a group": _stranger(name) for name in ("loss", "iteration", "node", "privacy/bound", "data/sizes")},
    **{f"attribute {key} of {name} as a number": attribute(name, key, 7) for name, key in TEXT_KEYS},
    **{f"attribute {key} of {name} as a list": attribute(name, key, [1.0, 2.0]) for name, key in TEXT_KEYS},
    **{
        f"no attribute {key} of {name}": without_attribute(name, key)
        for name, key in (
            ("/", "format"),
            ("/", "format_version"),
            ("/", "name"),
            ("/", "config"),
            ("/", "config_sha256"),
            ("/", "complete"),
            ("timing", "ranks"),
            ("timing", "hosts"),
            ("data", "source"),
            ("privacy/bound", "theorem"),
            ("privacy/bound", "proven"),
            ("privacy/tight", "neighbouring_relation"),
            ("restart/state", "fields"),
        )
    },
    "format of somebody else": attribute("/", "format", "other"),
    "format as a list": attribute("/", "format", ["dpadmm_mpi", "x"]),
    "a newer version": attribute("/", "format_version", 99),
    "version as text": attribute("/", "format_version", "three"),
    "version below 1": attribute("/", "format_version", -1),
    "complete as text": attribute("/", "complete", "yes"),
    "complete as a list": attribute("/", "complete", [True, False]),
    "a configuration that is no TOML": attribute("/", "config", "not = = toml"),
    "name not in UTF-8": _invalid_utf8,
    "a long list for a text": attribute("/", "notes", np.zeros(8_000)),
    "an attribute as a matrix": attribute("loss", "title", np.zeros((3, 3))),
    "an attribute as a pair": attribute("loss", "title", np.zeros(2, dtype=[("a", "i8"), ("b", "f8")])),
    "an attribute as a reference": lambda file: file["loss"].attrs.create("title", file["run"].ref, dtype=h5py.ref_dtype),
    "an empty attribute": lambda file: file["loss"].attrs.create("title", h5py.Empty("f8")),
    "delta as text": attribute("privacy/epsilon", "delta", "small"),
    "delta above 1": attribute("privacy/epsilon", "delta", 3.0),
    "proven as text": attribute("privacy/bound", "proven", "certainly"),
    "scale of an axis": attribute("loss", "scale", "cubic"),
    "no hosts": attribute("timing", "hosts", np.zeros(0)),
    "hosts as numbers": attribute("timing", "hosts", [1, 2]),
    "ranks below 1": attribute("timing", "ranks", 0),
    "seconds as text": attribute("timing", "seconds", "long"),
    "the optimum as text": attribute("optimum", "objective", "low"),
    "sizes as nan": values("data/sizes", lambda a: np.full(len(a), np.nan)),
    "a group inside itself": lambda file: file["graph"].__setitem__("again", file["graph"]),
    "the root inside a group": lambda file: file["graph"].__setitem__("root", file["/"]),
    "a dataset with two names": lambda file: file.__setitem__("loss_again", file["loss"]),
    "a soft link to nowhere": linked("loss", lambda file: h5py.SoftLink("/nowhere")),
    "a soft link to itself": linked("loss", lambda file: h5py.SoftLink("/loss")),
    "a soft link": linked("test_error", lambda file: h5py.SoftLink("/loss")),
    "an external link to a pipe": linked("loss", lambda file: h5py.ExternalLink("pipe", "/loss")),
    "an external link": linked("loss", lambda file: h5py.ExternalLink("good.h5", "/loss")),
    "an external group": lambda file: file.__setitem__("more", h5py.ExternalLink("good.h5", "/")),
    "bytes of a device": _external_bytes,
    "a virtual dataset": _virtual,
    "references for numbers": _references,
    "a type as an object": _named_type,
    "another scale": _wrong_scale,
    "no scale": _no_scale,
    "more than the file holds": _huge,
    "an empty dataset": lambda file: (file.__delitem__("loss"), file.create_dataset("loss", data=h5py.Empty("f8")))[0],
    "too many objects": _many_objects,
}

# Numbers that cannot be: found by whoever reads them.
IMPOSSIBLE: dict[str, Mutation] = {
    "sizes below 0": entry("data/sizes", -5),
    "edges to nowhere": entry("graph/edges", 10**9),
    "an owner below 0": entry("timing/owner", -1),
    "a record of no node": entry("data/node_of_record", 10**12),
    "iterations that do not grow": entry("iteration", 2),
    "iterations below 0": entry("iteration", -(2**62)),
    "counts below 0": entry("data/label_counts", -3),
    "node numbers beyond all": entry("node", 2**62),
}

# What is left when one takes these away is a file that commands can still read, or that says itself why not.
HARMLESS: dict[str, Mutation] = {
    "without a picture of the nodes": missing("node_loss"),
    "without schedules": missing("algorithm"),
    "without the optimum": missing("optimum"),
    "with something of one's own": lambda file: file.create_group("mine").attrs.__setitem__("note", "mine"),
}


def cut(content: bytes) -> dict[str, bytes]:
    """A file's bytes, damaged from outside."""
    spoilt = bytearray(content)
    for k in range(0, len(spoilt), 997):
        spoilt[k] ^= 0x5A
    return {
        "nothing": b"",
        "one byte": content[:1],
        "the signature alone": content[:8],
        "the first half": content[: len(content) // 2],
        "all but the last byte": content[:-1],
        "zeros": bytes(len(content)),
        "text": b"iterations = 3\n",
        "every 997th byte changed": bytes(spoilt),
        "the superblock changed": bytes([*content[:8], 77, *content[9:]]),
    }
