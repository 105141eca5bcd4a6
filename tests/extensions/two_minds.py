"""two_minds.py ARGUMENTS...: dpadmm whose rank 1 sees another mine.py, as on a host with files of its own."""

from pathlib import Path

from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.config import extensions
from dpadmm_mpi.parallel.launcher import announced_rank

by_files, by_path = extensions.read_bytes, Path.read_bytes  # type: ignore[attr-defined]


def another(path: Path, content: bytes) -> bytes:
    return content + b"\n" if path.name == "mine.py" and announced_rank() == 1 else content


extensions.read_bytes = lambda path: another(path, by_files(path))  # type: ignore[attr-defined]
Path.read_bytes = lambda path: another(path, by_path(path))  # type: ignore[method-assign, assignment]
entry()
