"""Files that a config names, or is: regular ones alone, bounded, opened without waiting, and none that a request names."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from adapter.errors import InvalidModel, InvalidRequest, SourceChanged, SourceUnavailable
from adapter.storage.mounted import local
from adapter.storage.mounted.local import Bounds
from adapter.storage.mounted.reads import VolumeReads
from adapter.storage.secret import fields
from adapter.storage.secret.config import StorageConfigs
from adapter.storage.stores.table import BINDINGS, BUCKETS
from adapter.waits import Waits
from adapter.workers import Workers
from tests.builders import a_spec
from tests.real.s3 import S3Server
from tests.unit.storage.rigs import make_config

PLACES = {"s3": {"bucket": "b"}, "gcs": {"bucket": "b"}, "azure": {"account_name": "a"}, "http": {"url": "https://h"}}


@pytest.fixture(scope="module")
def pem() -> str:
    """A certificate."""
    server = S3Server(tls=True)  # never started
    server.stop()
    return server.ca_pem or ""


def odd_files(folder: Path) -> list[tuple[Path, str]]:
    """Paths that are no small regular file, and what is said of each."""
    os.mkfifo(folder / "fifo")
    (folder / "large").write_bytes(b"x" * (fields.MAX_BYTES + 1))
    (folder / "link").symlink_to("/dev/zero")
    return [
        (Path("/dev/zero"), "not a regular file"),
        (Path("/dev/ptmx"), "not a regular file"),
        (Path("/dev/tty"), "not a regular file"),
        (folder / "link", "not a regular file"),
        (folder / "fifo", "not a regular file"),
        (folder, "Is a directory"),
        (folder / "large", "larger than 1048576 bytes"),
        (folder / "absent", "No such file or directory"),
        (Path("/dev/fd/999"), "No such file or directory"),
    ]


@pytest.mark.parametrize("kind", BUCKETS)
def test_a_stored_bundle_is_a_small_regular_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every type, in both fields that lead to a file."""
    values = {"type": kind, **PLACES[kind]}
    for path, words in odd_files(tmp_path):
        with pytest.raises(InvalidRequest, match=rf"ca_bundle: the file cannot be read \({words}\)"):
            BUCKETS[kind].connection(make_config(values | {"ca_bundle": str(path)}))
        monkeypatch.setattr(fields, "MOUNTED_CA_BUNDLE", path)
        with pytest.raises(InvalidRequest, match=rf"cabundle_configmap is 'x'.* cannot be read \({words}\)"):
            BUCKETS[kind].connection(make_config(values | {"cabundle_configmap": "x"}))


def test_a_bundle_may_be_a_link_as_kubernetes_mounts_it(tmp_path: Path, pem: str) -> None:
    """And as large as a config map can be."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data/ca.crt").write_text(pem + "#" * (fields.MAX_BYTES - len(pem)))
    (tmp_path / "ca.crt").symlink_to("..data/ca.crt")

    made = BUCKETS["s3"].connection(make_config({"type": "s3", "ca_bundle": str(tmp_path / "ca.crt")}))

    assert (made.trust.ca_pem or "").strip() == pem.strip()


async def test_the_storage_secret_is_read_the_same_way(tmp_path: Path) -> None:
    """A storage key may be any name in the folder: a device there would never end, a FIFO never answer."""
    workers = Workers("secret", 2)
    configs = StorageConfigs(tmp_path, BINDINGS, workers)
    try:
        for number, (path, words) in enumerate(odd_files(tmp_path)):
            (tmp_path / f"key{number}").symlink_to(path)
            said = f"there is no storage config 'key{number}'" if "No such" in words else f"'key{number}' cannot be read: {words}"
            with pytest.raises(InvalidRequest, match=said):
                await configs.resolve(a_spec(storage_key=f"key{number}"))
        content = json.dumps({"type": "s3", "bucket": "b"})
        (tmp_path / "most").write_text(content + " " * (fields.MAX_BYTES - len(content)))
        assert (await configs.resolve(a_spec(storage_key="most"))).bucket == "b"
    finally:
        workers.close()


def test_a_file_that_turns_into_a_device_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked at may have been replaced before it is opened."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("x")
    status = (tmp_path / "file").stat()
    monkeypatch.setattr(os, "stat", lambda *_, **__: status)

    with pytest.raises(OSError, match="not a regular file"):
        fields.read_small(tmp_path / "fifo")


@pytest.mark.parametrize("becomes", ["a FIFO", "a large file"])
async def test_a_file_of_a_claim_is_read_as_it_was_listed(becomes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write to the volume: between the last look and the reading, a file may become anything."""
    path = tmp_path / "model" / "config.pbtxt"
    path.parent.mkdir()
    path.write_text("x")
    listing = local.list_folder(path.parent)
    reads = VolumeReads("own", "the model volume")
    place = local.Place(Bounds(path.parent), path.parent, None, "model", "model")
    model = local.LocalModel(listing=listing, place=place, reads=reads, waits=Waits(time.monotonic))
    monkeypatch.setattr(local, "_check_unchanged", lambda *_: None)
    path.unlink()
    try:
        if becomes == "a FIFO":
            os.mkfifo(path)
            with pytest.raises(SourceUnavailable, match="cannot be read: not a regular file"):
                await model.read(listing.files[0])
        else:
            path.write_text("x" * 1000)
            assert len(await model.read(listing.files[0])) == 2, "one byte more than was listed is enough to know"
    finally:
        reads.close()


async def test_a_link_of_a_claim_that_turns_while_it_is_read_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads to a file of the claim at each look, and to a secret in between: what was opened counts."""
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "inside").write_bytes(b"inside")
    link = folder / "config.pbtxt"
    link.symlink_to("inside")

    def turned(path: str, flags: int) -> int:
        link.unlink()
        link.symlink_to(tmp_path / "secret")
        file = os.open(path, flags)
        link.unlink()
        link.symlink_to("inside")
        return file

    listing = local.list_folder(folder)
    reads = VolumeReads("own", "the model volume")
    model = local.LocalModel(listing, local.Place(Bounds(folder), folder, None, "model", "model"), reads, Waits(time.monotonic))
    monkeypatch.setattr(local, "opened", turned)
    try:
        with pytest.raises(SourceChanged):
            await model.read(listing.files[0])
        with pytest.raises(SourceChanged):
            await model.ends(await model.fetch(listing.files), listing.files)
    finally:
        reads.close()


def test_names_of_a_claim_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of long paths, 100,000 would take 400 MiB."""
    monkeypatch.setattr("adapter.paths.MAX_PATHS_MIB", 1)
    folder = tmp_path.joinpath(*(["d" * 200] * 4))
    folder.mkdir(parents=True)
    for number in range(1500):
        (folder / f"{number}").touch()
    with pytest.raises(InvalidModel, match="has paths of more than 1 MiB, all of them together"):
        local.list_folder(tmp_path)


def test_a_hostile_certificate_costs_one_look_at_each_byte() -> None:
    """A text of beginnings without an end took a minute for each megabyte, with the interpreter's lock held."""
    begin = "-----BEGIN CERTIFICATE-----\n"
    text = begin * (fields.MAX_BYTES // len(begin))
    started = time.perf_counter()

    with pytest.raises(InvalidRequest, match="certificate: no valid PEM certificate"):
        BUCKETS["s3"].connection(make_config({"type": "s3", "certificate": text}))

    assert time.perf_counter() - started < 10
    with pytest.raises(InvalidRequest, match=re.escape("certificate: more than 1048576 characters")):
        BUCKETS["s3"].connection(make_config({"type": "s3", "certificate": text + begin}))
