"""From a TOML file, its variants, its sweep and `--set` to a list of configurations."""

import itertools
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dpadmm_mpi.config.choices import CHOICES, perturbations
from dpadmm_mpi.config.options import DECENTRALISED, GAUSSIAN, Config
from dpadmm_mpi.config.reading import parse
from dpadmm_mpi.errors import InputError

PATH_KEYS = (("data", "path"), ("data", "test_path"), ("network", "path"), ("problem", "map_path"))

# Two ways to say the same thing: naming one leaves an inherited other behind.
ALTERNATIVES = {
    ("privacy", "alpha"): ("target", "target_account"),
    ("privacy", "noise_std"): ("target", "target_account"),
    ("privacy", "target"): ("alpha", "noise_std"),
    ("data", "sizes"): ("split",),
}
NOISE_KEYS = ("perturbation", "alpha", "noise_std", "target", "target_account")


def _is_shape_only(value: Any) -> bool:
    """An alpha that says how it grows and leaves its size to a target, { ratio = 1.01 }."""
    return isinstance(value, dict) and "first" not in value


class Experiment(NamedTuple):
    name: str
    configs: list[Config]
    collection: bool  # has variants or a sweep: its results are a folder


def load(source: str | Path | dict[str, Any], overrides: Iterable[str] = (), only: str | None = None) -> Experiment:
    """One configuration, or one per variant and point of the sweep."""
    if isinstance(source, dict):
        raw, folder, stem = _plain(source), Path.cwd(), "run"
    else:
        raw, folder, stem = _read(Path(source))
    raw = {"name": stem} | raw
    variants: Any = raw.pop("variant", None)
    sweep: Any = raw.pop("sweep", {})
    changes = [_parse_override(text) for text in overrides]
    if variants is not None and not (isinstance(variants, list) and variants and all(isinstance(v, dict) for v in variants)):
        raise InputError("variant: found something other than [[variant]] tables; write each as [[variant]]")
    if not isinstance(sweep, dict):
        raise InputError('sweep: found something other than a table; write [sweep] with lines like "privacy.alpha" = [1, 2]')

    axes = {key: values for key, values in _sweep_axes(sweep).items() if key not in {key for key, _ in changes}}
    names: list[str] = []
    configs: list[Config] = []
    for index, variant in enumerate(variants or ({},)):
        if variants and "name" not in variant:
            raise InputError(f"variant[{index}].name: missing; every [[variant]] needs a name of its own")
        for point in itertools.product(*axes.values()):
            settings = list(zip(axes, point, strict=True))
            # What one place says must agree with itself; only what it inherits is left behind.
            merged = raw
            for table in (variant, _nested(settings), _nested(changes)):
                merged = _overlay(merged, table)
            if settings and not any(key == "name" for key, _ in changes):
                merged["name"] = f"{merged['name']}, " + ", ".join(f"{k.split('.')[-1]}={_brief(v)}" for k, v in settings)
            name = str(merged["name"])
            label = f'variant "{name}": ' if variants or axes else ""
            if slug(name) in map(slug, names):
                raise InputError(f'{label}another variant has this name or the same file name "{slug(name)}"; rename one')
            names.append(name)
            # One by its name, or all points of a variant. The others need not take what --set says of these.
            if only is not None and only not in (name, variant.get("name")):
                continue
            try:
                configs.append(parse(_with_absolute_paths(merged, folder)))
            except InputError as error:
                raise InputError(f"{label}{error}") from None
    if only is not None and not configs:
        quoted = ", ".join(f'"{name}"' for name in names)
        raise InputError(f'--only "{only}": no such variant; there are {quoted}')
    return Experiment(str(raw["name"]), configs, collection=bool(variants or axes))


def slug(name: str) -> str:
    """A file name for a configuration's name."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", name).strip("-.") or "run"


def _read(path: Path) -> tuple[dict[str, Any], Path, str]:
    if path.suffix in (".h5", ".hdf5"):
        from dpadmm_mpi.storage.result import load as load_result

        text, where = load_result(path).config_text, f"the configuration in {path}"
    else:
        try:
            text, where = path.read_text(encoding="utf-8-sig"), str(path)
        except FileNotFoundError:
            raise InputError(f"{path}: no such configuration file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read as a configuration ({error})") from None
    try:
        return tomllib.loads(text), path.resolve().parent, path.stem
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: not valid TOML: {error}") from None


def _plain(value: Any) -> Any:
    """A dictionary from Python as TOML would have it: numpy's numbers, paths and tuples are welcome."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value


