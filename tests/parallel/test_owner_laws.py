"""Laws of the assignment of places to ranks, on whatever sizes there may be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.parallel.owners import assign_owners

SIZES = st.lists(st.integers(1, 10**6), min_size=1, max_size=40)


@given(SIZES, st.data())
def test_owners(sizes: list[int], data: st.DataObject) -> None:
    """Contiguous blocks in order of the ranks, nobody idle, every place once."""
    ranks = data.draw(st.integers(1, len(sizes)))
    owner = assign_owners(np.array(sizes), ranks)
    assert len(owner) == len(sizes)
    assert (np.diff(owner) >= 0).all()
    assert np.unique(owner).tolist() == list(range(ranks))


@given(SIZES, st.data())
def test_balance(sizes: list[int], data: st.DataObject) -> None:
    """No rank has more records than an even share and one node more, but where nodes had to be spread over idle ranks."""
    ranks = data.draw(st.integers(1, len(sizes)))
    records = np.array(sizes)
    owner = assign_owners(records, ranks)
    loads = np.bincount(owner, weights=records)
    alone = np.bincount(owner) == 1
    assert (alone | (loads <= records.sum() / ranks + records.max())).all()


@given(SIZES, st.data())
def test_owners_around_a_hub(sizes: list[int], data: st.DataObject) -> None:
    """The hub is on rank 0, which has nothing else where there is a rank for everybody."""
    ranks = data.draw(st.integers(1, len(sizes) + 1))
    owner = assign_owners(np.array(sizes), ranks, has_hub=True)
    assert (len(owner), owner[-1]) == (len(sizes) + 1, 0)
    assert np.unique(owner).tolist() == list(range(ranks))
    if ranks == len(sizes) + 1:
        assert (owner == 0).sum() == 1


@given(SIZES, st.booleans(), st.integers(1, 5))
def test_too_many_ranks_are_refused(sizes: list[int], has_hub: bool, more: int) -> None:
    with pytest.raises(InputError, match="use at most"):
        assign_owners(np.array(sizes), len(sizes) + has_hub + more, has_hub)
