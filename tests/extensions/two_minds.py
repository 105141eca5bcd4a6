"""two_minds.py ARGUMENTS...: dpadmm whose rank 1 sees another mine.py, as on a host with files of its own."""

from pathlib import Path

from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.parallel.launcher import announced_rank

read_bytes = Path.read_bytes


def another(path: Path) -> bytes:
    content = read_bytes(path)
    return content + b"\n" if path.name == "mine.py" and announced_rank() == 1 else content


Path.read_bytes = another  # type: ignore[method-assign, assignment]
entry()
