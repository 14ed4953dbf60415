"""The repository folder: whole models appear in one rename, and nothing else is ever in it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter.errors import InvalidRequest
from adapter.model import Artifact, Layout, SourceFile
from adapter.triton.repository import Repository
from adapter.volume.volume import Volume

WEIGHTS = SourceFile("weights.onnx", 5, "e1")
CODE = SourceFile("code/model.py", 4, "e2")
LAYOUT = Layout({"1/model.onnx": WEIGHTS, "1/lib/model.py": CODE}, {"config.pbtxt": b"max_batch_size: 0\n"}, ("2",))


@pytest.fixture
def repository(volume: Volume) -> Iterator[Repository]:
    repository = Repository(volume)
    yield repository
    repository.close()


@pytest.fixture
def artifact(volume: Volume) -> Artifact:
    root = volume.cache_dir / "artifacts" / "a1"
    (root / "code").mkdir(parents=True)
    (root / "weights.onnx").write_bytes(b"12345")
    (root / "code" / "model.py").write_bytes(b"pass")
    return Artifact(root, is_ours=True)


def tree(folder: Path) -> dict[str, str]:
    """Path → kind and mode."""
    return {
        str(
            path.relative_to(folder)
        ): f"{'link' if path.is_symlink() else 'dir' if path.is_dir() else 'file'} {path.stat().st_mode & 0o777:o}"
        for path in sorted(folder.rglob("*"))
    }


async def test_directories_are_never_shared_with_the_artifact(repository: Repository, artifact: Artifact) -> None:
    """Triton's python stub writes into them."""
    await repository.place("m", LAYOUT, artifact)
    (repository.folder / "m/1/lib/__pycache__/model.pyc").write_bytes(b"x")

    await repository.remove("m")

    assert sorted(path.name for path in artifact.root.rglob("*")) == ["code", "model.py", "weights.onnx"]
    assert (artifact.root / "weights.onnx").read_bytes() == b"12345"


async def test_files_of_others_are_linked_one_by_one(repository: Repository, artifact: Artifact) -> None:
    """Those of a claim or a storage helper may lie on another file system, and are not ours to change."""
    theirs = Artifact(artifact.root, is_ours=False)
    (artifact.root / "weights.onnx").chmod(0o600)

    await repository.place("m", LAYOUT, theirs)

    placed = repository.folder / "m/1/model.onnx"
    assert placed.readlink() == artifact.root / "weights.onnx"
    assert tree(repository.folder)["m/1"] == "dir 755"
    assert (artifact.root / "weights.onnx").stat().st_mode & 0o777 == 0o600
    await repository.remove("m")
    assert (artifact.root / "weights.onnx").exists()


