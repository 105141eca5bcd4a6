"""The page: whole, self-contained, correctly escaped; and opened in a real browser where there is one."""

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TypeAlias

import h5py
import numpy as np
import pytest
from handmade import star_file
from matplotlib.image import imread
from support import MakeConfig, command, result_of, sentences

import dpadmm_mpi
from dpadmm_mpi.methods import methods
from dpadmm_mpi.methods.references import cited
from dpadmm_mpi.plots.looks import COLOURS
from dpadmm_mpi.privacy.perturbations import perturbations
from dpadmm_mpi.reports.html import page
from dpadmm_mpi.reports.mathml import mathml
from dpadmm_mpi.storage.result import Result

SECTIONS = ["Results", "Notes", "Privacy", "Methods", "Network and timing", "Configuration", "Environment", "References"]
VOID = {"meta", "br", "hr", "img", "link", "input"}
EVIL = '<b>bold</b> & "quoted" <script>alert(1)</script>'


Attributes: TypeAlias = list[tuple[str, str | None]]


class Page(HTMLParser):
    """Headings, ids, words and addresses of a page; complains about tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str | None] = []
        self.addresses: list[str] = []
        self.headings: list[str] = []
        self.words: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: Attributes) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._note(attributes)

    def handle_startendtag(self, tag: str, attributes: Attributes) -> None:
        self.tags.append(tag)
        self._note(attributes)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append(data)
        if self.open and self.open[-1] == "td":
            self.cells.append(data)
        self.words.append(data)

    def _note(self, attributes: Attributes) -> None:
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            elif name in ("href", "src", "xlink:href", "action", "srcset", "data", "poster"):
                self.addresses.append(str(value))


@pytest.fixture(scope="module")
def results(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    folder = tmp_path_factory.mktemp("report")
    private = result_of(shared_config("mr-admm", "objective", runs=2) | {"name": EVIL}, folder / "private.h5")
    plain = result_of(shared_config("admm"), folder / "plain.h5")
    return [private, plain, dpadmm_mpi.load(star_file(folder / "star.h5"))]


@pytest.fixture(scope="module")
def whole(results: list[Result]) -> str:
    """The page about all of them."""
    return page(results)


def test_one_file_has_every_section_and_number(results: list[Result]) -> None:
    [private, *_] = results
    parsed = Page(page([private]))
    assert [heading for heading in parsed.headings if heading in SECTIONS] == SECTIONS
    for account in ("bound", "tight", "epsilon"):
        assert f"{private[f'privacy/{account}'][-1]:.4g}" in parsed.cells
        for value in private[f"privacy/node_{account}"][-1]:
            assert f"{value:.4g}" in parsed.cells
        assert str(private.attributes[f"privacy/{account}"]["theorem"]) in parsed.cells
    assert private.attributes["/"]["config_sha256"] in "".join(parsed.words)
    assert private.config_text in "".join(parsed.words)
    for note in private.attributes["/"]["notes"].split("\n"):  # the growing penalties, the unequal dual steps
        assert note in parsed.words
    error = private.loss[:, -1].std(ddof=1) / np.sqrt(2)
    assert f"{private.loss[:, -1].mean():.4g} ±{error:.2g}" in parsed.cells
    assert parsed.tags.count("svg") >= 6


def test_the_page_needs_nothing_else(whole: str) -> None:
    """No address but places on the page itself, none in the style, no script; ids are unique and every link arrives."""
    text, parsed = whole, Page(whole)
    assert parsed.addresses
    links = {address for address in parsed.addresses if not address.startswith("data:image/png;base64,")}
    assert all(link.startswith("#") for link in links)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {link[1:] for link in links} <= set(parsed.ids)
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(parsed.ids)
    assert "@import" not in text
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(parsed.tags)


def test_names_are_text(whole: str) -> None:
    """A name with tags in it stays a name."""
    parsed = Page(whole)
    assert "b" not in parsed.tags
    assert EVIL in parsed.cells
    assert EVIL in parsed.words  # the folded section of the file


def test_files_of_all_families_on_one_page(results: list[Result], whole: str) -> None:
    parsed = Page(whole)
    assert {"paper's epsilon (delta 0.001)", "sound epsilon (delta 0.001)", "inf", "no", "yes"} <= set(parsed.cells)
    words = " ".join(parsed.words)
    assert "Objective above that of the optimum. 2 of 3 files have none." in words
    # A page about a file without noise has no curves against privacy.
    assert "against the privacy" not in page(results[1:2])


def test_a_run_without_noise_says_so(results: list[Result], whole: str) -> None:
    """And which one, where there are others; its infinite accounts are not explained."""
    alone, together, private = (" ".join(Page(text).words) for text in (page(results[1:2]), whole, page(results[:1])))
    assert "Without noise: exact values are released, nothing protects the records" in alone
    assert "1 of 3 files (admm none): Without noise" in together
    assert "Without noise" not in private
    assert "Theorem" not in alone


def test_formulas_and_references_of_what_was_used(results: list[Result], whole: str) -> None:
    """MathML that parses, of the methods in the files; the papers that they cite, and no others."""
    formulas = re.findall(r"<math.*?</math>", whole, re.DOTALL)
    assert len(formulas) == 1 + 4 + 2 + 3 + 1 + 1  # O_i, mr-admm, admm, ps-admm, the objective's bound, privacy
    assert all(ET.fromstring(formula).tag == "math" for formula in formulas)
    parsed = Page(whole)
    assert {"mr-admm", "admm", "ps-admm"} <= set(parsed.headings)
    references = whole[whole.index('id="references"') :]
    assert [paper for paper in ("[M]", "[R]", "[S]", "[C]") if f"<dt>{paper}</dt>" in references] == ["[M]", "[R]", "[S]"]
    assert "<dt>[S]</dt>" not in page(results[:1])


@pytest.mark.parametrize("name", [*methods, *perturbations])
def test_every_formula_is_mathml(name: str) -> None:
    """Well-formed, without a command that was not understood; every method of the package has some."""
    cls = dict(methods.items()).get(name) or dict(perturbations.items())[name]
    trees = [ET.fromstring(mathml(formula)) for formula in cls.formulas]
    assert name in perturbations or (trees and cited(cls.source))
    children = {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3}
    for tree in trees:
        for element in tree.iter():
            assert len(element) == children.get(element.tag, len(element)), ET.tostring(element)
            assert not {"\\", "_", "^", "{"} & set(element.text or "") or (element.tag == "mo" and element.text == "^")


def test_a_formula_by_hand() -> None:
    assert mathml(r"x_i^{k+1} \le \frac{\rho}{2}", block=False) == (
        "<math><mrow><msubsup><mi>x</mi><mi>i</mi><mrow><mi>k</mi><mo>+</mo><mn>1</mn></mrow></msubsup>"
        "<mo>≤</mo><mfrac><mrow><mi>ρ</mi></mrow><mrow><mn>2</mn></mrow></mfrac></mrow></math>"
    )


def test_a_sweep_has_its_tradeoff_and_what_differs(tmp_path: Path) -> None:
    """Settings that only some files have too; what could not run is a row with its sentence, what all have stands once."""
    small = {"iterations": 2, "data": {"records": 200, "features": 3}, "problem": {"C": 20.0}}
    swept = dpadmm_mpi.sweep(small, over={"epsilon": [1e-9, 0.5, 2.0, None]}, method="r-admm")
    assert swept is not None
    text = page(swept.rows)
    parsed = Page(text)
    assert "What the privacy costs" in text
    found = re.search(r'<section id="what-differs">.*?</section>', text, re.DOTALL)
    assert found is not None
    differs = Page(found[0])
    assert differs.cells[:4] == ["run, epsilon=0.5", "objective", "0.5", "epsilon"]
    assert differs.cells.count("-") >= 2  # the one without noise has neither target nor account
    assert "infeasible" in parsed.cells
    assert any("1e-09 cannot be met" in word for word in parsed.words)
    assert text.count("records = 200") == 1
    assert "What the privacy costs" not in page(swept.rows[-1:])


def test_a_file_has_one_colour_on_the_whole_page(whole: str) -> None:
    """Also in a figure that only some of the files are in."""
    text = whole
    found = re.search(r"<figure>(?:(?!</figure>).)*Objective above that of the optimum\. 2 of 3", text, re.DOTALL)
    assert found is not None
    gap = found[0]
    assert COLOURS[2].lower() in gap
    assert COLOURS[0].lower() not in gap


def test_what_a_node_table_does_not_prove_is_said_in_it(results: list[Result]) -> None:
    words = " ".join(Page(page(results[2:])).words)
    assert "paper's epsilon (delta 0.001), not proven" in words
    assert "sound epsilon (delta 0.001), not proven" not in words


def test_lists_are_written_out(tmp_path: Path) -> None:
    with h5py.File(star_file(tmp_path / "star.h5"), "r+") as file:
        file["data"].attrs["files"] = ["train sha256 1", "test sha256 2"]
    cells = Page(page([dpadmm_mpi.load(tmp_path / "star.h5")])).cells
    assert "train sha256 1; test sha256 2" in cells
    assert "a; b" in cells  # the hosts


def test_a_page_about_a_file_whose_sound_account_is_infinite(results: list[Result]) -> None:
    """It has the paper's finite one, but no curve against a privacy that is none."""
    star = results[2]
    infinite = {"privacy/epsilon_sound": np.full_like(star["privacy/epsilon_sound"], np.inf)}
    assert "against the privacy" not in page([replace(star, arrays={**star.arrays, **infinite})])


