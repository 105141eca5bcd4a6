"""The test error of the classifier that a user gets: that of the averaged iterates where there are any, else of the last."""

from dataclasses import replace

from dpadmm_mpi.reproduce.quantities import Results
from dpadmm_mpi.storage.result import Result


def with_reported(results: Results) -> dict[str, Result]:
    """The same results with reported/test_error, and by how much that is above the last iterate's."""
    return {name: _reported(result) if "test_error" in result else result for name, result in results.items()}


def _reported(result: Result) -> Result:
    last = result["test_error"]
    error = result.arrays.get("test_error_averaged", last)
    return replace(result, arrays=result.arrays | {"reported/test_error": error, "reported/above_last_iterate": error - last})