@pytest.mark.parametrize("call", ["inventory", "identities", "sweep", "ensure", "place", "remove", "clear"])
async def test_a_link_in_the_folder_itself_is_not_followed(
    repository: Repository, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """We never make one; it may lead into a claim that hangs."""
    (tmp_path / "hung/1").mkdir(parents=True)
    (repository.folder / "m").symlink_to(tmp_path / "hung")
    looks = watched_looks(monkeypatch, tmp_path / "hung")
    calls = {
        "inventory": repository.inventory,
        "identities": lambda: repository.identities(["m"]),
        "sweep": repository.sweep,
        "ensure": lambda: repository.ensure_directory("m"),
        "place": lambda: repository.place("m", LAYOUT, artifact),
        "remove": lambda: repository.remove("m"),
        "clear": repository.clear,
    }

    found = await calls[call]()

    assert looks == []
    if call == "inventory":
        assert found == {}
    elif call != "identities":
        assert not (repository.folder / "m").is_symlink()
    monkeypatch.undo()
    assert os.listdir(tmp_path / "hung") == ["1"]


def watched_looks(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> list[str]:
    """Calls that go to these folders, or through a link: a file system that hangs would hold each of them."""
    looks: list[str] = []
    roots = tuple(str(folder) for folder in folders)

    def watch(name: str) -> None:
        original = getattr(os, name)

        def call(path: Any, *more: Any, **options: Any) -> Any:
            text = str(path)
            follows = options.get("follow_symlinks", name not in ("lstat", "readlink", "unlink", "rmdir")) and options.get("dir_fd") is None
            if text.startswith(roots) or (follows and Path(text).is_relative_to("/") and original_islink(text)):
                looks.append(f"{name} {text}")
            return original(path, *more, **options)

        monkeypatch.setattr(os, name, call)

    original_lstat = os.lstat

    def original_islink(text: str) -> bool:
        try:
            return stat.S_ISLNK(original_lstat(text).st_mode)
        except OSError:
            return False

    for name in ("stat", "lstat", "scandir", "listdir", "open", "readlink"):
        watch(name)
    return looks


async def size_of(repository: Repository, name: str) -> int:
    placed = (await repository.inventory()).get(name)
    return placed.size_bytes if placed else 0


async def test_sizes_ask_nothing_of_what_lies_behind_links(repository: Repository, artifact: Artifact, tmp_path: Path) -> None:
    """A claim's server that hangs would hold up the take-over of all models."""
    elsewhere = tmp_path / "claim"
    elsewhere.mkdir()
    (elsewhere / "large").write_bytes(bytes(1000))
    await repository.place("theirs", LAYOUT, Artifact(artifact.root, is_ours=False))
    (repository.folder / "theirs/elsewhere").symlink_to(elsewhere)
    (repository.folder / "theirs/loop").symlink_to(repository.folder / "theirs")
    (repository.folder / "theirs/stray").symlink_to("/nowhere")
    os.mkfifo(repository.folder / "theirs/pipe")
    (repository.folder / "linked").symlink_to(elsewhere)

    found = await repository.inventory()

    assert {name: placed.size_bytes for name, placed in found.items()} == {"theirs": len(LAYOUT.written["config.pbtxt"])}


async def test_what_triton_writes_changes_no_identity(repository: Repository, volume: Volume, artifact: Artifact) -> None:
    """Its python stub writes `__pycache__`. Later processes see the same. What is written at the model's top makes it another one."""
    identity = await repository.place("m", LAYOUT, artifact)
    model = repository.folder / "m"
    (model / "1/lib/__pycache__/model.pyc").write_bytes(b"x")
    model.chmod(0o777)
    shutil.rmtree(model / "1/lib")

    assert (await repository.inventory())["m"].identity == identity
    assert await repository.identities(["m", "absent"]) == {"m": identity}
    later = Repository(volume)
    assert (await later.inventory())["m"].identity == identity
    later.close()
    (model / "note").write_text("x")
    assert (await repository.inventory())["m"].identity != identity


async def test_what_is_placed_again_is_another_one(repository: Repository, artifact: Artifact) -> None:
    """However soon: a file system may give the next directory the same number, within one tick of its clock."""
    seen = set()
    for _ in range(100):
        identity = await repository.place("m", LAYOUT, artifact)
        assert (await repository.inventory())["m"].identity == identity
        seen.add(identity)
        await repository.remove("m")
    assert len(seen) == 100


BUNDLE = Layout(
    {"1/model.py": CODE},
    {"config.pbtxt": b"top"},
    inner={"m~inner~b": Layout({"1/w": WEIGHTS}), "m~inner~a": Layout({"1/w": WEIGHTS, "1/c": CODE})},
    loaded_first=("m~inner~b",),
)
BUNDLED = ["m", "m~inner~a", "m~inner~b"]


async def test_what_others_have_put_there_is_never_touched(volume: Volume, artifact: Artifact) -> None:
    """Also a link that leads nowhere, and a file: whoever unloads such a name looks, and takes nothing."""
    folder = volume.repository_dir
    (folder / "theirs").mkdir()
    (folder / "theirs" / "config.pbtxt").write_bytes(b"x")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "file").write_bytes(b"x")
    repository = Repository(volume, own=())
    try:
        await repository.claim("ours")
        await repository.place("ours", LAYOUT, artifact)
        for name in ("theirs", "dangling", "file"):
            with pytest.raises(InvalidRequest, match=f"has a model '{name}' already"):
                await repository.claim(name)
            await repository.ensure_directory(name)
            await repository.remove(name)
        await repository.sweep()
        await repository.clear()
        assert sorted(path.name for path in folder.iterdir()) == ["dangling", "file", "theirs"]
        assert (os.readlink(folder / "dangling"), (folder / "theirs" / "config.pbtxt").read_bytes()) == ("nowhere", b"x")
    finally:
        repository.close()


async def test_a_bundle_is_placed_and_taken_out_as_one(
    repository: Repository, volume: Volume, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The top model appears last and goes first: what names others never stands alone."""
    moves: list[str] = []
    rename = Path.rename

    def noted(self: Path, target: Path) -> Path:
        moves.extend([f"+{target.name}"] if target.parent == repository.folder else [f"-{self.name}"])
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", noted)
    await repository.place("m", BUNDLE, artifact)

    assert sorted(os.listdir(repository.folder)) == BUNDLED
    assert repository.inner_names("m") == ("m~inner~a", "m~inner~b")
    assert repository.loaded_first("m") == ("m~inner~b",)
    later = Repository(volume)
    assert later.loaded_first("m") == ("m~inner~a", "m~inner~b"), "which of them Triton loads by itself is not known any more"
    later.close()
    assert await size_of(repository, "m") == 3 + 5 + 4
    await repository.remove("m")
    assert os.listdir(repository.folder) == []
    assert repository.inner_names("m") == repository.loaded_first("m") == ()
    assert moves[:3] == ["+m~inner~b", "+m~inner~a", "+m"]
    assert [move for move in moves if move.startswith("-m")] == ["-m", "-m~inner~a", "-m~inner~b"]
