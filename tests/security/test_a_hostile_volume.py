"""
A Triton that runs as root can write everything below ROOT_MODEL_DIR at any moment: it cannot reach beyond.

What lies outside (the storage secret in the adapter's container, the claims beside the volume) is neither read nor changed
nor deleted through links that appear where our folders and files were, and nothing makes the adapter wait or fill its memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from adapter.errors import AdapterError, SourceError
from adapter.model import Artifact, Layout, SourceFile
from adapter.storage.cache import artifacts
from adapter.storage.cache import record as records
from adapter.storage.cache.artifacts import Artifacts
from adapter.storage.cache.record import Unusable
from adapter.storage.pull.archives import unpack
from adapter.triton.repository import Repository
from adapter.volume.boot import boot_id
from adapter.volume.space import Space
from adapter.volume.volume import Volume, open_file
from adapter.workers import Stop
from tests.builders import a_spec, zip_of
from tests.fakes.background_triton import BackgroundTriton
from tests.real.adapter import AdapterProcess
from tests.security.chosen import long_but
from tests.unit.storage.rigs import StoreRig, folder_content, make_rig, opened

SECRET = b'{"secret_access_key": "of the pod"}'


@pytest.fixture
def claim() -> Iterator[Path]:
    """A volume of another user, mounted beside ours."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("needs /dev/shm as a second mount")
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    (folder / "theirs").mkdir()
    (folder / "theirs/weights").write_text("x")
    (folder / "file").write_text("x")
    yield folder
    shutil.rmtree(folder)


def swap(folder: Path, target: Path) -> None:
    """Put a link in the place of a folder."""
    folder.rename(folder.with_name(f"{folder.name}.moved"))
    folder.symlink_to(target)


@pytest.mark.parametrize("call", ["clear", "sweep"])
async def test_a_purge_does_not_follow_the_repository_to_another_mount(volume: Volume, claim: Path, call: str) -> None:
    """Its folder has become a link to a claim while the adapter works."""
    repository = Repository(volume)
    before = folder_content(claim)
    swap(volume.repository_dir, claim)
    await getattr(repository, call)()
    await repository.remove("theirs")
    repository.close()
    assert folder_content(claim) == before
    assert volume.left_bytes() == 0, "what is not ours is not counted either"


