"""The repository folder: whole models appear in one rename, and nothing else is ever in it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter.errors import AdapterError, InvalidRequest, VolumeFailed
from adapter.model import Artifact, Layout, SourceFile
from adapter.triton.repository import Repository
from adapter.volume.space import Space
from adapter.volume.volume import Volume

WEIGHTS = SourceFile("weights.onnx", 5, "e1")
CODE = SourceFile("code/model.py", 4, "e2")
LAYOUT = Layout({"1/model.onnx": WEIGHTS, "1/lib/model.py": CODE}, {"config.pbtxt": b"max_batch_size: 0\n"}, ("2",))


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    root = tmp_path / "models"
    volume = Volume(repository_dir=root / "_triton_models", cache_dir=root / "_adapter")
    volume.claim()
    yield volume
    volume.close()


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


PLACED = {
    "m": "dir 755",
    "m/1": "dir 755",
    "m/1/lib": "dir 755",
    "m/1/lib/__pycache__": "dir 755",
    "m/1/lib/model.py": "file 644",
    "m/1/model.onnx": "file 644",
    "m/2": "dir 755",
    "m/config.pbtxt": "file 644",
}


def staged(volume: Volume) -> list[str]:
    return os.listdir(volume.staging_dir)


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


async def test_a_file_of_others_is_linked_without_a_look_at_it(
    repository: Repository, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its volume may hang, and these threads are everybody's; storage has checked the file."""
    looks = watched_looks(monkeypatch, artifact.root)

    await repository.place("m", LAYOUT, Artifact(artifact.root, is_ours=False))
    await repository.inventory()
    await repository.identities(["m"])
    await repository.sweep()
    await repository.place("m", LAYOUT, Artifact(artifact.root, is_ours=False))
    await repository.remove("m")
    await repository.clear()

    assert looks == []


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


