"""The commands of the two pages, as a reader would paste them."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.fronts.bed import Pod
from tests.real.children import TOP
from tests.real.models import affine

BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(("page", "is_loaded", "count"), [("sagemaker", False, 5), ("v2-rest", True, 4)])
def test_each_command_of_the_page_works(pod: Pod, page: str, is_loaded: bool, count: int) -> None:
    url = pod.put("half", affine(0.5, 0))
    if is_loaded:
        assert pod.load("half", affine(0.5, 0)).status == 200
    (block,) = BLOCK.findall((TOP / "deploy" / "docs" / f"{page}.md").read_text())
    commands = block.replace("\\\n", "").strip().splitlines()
    assert len(commands) == count
    for command in commands:
        here = command.replace("localhost:8080", f"localhost:{pod.sagemaker.port}").replace("localhost:8082", f"localhost:{pod.v2.port}")
        done = subprocess.run(
            ["bash", "-c", here.replace("/opt/ml/models/half/model", url)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, f"{here}: {done.stdout} {done.stderr}"
        if "infer" in command or "invoke" in command:
            assert '"data":[0.5,1.0]' in done.stdout