@pytest.mark.parametrize("name", ["staging", "artifacts", "trash"])
def test_nothing_is_deleted_behind_a_folder_that_is_swapped_just_then(
    volume: Volume, claim: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As if the link had come in right after the look."""
    monkeypatch.setattr(Volume, "restore", lambda _: None)
    before = folder_content(claim)
    folder = volume.cache_dir / name
    swap(folder, claim)
    if name != "trash":
        volume.discard(folder / "theirs")
        volume.discard(folder / "file")
    for entry in list(volume.trash_dir.iterdir()):
        volume.discard(entry)
    assert folder_content(claim) == before


def test_nothing_is_deleted_behind_the_adapters_own_folder(volume: Volume, claim: Path) -> None:
    (claim / "trash/x").mkdir(parents=True)
    (claim / "staging/x").mkdir(parents=True)
    before = folder_content(claim)
    swap(volume.cache_dir, claim)
    volume.discard(volume.staging_dir / "x")
    for entry in list(volume.trash_dir.iterdir()):
        volume.discard(entry)
    assert folder_content(claim) == before


def test_the_next_start_deletes_nothing_behind_links(tmp_path: Path, claim: Path) -> None:
    before = folder_content(claim)
    folder = tmp_path / "models/_adapter"
    folder.mkdir(parents=True)
    for name in ("staging", "artifacts", "trash"):
        (folder / name).symlink_to(claim)
    volume = Volume(tmp_path / "models/_triton_models", folder)
    volume.claim()
    volume.close()
    assert folder_content(claim) == before


def test_a_lock_that_is_a_link_makes_no_file_elsewhere(tmp_path: Path, claim: Path) -> None:
    folder = tmp_path / "models/_adapter"
    folder.mkdir(parents=True)
    (folder / "lock").symlink_to(claim / "made")
    volume = Volume(tmp_path / "models/_triton_models", folder)
    volume.claim()
    volume.close()
    assert not (claim / "made").exists()
    assert not (folder / "lock").is_symlink()


@pytest.fixture
def rig(tmp_path: Path, volume: Volume) -> Iterator[StoreRig]:
    made = make_rig(tmp_path, volume, cache_bytes=1 << 30)
    yield made
    made.store.close()


def a_linked_folder(file: Path, secret: Path) -> None:
    file.parent.rmdir()
    (secret.parent / file.name).write_bytes(SECRET)
    file.parent.symlink_to(secret.parent)


def a_long_file(file: Path, _: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 42)


SWAPS = [
    pytest.param(lambda file, secret: file.symlink_to(secret), id="a link"),
    pytest.param(lambda file, _: os.mkfifo(file), id="a pipe"),
    pytest.param(lambda file, _: file.symlink_to("/dev/zero"), id="an endless device"),
    a_linked_folder, a_long_file,
]  # fmt: skip


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Of the pod, outside of the volume; for its owner alone."""
    file = tmp_path / "secret/key"
    file.parent.mkdir()
    file.write_bytes(SECRET)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("swapped", SWAPS)
async def test_what_was_unpacked_is_not_read_through_what_came_in_its_place(
    rig: StoreRig, secret: Path, swapped: Callable[[Path, Path], None]
) -> None:
    """A config is read between the unpacking and the placing, and quoted where it is wrong."""
    rig.bucket.put("m.zip", zip_of([("conf/config.pbtxt", b"x" * len(SECRET)), ("1/model.onnx", b"abc")]))
    model = await opened(rig.store, a_spec("m.zip", storage_params={"unpack": "true"}), 60)
    (folder,) = rig.volume.artifacts_dir.iterdir()
    file = folder / "files/conf/config.pbtxt"
    file.unlink()
    swapped(file, secret)
    (config,) = (file for file in model.listing.files if file.path == "conf/config.pbtxt")
    async with asyncio.timeout(20):
        with pytest.raises(SourceError) as caught:
            await model.read(config)
    assert "of the pod" not in str(caught.value)


@pytest.mark.parametrize("swapped", SWAPS)
async def test_what_the_cache_has_is_not_read_through_what_came_in_its_place(
    rig: StoreRig, secret: Path, monkeypatch: pytest.MonkeyPatch, swapped: Callable[[Path, Path], None]
) -> None:
    """The files are swapped between the look at them and the reading: the config comes from the store then."""
    files = {"m/conf/config.pbtxt": b"x" * len(SECRET), "m/1/model.onnx": b"abc"}
    for key, content in files.items():
        rig.bucket.put(key, content)
    model = await opened(rig.store, a_spec("m"), 60)
    await rig.store.release(await model.fetch(model.listing.files))
    (folder,) = rig.volume.artifacts_dir.iterdir()
    file = folder / "files/conf/config.pbtxt"
    monkeypatch.setattr("adapter.storage.cache.record.check", lambda *_: {})
    file.unlink()
    swapped(file, secret)
    again = await opened(rig.store, a_spec("m"), 60)
    (config,) = (file for file in again.listing.files if file.path == "conf/config.pbtxt")
    async with asyncio.timeout(20):
        assert await again.read(config) == b"x" * len(SECRET)


@pytest.mark.parametrize("swapped", SWAPS)
async def test_what_a_front_reads_is_not_read_through_what_came_in_its_place(
    rig: StoreRig, secret: Path, swapped: Callable[[Path, Path], None]
) -> None:
    """Both ends of files are read between the pull and the placing; a front's files are placed as they were read."""
    rig.bucket.put("m/conf/chat_template.jinja", b"x")
    model = await opened(rig.store, a_spec("m"), 60)
    artifact = await model.fetch(model.listing.files)
    file = artifact.root / "conf/chat_template.jinja"
    file.unlink()
    swapped(file, secret)
    try:
        async with asyncio.timeout(20):
            (ends,) = (await model.ends(artifact, model.listing.files)).values()
    except AdapterError as error:
        assert "of the pod" not in str(error)
    else:
        assert swapped is a_long_file and not ends.head.strip(b"\0")


@pytest.mark.parametrize("to", ["secret", "nowhere", "pipe"])
async def test_what_is_placed_is_a_plain_file_and_no_other_files_mode_is_changed(volume: Volume, secret: Path, to: str) -> None:
    """An artifact's file was swapped after the look: a link would have given everybody leave to read what it leads to."""
    staged = volume.new_staging()
    if to == "pipe":
        os.mkfifo(staged / "model.onnx", 0o600)
    else:
        (staged / "model.onnx").symlink_to(secret if to == "secret" else secret.with_name("nowhere"))
    artifact = Artifact(volume.publish(staged), is_ours=True)
    repository = Repository(volume)
    with pytest.raises(AdapterError, match="is not on the volume any more"):
        await repository.place("m", Layout({"1/model.onnx": SourceFile("model.onnx", 3, "e")}, {}), artifact)
    repository.close()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert not os.listdir(volume.repository_dir)


def test_a_part_is_not_written_into_a_pipe(tmp_path: Path) -> None:
    """Opening it to write would wait for a reader, in a thread that cannot be woken."""
    os.mkfifo(tmp_path / "part")
    with pytest.raises(OSError, match="No such device"):
        open_file(tmp_path / "part", is_new=False)


def test_an_archive_that_turns_into_a_pipe_is_not_waited_for(tmp_path: Path, volume: Volume) -> None:
    """In a thread that cannot be woken."""
    os.mkfifo(tmp_path / "m.tar")
    with Space(volume.cache_dir, 0, refuses=False).reservation() as reserved, pytest.raises(OSError, match="not a regular file"):
        unpack(tmp_path / "m.tar", name="m.tar", target=tmp_path, reserved=reserved, max_bytes=1, stop=Stop())


DIGEST = "ab" * 32
HUGE = "9" * 400
"""A whole number that no float can hold."""


def hostile_lines() -> Iterator[str]:
    """Lines of a journal; each of them alone must change nothing."""
    record = {
        "id": "m", "state": "loaded", "since": 1, "type": "onnx", "path": "m", "key": None, "content": [DIGEST] * 3,
        "artifact": DIGEST, "size": 1, "placed": "1-1", "confirmed": 1,
    }  # fmt: skip
    for name in record:
        for value in (HUGE, "-1", "1e999", "NaN", '"../../etc"', '"\\ud800"', "[]", "{}", "true", '"' + "x" * 9000 + '"'):
            text = json.dumps(record | {name: "VALUE", "id": "m" if name != "id" else "VALUE"})
            yield text.replace('"VALUE"', value)
    yield from (f'{{"crash":"{DIGEST}","count":{value},"last":{value}}}' for value in (HUGE, "-1", "[]", "1e999"))
    yield from ("[" * 15_000, "{}", "null", "\x00", '{"id":', '{"gone":true}', '{"id":"m","id":[]}', '{"crash":null}')


def hostile_records(artifacts: Path) -> None:
    """Folders of artifacts, each spoiled in another way."""
    meta = {
        "format": records.FORMAT, "boot_id": boot_id(), "key": DIGEST, "origin": DIGEST,
        "listing": {
            "origin": "m", "name": "m", "is_single_file": False, "schema": None, "files": [{"path": "a", "size_bytes": 1, "etag": "e"}],
        },
        "files": [["files/a", "m/a", "e", 1, 1]],
    }  # fmt: skip
    spoiled = [json.dumps(meta).replace('"e", 1, 1', f'"e", 1, {HUGE}'), "[" * 100_000, '{"a":' * 100_000, "null", "\x00" * 100, "{}"]
    spoiled += [json.dumps(meta | {name: value}) for name in meta for value in (None, [], {}, "\ud800", 10**400, [[[]]], {"": {}})]
    spoiled += [json.dumps({other: value for other, value in meta.items() if other != name}) for name in meta]
    spoiled += [json.dumps(meta | {"files": [["files/a"]]}), json.dumps(meta | {"listing": {"name": "m"}})]
    for number, text in enumerate(spoiled):
        folder = artifacts / f"{number:064x}.{number:016x}"
        folder.mkdir(parents=True)
        (folder / "meta.json").write_text(text.replace(f'"key": "{DIGEST}"', f'"key": "{folder.stem}"'), errors="surrogatepass")
    (artifacts / f"{'f' * 64}.{'0' * 16}").symlink_to("/etc")
    (artifacts / "\udcff").mkdir()
    os.mkfifo(artifacts / f"{'e' * 64}.{'0' * 16}")


@pytest.fixture
def adapter_over(fake_triton: BackgroundTriton, tmp_path: Path) -> Callable[[], AdapterProcess]:
    """The adapter as a process, over the volume in `models`, which keeps what it pulls."""
    (tmp_path / "secret").mkdir()
    env = {"CACHE_MAX_BYTES": "1GiB"}
    return lambda: AdapterProcess(volume=tmp_path / "models", storage_config=tmp_path / "secret", triton_target=fake_triton.target, env=env)


def test_the_adapter_starts_over_whatever_it_finds(adapter_over: Callable[[], AdapterProcess], tmp_path: Path) -> None:
    """Records and journal of every malice at once; it answers, drops the records, and says so in few lines."""
    folder = tmp_path / "models/_adapter"
    hostile_records(folder / "artifacts")
    head = json.dumps({"format": 1, "boot_id": boot_id(), "salt": "5a" * 32})
    (folder / "journal.jsonl").write_text("\n".join([head, *hostile_lines()]) + "\n")
    with adapter_over() as adapter:
        until = time.monotonic() + 20
        while os.listdir(folder / "artifacts") and time.monotonic() < until:
            time.sleep(0.05)
        assert os.listdir(folder / "artifacts") == []
        assert stat.S_IMODE((folder / "journal.jsonl").stat().st_mode) == 0o600
        log = adapter.log_text()
    assert log.count("cache.dropped") <= 8
    assert "Traceback" not in log


@pytest.mark.parametrize("kind", long_but(("a pipe", "a device", "a folder", "a link"), "a pipe", "a link"))
def test_the_adapter_starts_over_a_journal_that_is_no_file(adapter_over: Callable[[], AdapterProcess], tmp_path: Path, kind: str) -> None:
    journal = tmp_path / "models/_adapter/journal.jsonl"
    journal.parent.mkdir(parents=True)
    secret = tmp_path / "secret-file"
    secret.write_bytes(SECRET)
    if kind == "a pipe":
        os.mkfifo(journal)
    elif kind == "a folder":
        (journal / "deep").mkdir(parents=True)
    else:
        journal.symlink_to("/dev/zero" if kind == "a device" else secret)
    with adapter_over() as adapter:
        assert "journal.ignored" in adapter.log_text()
    assert secret.read_bytes() == SECRET


def test_a_start_reads_a_bounded_number_of_records(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume full of long records would keep the adapter busy for hours; those that were used last are read."""
    monkeypatch.setattr(artifacts, "MAX_RECORDS_BYTES", 25_000)
    for number in range(1, 6):
        folder = volume.artifacts_dir / f"{number:064x}.{number:016x}"
        folder.mkdir()
        (folder / "meta.json").write_bytes(b"x" * 10_000)
        os.utime(folder, (number, number))
    read: list[str] = []

    def unusable(folder: Path) -> None:
        read.append(folder.stem[-1])
        raise Unusable("a test")

    monkeypatch.setattr(records, "read", unusable)
    with capture_logs() as told:
        Artifacts(volume, keeps_idle=True).read_all(Stop())
    assert read == ["5", "4"]
    assert {line["reason"]: line["artifacts"] for line in told} == {"a test": 2, "more records than are read at a start": 3}
    assert os.listdir(volume.artifacts_dir) == []
