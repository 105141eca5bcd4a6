"""`dpadmm config`, `dpadmm init`, and packaged configurations by name."""

from pathlib import Path

from support import TOP, command, sentences

NAMES = sorted(path.stem for path in (TOP / "configs").glob("*.toml"))


def test_list_has_every_packaged_configuration_with_words() -> None:
    rows = [line.split(maxsplit=1) for line in command("config", "list").stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == NAMES
    assert all(len(row[1]) > 20 for row in rows)


def test_show_prints_the_file_as_it_is() -> None:
    assert command("config", "show", "quickstart").stdout == (TOP / "configs" / "quickstart.toml").read_text()


def test_an_unknown_name_is_one_sentence_with_the_nearest() -> None:
    process = command("config", "show", "quickstrat")
    assert process.returncode == 2
    assert sentences(process)[0].endswith('did you mean "quickstart"?')


def test_init_writes_once_and_the_file_can_be_checked(tmp_path: Path) -> None:
    assert command("init", cwd=tmp_path).returncode == 0
    assert (tmp_path / "my.toml").read_text() == (TOP / "configs" / "quickstart.toml").read_text()
    again = command("init", cwd=tmp_path)
    assert again.returncode == 2 and "my.toml exists" in again.stderr


def test_a_name_stands_for_the_packaged_file_and_a_file_of_that_name_goes_first(tmp_path: Path) -> None:
    by_name = command("check", "quickstart", cwd=tmp_path)
    assert by_name.returncode == 0 and "mr-admm" in by_name.stdout
    (tmp_path / "quickstart").write_text('[algorithm]\nmethod = "no-such-method"\n')
    own = command("check", "quickstart", cwd=tmp_path)
    assert own.returncode == 2 and "no-such-method" in own.stderr
