"""Files of somebody else's that bring classes of their own: found, loaded and told apart by their checksums."""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from dpadmm_mpi.config.options import Options, names_in
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import is_file, read_bytes, resolved
from dpadmm_mpi.registry import all_or_nothing, file_of, imported_sha256, is_inside, place_of

_PREFIX = "dpadmm_extension_"


class Extension(Struct, frozen=True, forbid_unknown_fields=True):
    """A file with classes of its own, and what it is."""

    path: str
    sha256: str = ""


def paths_in(raw: Any, folder: Path) -> list[Extension]:
    """What `extensions` of a configuration names: paths, or tables with path and sha256; meant from `folder`."""
    if not isinstance(raw, list):
        raise InputError(f'extensions: found {raw!r}; expected a list, as in extensions = ["mine.py"]')
    found = []
    for k, entry in enumerate(raw):
        table = {"path": entry} if isinstance(entry, str) else entry
        if not isinstance(table, dict) or not isinstance(table.get("path"), str) or table.keys() - {"path", "sha256"}:
            raise InputError(f'extensions[{k}]: found {entry!r}; expected the name of a Python file, as in "mine.py"')
        path = resolved(folder / Path(table["path"]).expanduser())
        found.append(Extension(str(path), str(table.get("sha256", ""))))
    return found


def load(wanted: Iterable[Extension]) -> tuple[Extension, ...]:
    """Import each file once; those that were loaded, with their checksums. A file that has changed is refused."""
    return tuple(_load(extension) for extension in dict.fromkeys(wanted))


def _load(extension: Extension) -> Extension:
    path = Path(extension.path)
    try:
        content = read_bytes(path)
    except OSError as error:
        raise InputError(f"extensions: {path} cannot be read: {error.strerror}") from None
    imported = _imported_as(path)
    digest = (imported and imported_sha256(imported)) or hashlib.sha256(content).hexdigest()
    if extension.sha256 and digest != extension.sha256:
        raise InputError(
            f"extensions: {path} has changed: its sha256 is {digest[:12]}..., but {extension.sha256[:12]}... was used; restore "
            "it, or run the configuration anew"
        )
    name = f"{_PREFIX}{path.stem}_{digest[:12]}"
    if name not in sys.modules and imported is None:
        _import(name, path)
    return Extension(str(path), digest)


def is_loaded(extension: Extension) -> bool:
    """Whether its file is part of this process already."""
    loaded = [getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if name.startswith(_PREFIX)]
    return extension.path in loaded or _imported_as(Path(extension.path)) is not None


def _imported_as(path: Path) -> str | None:
    """The name of the file as a module under a name of its own, or as the program: its classes have entered already."""
    loaded = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    return next((name for name, file in loaded if file == str(path) and not name.startswith(_PREFIX)), None)


def _import(name: str, path: Path) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"extensions: {path} is not a Python file; its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # so that it can import what lies beside it
    try:
        with all_or_nothing():
            spec.loader.exec_module(module)
    except InputError:
        del sys.modules[name]
        raise
    except SyntaxError as error:
        del sys.modules[name]
        raise InputError(f"{error.filename or path}, line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise InputError(f"{path}{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))


def used_by(sections: Sequence[Options]) -> tuple[Extension, ...]:
    """The files from outside that the chosen classes come from, with the checksums that they had when they were imported."""
    files: dict[str, str] = {}
    for section in sections:
        for _, chosen, _ in names_in(section):
            if is_inside(type(chosen)):
                continue
            file = file_of(type(chosen))
            if file is None or not is_file(file):
                continue  # typed in: nothing that could be loaded again
            files[str(file)] = imported_sha256(type(chosen).__module__) or hashlib.sha256(read_bytes(file)).hexdigest()
    return tuple(Extension(path, digest) for path, digest in files.items())


def typed_in(sections: Sequence[Options]) -> list[str]:
    """The chosen classes that no file holds, so that nobody can run the configuration again."""
    chosen = [type(options) for section in sections for _, options, _ in names_in(section)]
    return [place_of(cls) for cls in chosen if not is_inside(cls) and file_of(cls) is None]
