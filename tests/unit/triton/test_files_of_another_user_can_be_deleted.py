"""
Triton runs as root and writes `__pycache__` into the directories of placed models; the adapter runs as another user.

Here a child of another uid places and removes, and this process, as root, compiles what lies in the folder.
"""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

OTHER_USER = 65534
CYCLES = 60
CHILD = """
import asyncio, os, sys
from pathlib import Path
from adapter.model import Artifact, Layout, SourceFile
from adapter.triton.repository import Repository
from adapter.volume.volume import Volume

async def cycles(root, count):
    volume = Volume(root / "_triton_models", root / "_adapter")
    volume.claim()
    repository = Repository(volume)
    staged = volume.new_staging()
    for name in ("model.py", "helper.py"):
        (staged / name).write_text("x = 1\\n")
    artifact = Artifact(volume.publish(staged), is_ours=True)
    model, helper = SourceFile("model.py", 6, "e"), SourceFile("helper.py", 6, "e")
    inner = Layout({"1/model.py": model, "1/package/sub/helper.py": helper})
    layout = Layout({"1/model.py": model, "1/package/helper.py": helper}, inner={"m~inner~a": inner})
    for _ in range(count):
        await repository.place("m", layout, artifact)
        print("placed", flush=True)
        assert sys.stdin.readline() == "used\\n"
        await repository.remove("m")
    print(*(path for path in root.rglob("*") if not path.is_relative_to(artifact.root)), sep="\\n")

os.setgid(65534)
os.setuid(65534)
os.umask(0o077)
asyncio.run(cycles(Path(sys.argv[1]), int(sys.argv[2])))
os._exit(0)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def root() -> Iterator[Path]:
    """A volume that everybody can reach; pytest's own folders are root's."""
    folder = Path(tempfile.mkdtemp())
    os.chown(folder, OTHER_USER, OTHER_USER)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_what_python_leaves_beside_a_model_goes_with_the_model(root: Path) -> None:
    """Of a bundle's inner models and packages, too; nothing is left after many models."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, root, str(CYCLES)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3],
    ) as child:  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        for _ in range(CYCLES):
            assert child.stdout.readline() == "placed\n"
            sources = list((root / "_triton_models").rglob("*.py"))
            assert len(sources) == 4
            for source in sources:
                compiled = Path(py_compile.compile(str(source), doraise=True) or "")
                assert compiled.parent == source.parent / "__pycache__" and compiled.stat().st_uid == 0
            child.stdin.write("used\n")
            child.stdin.flush()
        left = child.stdout.read().split()
    assert child.returncode == 0
    ours = root / "_adapter"
    assert sorted(left) == sorted(
        map(str, [root / "_triton_models", ours, ours / "artifacts", ours / "lock", ours / "staging", ours / "trash"])
    )
