"""What a newcomer pastes: `scripts/serve`, and the command that loads a model and asks it, with the answer that the README shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

from tests.real.children import TOP, Child, bare_environment
from tests.real.install import install
from tests.real.parts import or_skip
from tests.real.ports import free_ports


def test_the_model_is_loaded_and_answers_as_shown() -> None:
    or_skip(install)
    page = (TOP / "README.md").read_text()
    command, shown = re.findall(r"^\.venv/bin/modelmesh-triton-adapter (load .*)\n```\n\n```text\n(.*?)```", page, re.M | re.S)[0]
    waited_for = re.findall(r'^# wait for "(.*)"$', page, re.M)[0]
    names = ("ADAPTER_PORT", "METRICS_PORT", "RUNTIME_PORT")
    env = bare_environment() | {name: str(port) for name, port in zip(names, free_ports(3), strict=True)}
    serve = Child("serve", [sys.executable, "-m", "tests.real.alone", TOP / "deploy/compose/buckets/models"], env=env)
    try:
        serve.wait_until(lambda: waited_for in serve.log_text(), "ready", 60)
        done = subprocess.run(
            [sys.executable, "-m", "adapter", *shlex.split(command)], env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr, done.stdout) == (0, "", shown)
    finally:
        assert serve.stop(30) == 0
