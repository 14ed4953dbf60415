"""The command line on the real S3 server, Triton and adapter process, with every fault; and against parts that run already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mesh import __main__ as command
from tests.mesh.parts import Parts
from tests.real.models import affine

TOP = Path(__file__).parents[2]
pytestmark = [pytest.mark.real_triton, pytest.mark.timeout(240)]


def run(*words: str) -> tuple[int, str]:
    """As an operator does."""
    done = subprocess.run([sys.executable, "-m", "tests.mesh", *words], cwd=TOP, capture_output=True, text=True, timeout=220, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_an_operator_drives_an_adapter_that_runs(capfd: pytest.CaptureFixture[str]) -> None:
    with Parts() as parts:
        parts.put("mine", affine(2, 1))
        targets = ["--adapter", parts.adapter.channel_target, "--triton", parts.triton.grpc_target, "--volume", str(parts.volume)]
        code, text = run(*targets, "--purge", "--path", "mine", "--type", "python", "--models", "5", "--seconds", "2")
        assert code == 0, text
        assert list((parts.volume / "_triton_models").iterdir()) == []
        code = command.main([*targets, "--purge", "--path", "nothing-here", "--type", "python"])
    told = capfd.readouterr().err
    assert (code, "nothing-here" in told) == (command.CANNOT, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--adapter", "localhost:1"], "belong together"),
        (["--adapter", "localhost:1", "--triton", "localhost:2", "--path", "m"], "--purge"),
        (["--adapter", "localhost:1", "--triton", "localhost:2", "--purge"], "--path"),
    ],
)
def test_what_could_hurt_is_asked_for(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(words)

    assert says in capsys.readouterr().err
