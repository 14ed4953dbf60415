"""Words in, exit codes out: 0 done, 1 it did not work, 2 wrong usage or settings."""

import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import adapter
from adapter import cli
from adapter.settings import Settings, explained

PROGRAM = "modelmesh-triton-adapter"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """None of the machine's own settings."""
    for about, _ in explained():
        monkeypatch.delenv(about["env"], raising=False)
    return monkeypatch


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Settings that `app.serve` was called with; it ends with exit code 7."""
    calls: list[Settings] = []

    def serve(settings: Settings) -> int:
        calls.append(settings)
        return 7

    app: Any = ModuleType("adapter.app")
    app.serve = serve
    monkeypatch.setitem(sys.modules, "adapter.app", app)
    monkeypatch.setattr(adapter, "app", app, raising=False)
    return calls


def test_without_a_verb_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was asked, nothing was done."""
    assert cli.main([]) == 2
    assert f"usage: {PROGRAM}" in capsys.readouterr().err


def test_unknown_verb_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """As argparse says it."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["dance"])

    assert caught.value.code == 2
    assert "dance" in capsys.readouterr().err


def test_serve_passes_the_settings_and_the_exit_code(served: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends as the app says."""
    monkeypatch.setenv("CONTAINER_MEM_REQ_BYTES", "8Gi")

    assert cli.main(["serve"]) == 7
    assert served == [Settings.from_env({"CONTAINER_MEM_REQ_BYTES": "8Gi"})]


def test_serve_with_mistakes_lists_them_all_and_starts_nothing(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In words, on standard error, exit code 2."""
    monkeypatch.setenv("ADAPTER_PORT", "eighty")

    assert cli.main(["serve"]) == 2

    out, err = capsys.readouterr()
    assert served == []
    assert out == ""
    assert "ADAPTER_PORT: 'eighty' is not a whole number" in err
    assert "CONTAINER_MEM_REQ_BYTES is missing" in err
    assert "Traceback" not in err


def test_settings_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Every name, unit and default, and what it means."""
    assert cli.main(["settings"]) == 0

    out = capsys.readouterr().out
    assert [about["env"] for about, _ in explained()] == [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert "MODELSIZE_MULTIPLIER  (factor, default 1.25)" in out
    assert "`" not in out


@pytest.mark.parametrize(("is_well", "code"), [(True, 0), (False, 1)])
def test_probe_prints_one_line_and_ends_with_it(
    is_well: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked where the adapter listens."""
    asked: list[tuple[str, bool, float]] = []

    def probe(endpoint: object, *, ready: bool, timeout_seconds: float) -> tuple[bool, str]:
        asked.append((str(endpoint), ready, timeout_seconds))
        return is_well, "the line"

    monkeypatch.setattr("adapter.spi.probe.probe", probe)
    monkeypatch.setenv("ADAPTER_ENDPOINT", "unix:/run/mm.sock")

    assert cli.main(["probe"]) == code
    assert cli.main(["probe", "--ready", "--timeout", "0.5"]) == code

    assert asked == [("unix:/run/mm.sock", False, 5.0), ("unix:/run/mm.sock", True, 0.5)]
    assert capsys.readouterr().out == "the line\nthe line\n"


@pytest.mark.parametrize("timeout", ["0", "-1", "soon"])
def test_probe_wants_a_time_above_zero(timeout: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["probe", f"--timeout={timeout}"])

    assert caught.value.code == 2
    assert timeout in capsys.readouterr().err


def test_probe_with_a_wrong_endpoint_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings are checked for every verb that uses them."""
    monkeypatch.setenv("ADAPTER_ENDPOINT", "8085")

    assert cli.main(["probe"]) == 2
    assert "ADAPTER_ENDPOINT: '8085' is not an endpoint" in capsys.readouterr().err


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the installed package, or the word that there is none."""
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.split()[0] == PROGRAM


def test_module_is_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m adapter` for those who have not installed the script."""
    done = subprocess.run([sys.executable, "-m", "adapter", "settings"], capture_output=True, text=True, check=False)

    assert done.returncode == cli.main(["settings"]) == 0
    assert done.stdout == capsys.readouterr().out


@pytest.mark.parametrize("words", [["models", "some-model"], ["models", "--jsn"]])
def test_models_takes_no_more_words(words: list[str]) -> None:
    """Wrong usage."""
    with pytest.raises(SystemExit) as caught:
        cli.main(words)

    assert caught.value.code == 2


def test_a_reader_that_has_read_enough_is_no_trouble() -> None:
    """`| head -1`: no traceback."""
    code = f"{sys.executable} -m adapter settings | (exec 0<&-; true); echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("0\n", "")


def test_letters_that_a_terminal_does_not_have_are_escaped() -> None:
    """The documents' own dashes, for instance, in an ASCII locale."""
    environ = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([sys.executable, "-m", "adapter", "settings"], capture_output=True, text=True, check=False, env=environ)

    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2212" in done.stdout or "\\xd7" in done.stdout