def _parse_override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f'--set {text}: found no "="; write --set section.key=value')
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value.strip()  # a word without quotes


def _sweep_axes(sweep: dict[str, Any], prefix: str = "") -> dict[str, list[Any]]:
    """Dotted keys, quoted or not, to their lists."""
    axes: dict[str, list[Any]] = {}
    for key, value in sweep.items():
        if isinstance(value, dict):
            axes |= _sweep_axes(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value:
            axes[f"{prefix}{key}"] = value
        else:
            raise InputError(f"sweep.{prefix}{key}: found {value}; a list with at least one value is needed")
    return axes


def _nested(settings: list[tuple[str, Any]]) -> dict[str, Any]:
    """Dotted keys as tables; of two settings of one key the later one counts."""
    tables: dict[str, Any] = {}
    for key, value in settings:
        section, _, name = key.partition(".")
        if name:
            inner = tables.setdefault(section, {})
            if not isinstance(inner, dict):
                raise InputError(f"{key}: {section} is set as a whole already; set one or the other")
            inner[name] = value
        else:
            tables[section] = value
    return tables


def _overlay(base: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """`extra` on top of `base`, key by key within a section.

    An inherited key that a new choice gives no meaning to is left behind: a variant with method = "admm" does not
    inherit the gamma of "r-admm", and one with method = "ps-admm" neither the graph nor another kind of noise.
    """
    base = _without_strange_noise(base, extra)
    merged = dict(base)
    for name in dict.fromkeys([*base, *extra]):
        table, inherited = extra.get(name, {}), base.get(name)
        if isinstance(table, dict) and isinstance(inherited, dict):
            kept = {key: value for key, value in inherited.items() if not _left_behind(name, key, value, extra)}
            merged[name] = kept | table
        elif name in extra:
            merged[name] = table
    return merged


def _without_strange_noise(base: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """`base` without noise that the method of `extra` does not take. Noise is never lost without a word: a method that has
    none by its definition is one, and so is a method that cannot do without; any other must say what it takes instead.
    """
    method, privacy = _entry(extra, "algorithm", "method"), base.get("privacy")
    if not isinstance(method, str) or not isinstance(privacy, dict):
        return base
    inherited = privacy.get("perturbation")
    if inherited is None and _entry(base, "algorithm", "method") in GAUSSIAN:
        inherited = "gaussian"
    if inherited in (None, "none") or inherited in perturbations(method):
        return base
    if method in DECENTRALISED and _entry(extra, "privacy", "perturbation") is None:
        raise InputError(
            f'privacy.perturbation: "{inherited}" is inherited, but {method} does not take it; say what it takes, or '
            'perturbation = "none" for a run without noise'
        )
    return {**base, "privacy": {key: value for key, value in privacy.items() if key not in NOISE_KEYS}}


def _entry(raw: dict[str, Any], section: str, key: str) -> Any:
    table = raw.get(section)
    return table.get(key) if isinstance(table, dict) else None


def _left_behind(section: str, key: str, inherited: Any, extra: dict[str, Any]) -> bool:
    table = extra.get(section, {})
    for new, value in table.items():
        alternatives = ALTERNATIVES.get((section, new), ())
        if key in alternatives and not _is_shape_only(value) and not _is_shape_only(inherited):
            return True
    if f"{section}.{key}" not in CHOICES:
        return False
    selector, takers = CHOICES[f"{section}.{key}"]
    choice = _entry(extra, *selector.split("."))
    return isinstance(choice, str) and choice not in takers


def _with_absolute_paths(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Relative paths are meant from the configuration's folder; absolute, they can be run again from anywhere."""
    raw = dict(raw)
    for section, key in PATH_KEYS:
        table = raw.get(section)
        if isinstance(table, dict) and isinstance(table.get(key), str):
            raw[section] = {**table, key: str((folder / Path(table[key]).expanduser()).resolve())}
    return raw


def _brief(value: Any) -> str:
    return re.sub(r"[\s\"'{}\[\]]+", "", str(value)).replace(":", "=")
