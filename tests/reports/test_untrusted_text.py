"""Names, titles, columns and paths of strangers: shown without effect on a terminal, a page or a spreadsheet."""

import csv
import io
import json
import shutil
import tomllib
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import h5py
import pytest
import tomli_w
from fuzz.judging import Answer, say
from support import MakeConfig, Raw, result_of

import dpadmm_mpi as dp
from dpadmm_mpi.config.files import slug
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.showing import MESSAGE, VALUE, brief, paragraph, printable, sentence

# A title for the terminal's window, a cleared screen, another direction of writing, a line of its own, mathematics and markup.
EVIL = "=1+\x1b]0;owned\x07\x1b[2J\u202e\r\n\x9b31m$\\frac$<b>&%_\u65e5\U0001f600"


def is_harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.fixture(scope="module")
def evil(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result in which every text that was written for people is EVIL; of a run whose name was from the beginning."""
    path = tmp_path_factory.mktemp("evil") / "r.h5"
    raw: Raw = shared_config("admm", "objective", iterations=2) | {"name": EVIL}
    result_of(raw, path)
    with h5py.File(path, "r+") as file:
        file.attrs["notes"] = f"{EVIL}{EVIL}\nanother"

        def damage(name: str, item: h5py.HLObject) -> None:
            for key in ("title", "column", "units", "theorem", "neighbouring_relation", "description", "long_name"):
                if key in item.attrs:
                    item.attrs[key] = f"{EVIL}{name}"

        file.visititems(damage)
    return path


def answer(words: str, path: Path) -> Answer:
    return say((words.split()[0], str(path), *words.split()[1:]), path.parent)


@pytest.mark.parametrize(
    "words", ["show", "show --csv", "show --json", "show --latex", "show --against 0", "watch --once", "compose"]
)
def test_nothing_but_printable_lines_reach_the_terminal(evil: Path, words: str) -> None:
    found = answer(words, evil)
    assert found.code == 0, found.error
    assert is_harmless(found.output + found.error)
    shown = "\\u001b" if "json" in words else "textbackslash{}x1b" if "latex" in words else "\\x1b"
    assert shown in found.output or words == "compose"


def test_a_spreadsheet_sees_no_formula_and_json_the_whole_name(evil: Path) -> None:
    rows = list(csv.reader(io.StringIO(answer("show --csv", evil).output)))
    assert rows[1][0].startswith("'=1+")
    assert not any(cell.startswith(("=", "@", "+")) for row in rows for cell in row)
    assert json.loads(answer("show --json", evil).output)[0]["name"] == EVIL


def test_latex_has_no_command_of_the_name(evil: Path) -> None:
    text = answer("show --latex", evil).output
    assert r"\frac" not in text
    assert "<b>" not in text


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)


def test_page_and_pictures_have_it_as_text(evil: Path) -> None:
    """Warnings are errors here: of missing signs of the font too."""
    found = answer("report -o page.html", evil)
    assert found.code == 0, found.error
    page = (evil.parent / "page.html").read_text(encoding="utf-8")
    assert is_harmless(page)
    tags = Tags()
    tags.feed(page)
    assert "b" not in tags.seen
    assert answer("plot -o picture.svg", evil).code == 0
    picture = (evil.parent / "picture.svg").read_text(encoding="utf-8")
    ET.fromstring(picture)  # well-formed, which control characters are not
    assert "\\x1b" in picture  # in the comment above the glyphs
    assert answer("plot -o picture.png --kind nodes", evil).code == 0


def test_check_status_and_progress(evil: Path, tmp_path: Path) -> None:
    table = {"name": EVIL, "iterations": 1, "data": {"records": 20, "features": 2}}
    (tmp_path / "c.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
    for words in ("check c.toml", "run c.toml", "status c.toml"):
        found = say(tuple(words.split()), tmp_path)
        assert found.code == 0, found.error
        assert is_harmless(found.output + found.error)
    assert [path.name for path in tmp_path.glob("*.h5")] == [f"{slug(EVIL)}.h5"]


def test_columns_and_categories(tmp_path: Path) -> None:
    evil = EVIL.replace("\r\n", "").replace(",", "")
    rows = "".join(f"{k % 2},{k},{evil if k % 3 else 'b'}\n" for k in range(30))
    (tmp_path / "t.csv").write_text(f"label,{evil}x,{evil}\n{rows}", encoding="utf-8")
    found = say(("data", "info", "t.csv"), tmp_path)
    assert found.code == 0, found.error
    assert is_harmless(found.output)
    section = tomllib.loads(found.output[found.output.index("[data]") :])
    assert section["data"]["drop"] == [f"{evil}x"]  # what is pasted means the same


@pytest.mark.parametrize("name", ["\x1b[2J.toml", "a\nb.toml", "\udcff.toml", "x" * 250])
def test_names_of_files(name: str, tmp_path: Path) -> None:
    found = say(("check", name), tmp_path)
    assert (found.code, found.error.count("\n")) == (2, 1)
    assert is_harmless(found.error)
    assert len(found.error) <= 600


def test_messages_are_short_and_keep_both_ends() -> None:
    error = InputError(f"c.toml: found {'x' * 500_000}; write a number")
    assert len(str(error)) <= MESSAGE
    assert str(error).startswith("c.toml: found xxx")
    assert str(error).endswith("; write a number")
    assert len(sentence("two words " * 100_000)) == MESSAGE
    assert len(brief("\x1b" * 1000)) == VALUE


def test_escaping_again_changes_nothing() -> None:
    for shown in (printable, brief, sentence, paragraph):
        once = shown(EVIL)
        assert shown(once) == once
    assert paragraph("a\nb\x1b") == "a\nb\\x1b"


def test_python_shows_it_the_same_way(evil: Path) -> None:
    result = dp.load(evil)
    assert is_harmless(result.summary())
    assert is_harmless(result._repr_html_())
    with pytest.raises(InputError) as caught:
        dp.load(evil.with_name("\x1b.h5"))
    assert is_harmless(str(caught.value))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("../x", "x"),
        ("/etc/passwd", "etc-passwd"),
        ("..", "run"),
        ("con", "con-"),
        ("NUL.txt", "NUL.txt-"),
        ("\x1b", "run"),
        ("a/../../b", "a-..-..-b"),
    ],
)
def test_names_stay_in_their_folder(name: str, file: str, tmp_path: Path) -> None:
    assert slug(name) == file
    assert (tmp_path / f"{slug(name)}.h5").resolve().parent == tmp_path


def test_long_names_are_told_apart(tmp_path: Path) -> None:
    first, second = slug("x" * 300), slug("x" * 301)
    assert first != second
    assert max(len(first), len(second)) <= 200
    (tmp_path / f"{first}.h5.restart").mkdir()


def test_variants_that_a_file_system_would_not_tell_apart(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[[variant]]\nname = "Alpha"\n[[variant]]\nname = "alpha"\n')
    found = say(("check", "c.toml"), tmp_path)
    assert found.code == 2
    assert 'variant "alpha": another variant has this name or the same file name' in found.error


def test_the_copy_of_a_stranger_is_not_changed(evil: Path, tmp_path: Path) -> None:
    """Escaping is for people: the file and the object keep what is written."""
    copy = shutil.copyfile(evil, tmp_path / "r.h5")
    assert dp.load(copy).name == EVIL


@pytest.mark.parametrize("words", ["show", "watch --once", "show --json", "compose", "diff"])
def test_looking_at_a_file_executes_nothing(evil: Path, words: str, tmp_path: Path) -> None:
    """A result that names an extension beside it, with its checksum, as a stranger could send both."""
    trap, copy = tmp_path / "trap.py", shutil.copyfile(evil, tmp_path / "r.h5")
    code = "from pathlib import Path\n\nPath(__file__).with_name('sprung').touch()\n"
    trap.write_text(f"# {tmp_path}: another one each time\n{code}")
    with h5py.File(copy, "r+") as file:
        file.attrs["config"] = f"extensions = ['{trap}']\n" + str(file.attrs["config"])
    found = say((words.split()[0], "r.h5", *(["r.h5"] if words == "diff" else []), *words.split()[1:]), tmp_path)
    assert found.code == 0, found.error
    assert not (tmp_path / "sprung").exists()
    say(("check", "r.h5"), tmp_path)  # which is asked to make sense of the configuration, and so needs it
    assert (tmp_path / "sprung").exists()
