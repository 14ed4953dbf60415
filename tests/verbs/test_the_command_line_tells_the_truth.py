"""Words in, exit codes out: 0 done, 1 it did not work, 2 wrong usage or settings."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import adapter
from adapter import cli
from adapter.settings import Settings, explained
from tests.fakes.logging_state import untouched_logging
from tests.real.children import TOP, bare_environment

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("dance", "dance"),
        ("models some-model", "some-model"),
        ("models --jsn", "--jsn"),
        *((f"probe --timeout={time}", f"argument --timeout: '{time}'") for time in ("0", "-1", "soon")),
        *(
            (f"probe --ready --host {host}", "argument --host: ")
            for host in ("nameonly", "name:", ":9464", "name:0", "name:x", "http://n:1")
        ),
    ],
)
def test_wrong_usage_is_told(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As argparse says it."""
    with pytest.raises(SystemExit) as caught:
        cli.main(words.split())
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_serve_passes_the_settings_and_the_exit_code(served: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends as the app says."""
    monkeypatch.setenv("CONTAINER_MEM_REQ_BYTES", "8Gi")

    assert cli.main(["serve"]) == 7
    assert served == [Settings.from_env({"CONTAINER_MEM_REQ_BYTES": "8Gi"})]


def test_settings_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Every name, unit and default, and what it means."""
    assert cli.main(["settings"]) == 0

    out = capsys.readouterr().out
    assert [about["env"] for about, _ in explained()] == [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert "MODELSIZE_MULTIPLIER  (factor, default 1.25)" in out
    assert "`" not in out


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the installed package, or the word that there is none."""
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.split()[0] == PROGRAM


def test_module_is_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m adapter` for those who have not installed the script."""
    done = subprocess.run([sys.executable, "-m", "adapter", "settings"], capture_output=True, text=True, check=False)

    assert done.returncode == cli.main(["settings"]) == 0
    assert done.stdout == capsys.readouterr().out


def test_a_reader_that_has_read_enough_is_no_trouble() -> None:
    """`| head -1`: no traceback."""
    code = f"{sys.executable} -m adapter settings | (exec 0<&-; true); echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_watch_ends_with_its_reader(tmp_path: Path) -> None:
    """`models --watch 0.1 | head -1`: what has no reader does not go on."""
    (tmp_path / "_triton_models").mkdir()
    environ = {**os.environ, "ROOT_MODEL_DIR": str(tmp_path), "ADAPTER_PORT": "0", "METRICS_PORT": "0", "RUNTIME_ENDPOINT": "127.0.0.1:1"}
    command = [sys.executable, "-m", "adapter", "models", "--watch", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as watch:
        assert watch.stdout is not None and watch.stderr is not None
        assert watch.stdout.readline().startswith(b"adapter  ")
        watch.stdout.close()
        try:
            assert watch.wait(30) == 1
        finally:
            watch.kill()
        assert watch.stderr.read() == b""


@pytest.mark.parametrize(("words", "code"), [("models", 130), ("models --watch", 0), ("unload m --force", 130)])
def test_ctrl_c_is_no_traceback(words: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was not shown did not agree."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("adapter.verbs.models.look", interrupted)
    monkeypatch.setattr("adapter.verbs.load.run", interrupted)
    with untouched_logging():
        assert cli.main(words.split()) == code


def test_the_end_does_not_need_a_reader_of_the_log() -> None:
    code = "import sys; from adapter import app; sys.stdout.write('x'); sys.stdin.read(); app._leave(3)"
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=bare_environment() | {"PYTHONPATH": str(TOP)}) as ending:
        assert ending.stdout is not None
        ending.stdout.close()
        assert ending.communicate()[1] == b""
    assert ending.returncode == 3


def test_letters_that_a_terminal_does_not_have_are_escaped() -> None:
    """The documents' own dashes, for instance, in an ASCII locale."""
    environ = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([sys.executable, "-m", "adapter", "settings"], capture_output=True, text=True, check=False, env=environ)

    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2212" in done.stdout or "\\xd7" in done.stdout