def test_incomplete_and_sparse_files(tmp_path: Path) -> None:
    path = star_file(tmp_path / "star.h5")
    with h5py.File(path, "r+") as file:
        file["loss"][:, 4:] = np.nan
        file.attrs["complete"] = False
        for name in ("privacy", "node_loss", "objective"):
            del file[name]
    parsed = Page(page([dpadmm_mpi.load(path)]))
    assert any("did not end" in word for word in parsed.words)
    assert any("no privacy account" in word for word in parsed.words)


def test_report_command(results: list[Result], tmp_path: Path, whole: str) -> None:
    process = command("report", *(result.source for result in results), "-o", tmp_path / "r.html")
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == whole
    assert f"written: {Path(results[0].source).with_suffix('.html')}" in command("report", results[0].source).stdout
    for target, sentence in (("r.pdf", 'ending ".pdf"; it must be .html'), ("no/r.html", "cannot be written: No such file")):
        refused = command("report", results[0].source, "-o", tmp_path / target)
        assert refused.returncode == 2
        [said] = sentences(refused)
        assert sentence in said


@pytest.fixture
def browser(tmp_path: Path) -> Callable[..., str]:
    """browser(*options): what chromium says on standard output. It finds no host, whatever it looks for."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        assert not os.environ.get("DPADMM_REQUIRE_BROWSER"), "a browser is required here, and there is none"
        pytest.skip("there is no chromium to open the page in")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    quiet += [
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]

    def run(*options: object) -> str:
        start = [program, *quiet, f"--user-data-dir={tmp_path / 'profile'}", *map(str, options)]
        return subprocess.run(start, capture_output=True, text=True, timeout=120, check=True).stdout

    return run


def asked_for(log: Path) -> list[str]:
    """Addresses that the page itself asked for over the network; requests of the browser's own have no origin."""
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    return [event["url"] for event in events if event.get("initiator", "not an origin") != "not an origin"]


