"""Which classifier's error a frontier shows."""

from dataclasses import replace

import numpy as np
from reproduce.made_up import ends

from dpadmm_mpi.reproduce.reported import with_reported


def test_of_the_average_where_there_is_one_and_else_of_the_last_iterate() -> None:
    plain = ends(1.0, 2.0)  # test errors are a tenth of it
    averaged = replace(plain, arrays=plain.arrays | {"test_error_averaged": np.array([[0.9, 0.05], [0.9, 0.25]])})
    found = with_reported({"plain": plain, "averaged": averaged})
    np.testing.assert_array_equal(found["plain"]["reported/test_error"][:, -1], [0.1, 0.2])
    np.testing.assert_array_equal(found["plain"]["reported/above_last_iterate"], np.zeros((2, 2)))
    np.testing.assert_array_equal(found["averaged"]["reported/test_error"][:, -1], [0.05, 0.25])
    np.testing.assert_allclose(found["averaged"]["reported/above_last_iterate"][:, -1], [-0.05, 0.05])


def test_results_without_test_errors_stay_as_they_are() -> None:
    result = ends(1.0)
    del result.arrays["test_error"]
    assert with_reported({"numbers": result})["numbers"] is result
