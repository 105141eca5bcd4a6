"""The few array types that every room uses."""

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


class CsrMatrix(Protocol):
    """What is asked of a scipy CSR matrix; scipy itself is loaded only where there is one."""

    data: Array
    indices: NDArray[Any]
    indptr: NDArray[Any]
    shape: tuple[int, int]
    nnz: int
    ndim: int

    @property
    def T(self) -> "CsrMatrix": ...

    def __matmul__(self, other: Any) -> Any: ...

    def __getitem__(self, rows: Any) -> "CsrMatrix": ...

    def multiply(self, other: Any) -> Any: ...

    def sum(self, axis: int) -> Any: ...

    def copy(self) -> "CsrMatrix": ...

    def toarray(self) -> Array: ...


Matrix: TypeAlias = Array | CsrMatrix  # rows of records, dense or sparse