def test_a_browser_shows_the_page(tmp_path: Path, browser: Callable[..., str], whole: str) -> None:
    """It parses to the same content, asks nobody for anything, is no blank picture, and prints."""
    path, log, picture, printed = (tmp_path / f"r.{ending}" for ending in ("html", "json", "png", "pdf"))
    path.write_text(whole.replace("<h2>", '<img src="http://example.invalid/x.png"><h2>', 1), encoding="utf-8")
    browser("--dump-dom", f"--log-net-log={log}", path.as_uri())
    assert asked_for(log) == ["http://example.invalid/x.png"]  # so a request would be seen
    path.write_text(whole, encoding="utf-8")
    seen = browser("--dump-dom", f"--log-net-log={log}", path.as_uri())
    assert asked_for(log) == []
    assert seen.count("<svg") == whole.count("<svg")
    assert "&lt;script&gt;" in seen
    assert "<script" not in seen
    browser("--window-size=1000,1400", f"--screenshot={picture}", path.as_uri())
    pixels = imread(picture)[..., :3]
    assert 0.5 < (pixels > 0.99).all(axis=2).mean() < 0.98  # mostly paper, but not only
    assert (np.ptp(pixels, axis=2) > 0.2).sum() > 1000  # curves in colour
    browser(f"--print-to-pdf={printed}", path.as_uri())
    assert printed.read_bytes().startswith(b"%PDF")
