"""Errors in a configuration name the file and the line; the case of names does not matter."""

from pathlib import Path

import pytest

from dpadmm_mpi.config.places import lines_of
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import fingerprint
from dpadmm_mpi.storage.experiments import load

TEXT = """\
iterations = 3
# alpha = 7

[algorithm]
method = "MR-ADMM"   # in any case
init = "Zero"

[data]
source = "Synthetic"
split = { }

[privacy]
perturbation = "Dual"
alpha = 1.0

[[variant]]
name = "a"
[variant.privacy]
alpha = 2.0

[[variant]]
name = "b"
privacy = { alpha = 3.0 }

[sweep]
"algorithm.eta" = [1.0, 2.0]
"""


@pytest.mark.parametrize(
    ("key", "lines"),
    [("iterations", [1]), ("privacy.alpha", [14, 19, 23]), ("algorithm.eta", [26]), ("privacy.budget.epsilon", [12, 18]),
     ("privacy", [12, 18, 23]), ("record.every", [])],
)  # fmt: skip
def test_the_lines_of_a_key(key: str, lines: list[int]) -> None:
    """Not those of comments; where no line has it, those of its section."""
    assert lines_of(TEXT, key) == lines


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("iterations = 3", "itertions = 3", 'itertions: unknown key; did you mean "iterations"? ({path}, line 1)'),
        ('"Dual"', '"dul"', 'privacy.perturbation: found "dul"; '),
        ("[data]", "[dta]", 'dta: unknown key; did you mean "data"? ({path}, line 8)'),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, before: str, after: str, sentence: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(TEXT.split("[[variant]]")[0].replace("split = { }\n", "").replace(before, after))
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value).startswith(sentence.format(path=path))
    assert f"({path}, line " in str(caught.value)


def test_what_the_command_line_says_is_in_no_line(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("iterations = 3\n")
    with pytest.raises(InputError, match=r"^iterations: found -1; [^(]*$"):
        load(path, ["iterations=-1"])


def test_the_case_of_names_does_not_matter(tmp_path: Path) -> None:
    """The same configuration, with the same fingerprint."""
    text = TEXT.split("[[variant]]")[0].replace("split = { }\n", "")
    (tmp_path / "my.toml").write_text(text)
    (odd,) = load(tmp_path / "my.toml").configs
    (tmp_path / "my.toml").write_text(text.lower())
    (even,) = load(tmp_path / "my.toml").configs
    assert odd.method_name == "mr-admm" and odd == even and fingerprint(odd) == fingerprint(even)
