"""Every claim of a paper is quoted from it: the words are in the paper's text."""

import os
import re
from pathlib import Path

import pytest

from dpadmm_mpi.reproduce.catalogue import CATALOGUE
from dpadmm_mpi.reproduce.claim_files import read_claims
from dpadmm_mpi.reproduce.making import configuration

FILES = {
    "[M]": "m-admm-icml2018.txt",
    "[R]": "recycled-admm-tifs.txt",
    "[Rs]": "recycled-admm-slides.txt",
    "[S]": "ps-admm.txt",
    "[C]": "dp-admm-xu2020.txt",
}


def plain(text: str) -> str:
    """Without white space, hyphens at line ends and elsewhere, and the marks of formulas."""
    return re.sub(r"[\s\-$\\{}*]", "", text)


@pytest.fixture(scope="module")
def papers() -> dict[str, str]:
    folder = os.environ.get("DPADMM_TEST_PAPERS")
    if not folder:
        pytest.skip("DPADMM_TEST_PAPERS does not name a folder with the papers' texts")
    return {short: plain((Path(folder) / name).read_text(encoding="utf-8")) for short, name in FILES.items()}


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_quote_is_in_its_paper(name: str, papers: dict[str, str]) -> None:
    for claim in read_claims(configuration(f"claims/{name}")):
        if claim.quote:
            text = papers[claim.place.split()[0]]
            for part in claim.quote.split(" ... "):  # a figure stands between, in the text as it was read
                assert plain(part) in text, f"{claim.place}: {part}"


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_claim_has_its_kind_and_a_paper_s_its_place(name: str) -> None:
    for claim in read_claims(configuration(f"claims/{name}")):
        assert not re.search(r"\{\w+\}", claim.says + claim.place), claim.says  # every word is filled in
        if claim.kind == "paper":
            assert claim.place.split()[0] in FILES
            assert len(claim.place.split()) > 1, claim.place  # a section or figure of it