@pytest.mark.parametrize("call", ["inventory", "sweep", "clear"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
async def test_a_folder_that_cannot_be_read_is_an_error_in_words(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """Whoever asks Triton's index or adopts models says it, instead of "internal error"."""

    def refuse(folder: Path) -> list[str]:
        raise OSError(code, os.strerror(code), str(folder))

    monkeypatch.setattr(os, "listdir", refuse)

    with pytest.raises(VolumeFailed, match=rf"^the models cannot be .* {repository.folder}: {os.strerror(code)}$"):
        await getattr(repository, call)()


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


async def test_sizes_are_measured_beside_the_loop_in_one_pass(
    repository: Repository, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of 100,000 files takes a second, and much longer on a network volume."""
    asked_by: list[threading.Thread] = []
    scandir = os.scandir
    await repository.place("m", LAYOUT, artifact)
    await repository.place("n", LAYOUT, artifact)

    def noted(path: Path) -> object:
        asked_by.append(threading.current_thread())
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    await repository.inventory()
    assert len(asked_by) == 2 * len(["m", "1", "lib", "__pycache__", "2"])
    assert len(set(asked_by)) == 1 and threading.main_thread() not in asked_by


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


async def test_a_copy_is_another_one(repository: Repository, artifact: Artifact) -> None:
    """Somebody has put it there."""
    identity = await repository.place("m", LAYOUT, artifact)
    shutil.copytree(repository.folder / "m", repository.folder / "copy")
    shutil.rmtree(repository.folder / "m")
    (repository.folder / "copy").rename(repository.folder / "m")

    assert (await repository.inventory())["m"].identity != identity


async def test_an_own_pycache_lies_beside_every_python_file(repository: Repository, artifact: Artifact) -> None:
    """Of a bundle's inner models, too; a model's own one is kept, and nothing else gets one."""
    (artifact.root / "x.pyc").write_bytes(b"x")
    layout = Layout(
        {"top.py": CODE, "1/model.py": CODE, "1/sub/a.py": CODE, "1/sub/b.py": CODE, "1/data/w.onnx": WEIGHTS, "2/model.py": CODE,
         "2/__pycache__/x.pyc": SourceFile("x.pyc", 1, "e")},
        inner={"m~inner~a": Layout({"1/model.py": CODE}), "m~inner~b": Layout({"1/w": WEIGHTS})},
    )  # fmt: skip
    for ours in (True, False):
        await repository.place("m", layout, Artifact(artifact.root, is_ours=ours))
        found = {path.relative_to(repository.folder).as_posix(): os.listdir(path) for path in repository.folder.rglob("__pycache__")}
        assert found == {
            "m/__pycache__": [], "m/1/__pycache__": [], "m/1/sub/__pycache__": [], "m/2/__pycache__": ["x.pyc"],
            "m~inner~a/1/__pycache__": [],
        }  # fmt: skip


async def test_only_what_is_no_artifacts_counts_as_the_folders(volume: Volume, artifact: Artifact) -> None:
    """Written configs; and what was placed from an artifact that is gone, once for all models that have it."""
    space = Space(volume.cache_dir, 0, refuses=False)
    repository = Repository(volume, space)
    written = len(LAYOUT.written["config.pbtxt"])
    await repository.place("m", LAYOUT, artifact)
    await repository.place("n", LAYOUT, artifact)
    assert space.held_bytes() == space.counted_bytes("placed") == 2 * written
    await repository.inventory()
    assert space.held_bytes() == 2 * written
    repository.close()

    later = Repository(volume, space := Space(volume.cache_dir, 0, refuses=False))
    volume.discard(artifact.root)
    await later.inventory()
    assert space.held_bytes() == 9 + 2 * written
    await later.remove("m")
    await later.inventory()
    assert space.held_bytes() == 9 + written
    shutil.rmtree(later.folder / "n")
    await later.inventory()
    assert space.held_bytes() == 0
    later.close()


async def test_a_directory_that_cannot_be_made_is_an_error(repository: Repository) -> None:
    """In words."""
    repository.folder.rmdir()
    repository.folder.write_bytes(b"")

    with pytest.raises(AdapterError, match=r"the folder .* is gone and cannot be made again: File exists"):
        await repository.ensure_directory("m")


async def test_a_probe_that_is_cancelled_while_it_is_made_goes(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory exists before anybody has its name."""
    made, go_on = threading.Event(), threading.Event()
    mkdir = Path.mkdir

    def slow(self: Path) -> None:
        mkdir(self)
        made.set()
        go_on.wait(10)

    monkeypatch.setattr(Path, "mkdir", slow)
    probing = asyncio.create_task(repository.probe().__aenter__())
    while not made.is_set():
        await asyncio.sleep(0)
    probing.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({probing})

    assert probing.cancelled()
    assert os.listdir(repository.folder) == []


BUNDLE = Layout(
    {"1/model.py": CODE},
    {"config.pbtxt": b"top"},
    inner={"m~inner~b": Layout({"1/w": WEIGHTS}), "m~inner~a": Layout({"1/w": WEIGHTS, "1/c": CODE})},
    loaded_first=("m~inner~b",),
)
BUNDLED = ["m", "m~inner~a", "m~inner~b"]


async def test_a_bundle_that_was_another_leaves_nothing_of_it(repository: Repository, artifact: Artifact) -> None:
    """Nor does a model that was a bundle."""
    await repository.place("m", BUNDLE, artifact)
    await repository.place("m", Layout({"1/w": WEIGHTS}, inner={"m~inner~c": LAYOUT}), artifact)
    assert sorted(os.listdir(repository.folder)) == ["m", "m~inner~c"]

    await repository.place("m", LAYOUT, artifact)
    assert sorted(os.listdir(repository.folder)) == ["m"]
    assert repository.inner_names("m") == ()


async def test_a_bundle_that_cannot_be_placed_leaves_nothing(repository: Repository, volume: Volume, artifact: Artifact) -> None:
    """The inner models were there already."""
    missing = SourceFile("gone.onnx", 1, "e3")

    with pytest.raises(AdapterError, match=r"gone\.onnx is not on the volume any more"):
        await repository.place("m", Layout({"1/model.onnx": missing}, inner=BUNDLE.inner), artifact)

    assert os.listdir(repository.folder) == []
    assert staged(volume) == []


@pytest.mark.parametrize("is_purge", [False, True])
async def test_a_model_that_the_disk_keeps_is_not_gone(
    repository: Repository, artifact: Artifact, monkeypatch: pytest.MonkeyPatch, *, is_purge: bool
) -> None:
    """It goes as soon as its caller asks again and the disk lets it."""
    identity = await repository.place("m", LAYOUT, artifact)

    def take_out() -> Any:
        return repository.clear() if is_purge else repository.remove("m")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, os.strerror(errno.EIO))))
        with pytest.raises(VolumeFailed, match="cannot be taken out of"):
            await take_out()

    assert (repository.folder / "m").is_dir()
    await take_out()
    assert list(repository.folder.iterdir()) == []
    assert await repository.place("m", LAYOUT, artifact) != identity
    assert list(await repository.identities(["m"])) == ["m"]


async def test_clearing_forgets_bundles(repository: Repository, artifact: Artifact) -> None:
    await repository.place("m", BUNDLE, artifact)
    await repository.clear()

    assert os.listdir(repository.folder) == []
    assert repository.inner_names("m") == repository.loaded_first("m") == ()


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


async def test_a_cancel_after_the_rename_takes_the_model_out(
    repository: Repository, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes too late for the thread, not for us."""
    renamed, go_on = threading.Event(), threading.Event()
    rename = Path.rename

    def slow(self: Path, target: Path) -> Path:
        path = rename(self, target)
        if target == repository.folder / "m":
            renamed.set()
            go_on.wait(10)
        return path

    monkeypatch.setattr(Path, "rename", slow)
    placing = asyncio.create_task(repository.place("m", LAYOUT, artifact))
    while not renamed.is_set():
        await asyncio.sleep(0)
    placing.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({placing})

    assert placing.cancelled()
    assert os.listdir(repository.folder) == []
