"""How long this machine takes for what the runs are made of, measured in a tenth of a second of processor time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from dpadmm_mpi.parallel.launcher import usable_cores
from dpadmm_mpi.problems.losses import Logistic
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.rng import Purpose, generator

ROUNDS = 5  # of which the shortest counts: what disturbs only adds
_ROWS, _COLUMNS, _PER_ROW = 4096, 128, 16
_LARGE = 1 << 15  # rows, of 32 MB


@dataclass(frozen=True)
class Machine:
    """Seconds of one core; those of passes over the records for each of the runs that share a pass."""

    dense: float  # per number of a dense shard in the processor's cache, in a product with a vector
    stream: float  # per number of a dense shard that is larger
    sparse: float  # per number of a CSR shard
    record: float  # per record, for L' or L
    product: float  # per multiplication of a matrix product
    normal: float  # per normal random number
    copy: float  # per number copied
    call: float  # of numpy, on a small vector
    matrix: float  # per matrix of a stack, however small
    small: float  # per d^2 of solving with a stack of small matrices; d^3 shows only in larger ones
    cores: int


@cache
def measure(runs: int) -> Machine:
    """With so many runs side by side."""
    from scipy.sparse import csr_matrix
    from threadpoolctl import threadpool_limits

    rng, logistic = generator(0, Purpose.NOISE), Logistic()
    X = rng.standard_normal((_ROWS, _COLUMNS))
    columns = rng.integers(_COLUMNS, size=_PER_ROW * 4 * _ROWS).astype(np.int32)
    few = csr_matrix((np.ones(len(columns)), columns, np.arange(0, len(columns) + 1, _PER_ROW)))
    f, s = X[:runs].copy(), X[:, :runs].T.copy()
    short, long = np.ones(16), np.ones((few.shape[0], runs))
    large = NodeProblem(np.ones((_LARGE, _COLUMNS)), logistic, 1.0, 1.0)
    tiny, stack = rng.standard_normal((64, 2, 2)), rng.standard_normal((64, 24, 24))
    works: dict[str, tuple[Callable[[], object], int]] = {  # and how many units of work it is
        "dense": (lambda: (f @ X.T, s @ X), 2 * runs * X.size),
        "stream": (lambda: large.margins(f), runs * _LARGE * _COLUMNS),
        "sparse": (lambda: (few @ f.T, few.T @ long), 2 * runs * few.nnz),
        "product": (lambda: X[:1024].T @ X[:1024], 1024 * _COLUMNS**2),
        "record": (lambda: logistic.first(s), runs * _ROWS),
        "normal": (lambda: rng.standard_normal(_ROWS), _ROWS),
        "copy": (X.copy, X.size),
        "call": (lambda: [short + short for _ in range(500)], 500),
        "matrix": (lambda: np.linalg.solve(tiny, tiny[:, :, :1]), len(tiny)),
        "small": (lambda: np.linalg.solve(stack, stack[:, :, :1]), len(stack) * stack.shape[1] ** 2),
    }
    with threadpool_limits(limits=1):  # as the runs have it
        # One after the other in every round: what disturbs the machine for a moment spoils one round, not one number.
        rounds = [{name: _seconds(work) / units for name, (work, units) in works.items()} for _ in range(ROUNDS)]
    return Machine(**{name: min(each[name] for each in rounds) for name in works}, cores=len(usable_cores()))


def _seconds(work: Callable[[], object]) -> float:
    """Of processor time, which others disturb less than the clock on the wall; the first time fills the cache."""
    work()
    begin = time.process_time()
    work()
    return time.process_time() - begin
