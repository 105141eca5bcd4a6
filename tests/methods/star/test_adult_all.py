"""Adult with all 48,842 records, from the files of Adult."""

import os
from pathlib import Path

import numpy as np
import pytest

from dpadmm_mpi.data.catalogue import Adult, AdultAll, _with_missing_as_category, is_fetched
from dpadmm_mpi.data.fetch import fetch
from dpadmm_mpi.data.records import Column, Records
from dpadmm_mpi.errors import InputError


def test_a_missing_value_becomes_a_category_of_its_column() -> None:
    """Of text columns that lack values, behind the known categories; complete columns and numbers stay as they are."""
    work = Column("work", np.array(["a", "", "b"]), ("b", "a"))
    sex = Column("sex", np.array(["m", "f", "m"]), ("f", "m"))
    age = Column("age", np.array([1.0, 2.0, 3.0]))
    found = _with_missing_as_category(Records(y=np.ones(3), columns=(work, sex, age)))
    assert found.columns[0].values.tolist() == ["a", "?", "b"]
    assert found.columns[0].categories == ("b", "a", "?")
    assert found.columns[1] is sex
    assert found.columns[2] is age


def test_it_asks_for_adults_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))
    assert AdultAll.folder() == Adult.folder() == tmp_path / "raw" / "adult"
    assert not is_fetched("adult-all")
    with pytest.raises(InputError, match=r"bring it with: dpadmm data fetch adult$"):
        AdultAll().files()


def test_all_records_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """48,842 of 108 features, norms 1, 3,620 of them with a missing value; the others as Adult has them but for the scale."""
    if not (folder := os.environ.get("DPADMM_TEST_DATA")):
        pytest.skip("DPADMM_TEST_DATA does not name a folder with the papers' data sets")
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))
    fetch(AdultAll, Path(folder))
    assert is_fetched("adult")
    assert is_fetched("adult-all")
    records = AdultAll().read(AdultAll().files())
    unknown = [column for column in records.columns if column.is_text and "?" in (column.categories or ())]
    assert [column.name for column in unknown] == ["workclass", "occupation", "native-country"]
    assert np.sum(np.any([column.values == "?" for column in unknown], axis=0)) == 48_842 - 45_222
    store = AdultAll().store()
    assert (store.meta.records, store.meta.features) == AdultAll.expected
    assert store.meta.largest_norm == pytest.approx(1.0)
