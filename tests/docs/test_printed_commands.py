"""The commands that the pages print are commands, with options that they have and names that there are."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from support import TOP

from dpadmm_mpi.cli.main import cli
from dpadmm_mpi.cli.options import packaged

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((TOP / "docs").glob("*.md")))]


def printed(page: str) -> Iterator[list[str]]:
    """The words behind `dpadmm` in blocks of shell commands, without comments."""
    text = (TOP / page).read_text()
    for block in re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\||;", line.partition(" #")[0]):
                found = re.match(r"\s*(?:(?:mpiexec|srun)( [^ ]+)*? )?dpadmm( .*)$", part)
                if found and "$(" not in part:
                    yield shlex.split(re.sub(r"[<>].*", "", found[2]))


@pytest.mark.parametrize("page", [page for page in PAGES if list(printed(page))])
def test_commands_of_a_page(page: str) -> None:
    for words in printed(page):
        context = click.Context(cli, info_name="dpadmm")
        command: click.Command = cli
        while isinstance(command, click.Group) and words:
            name, *words = words
            inner = command.get_command(context, name)
            assert inner is not None or name.startswith("--"), f"{page}: dpadmm {name}"
            if inner is None:
                break
            command = inner
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert options <= known | {"--version"}, f"{page}: {command.name} {options - known}"


def test_packaged_names_of_the_pages_are_there() -> None:
    for page in PAGES:
        for words in printed(page):
            if words[:1] == ["reproduce"] or words[:2] == ["config", "show"]:
                names = [word for word in words[1:] if re.fullmatch(r"[a-z0-9]+-fig\w+|quickstart", word)]
                assert set(names) <= set(packaged()), (page, words)
