"""Reads of one claim: bounded for each caller, left behind when they hang, and well again by themselves."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from adapter.ends import Count
from adapter.errors import InvalidModel, InvalidRequest, SourceUnavailable
from adapter.storage.mounted import local, reads
from adapter.storage.mounted.bounds import Bounds
from adapter.storage.mounted.links import claims_on_the_way
from adapter.storage.mounted.reads import THREADS, ClaimReads, ClaimsReads
from adapter.waits import Waits
from adapter.workers import Stop, Workers
from tests.builders import a_spec
from tests.unit.storage.beds import opened, write_tree


class Claim:
    """A claim whose reads hang until they are released."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.begun = 0
        self.ended = 0

    def read(self, _stop: Stop) -> str:
        self.begun += 1
        self.answers.wait(30)
        self.ended += 1
        return "content"


@pytest.fixture
def claim() -> Iterator[Claim]:
    claim = Claim()
    yield claim
    claim.answers.set()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes less here."""
    monkeypatch.setattr(reads, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(reads, "SOON_SECONDS", 0.1)
    monkeypatch.setattr(reads, "_TICK_SECONDS", 0.01)


@pytest.fixture
async def threads(quick: None) -> AsyncIterator[ClaimReads]:
    made = ClaimReads("c")
    yield made
    made.close()


def waits(seconds: float = 20) -> Waits:
    return Waits(time.monotonic, time.monotonic() + seconds)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


def watch(monkeypatch: pytest.MonkeyPatch, seen: Callable[[str], object], *names: str) -> None:
    """Call `seen` with the path before each of these calls of the operating system."""
    for name in names:
        original = getattr(os, name)

        def call(path, *more, _original=original, **options):
            seen(str(path) if isinstance(path, int) else os.fsdecode(path))
            return _original(path, *more, **options)

        monkeypatch.setattr(os, name, call)


async def test_a_read_that_hangs_ends_for_its_caller(threads: ClaimReads, claim: Claim) -> None:
    """At his time; what had come before is nobody's any more."""
    mine = waits(0.2)
    with pytest.raises(SourceUnavailable, match=r"^the volume claim 'c' does not answer: |^the volume claim 'c' is too slow: ") as failed:
        await threads.run(mine, claim.read)
    assert failed.value.can_pass and claim.begun == 1 and claim.ended == 0
    assert mine.words() is None


async def test_a_budget_may_grow_while_a_read_hangs(threads: ClaimReads, claim: Claim) -> None:
    """Callers come and go."""
    mine = waits(0.2)
    reading = asyncio.create_task(threads.run(mine, claim.read))
    mine.until += 20
    await asyncio.wait({reading}, timeout=0.4)
    assert not reading.done()
    claim.answers.set()
    assert await reading == "content"


async def test_a_cancel_waits_for_no_thread(threads: ClaimReads, claim: Claim) -> None:
    """Of those that read and of those that wait; the claim serves when it answers again."""
    tasks = [asyncio.create_task(threads.run(waits(), claim.read)) for _ in range(6)]
    await until(lambda: claim.begun == THREADS)
    for task in tasks:
        task.cancel()
    async with asyncio.timeout(5):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert claim.ended == 0
    claim.answers.set()
    assert await threads.run(waits(), claim.read) == "content"
    await until(lambda: claim.ended == THREADS + 1)
    await until(lambda: threads._lanes.is_idle and not threads._reads)


async def test_a_claim_whose_threads_all_hang_answers_soon(threads: ClaimReads, claim: Claim, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the call came before that was known, or after; not before, for a claim may be slow for a moment."""
    hanging = [asyncio.create_task(threads.run(waits(), claim.read)) for _ in range(THREADS)]
    await until(lambda: claim.begun == THREADS)
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match=r"does not answer: all 2 threads that may read it hang, the first for \d+ s$"):
            await threads.run(waits(), claim.read)
    assert not any(task.done() for task in hanging), "they have their whole time"
    claim.answers.set()
    assert await asyncio.gather(*hanging) == ["content"] * THREADS
    assert await threads.run(waits(), claim.read) == "content"
    told = capsys.readouterr().out
    assert told.count("claim.silent") == told.count("claim.back") == 1


async def test_a_read_that_makes_steps_does_not_hang(threads: ClaimReads) -> None:
    """However long it takes: others wait for it, and are not told that the claim is silent."""
    release = threading.Event()

    def slow(stop: Stop) -> None:
        while not release.wait(0.01):
            stop.check()

    busy = [asyncio.create_task(threads.run(waits(), slow)) for _ in range(THREADS)]
    third = asyncio.create_task(threads.run(waits(), lambda _: "content"))
    await asyncio.wait({third}, timeout=1)
    assert not third.done()
    with pytest.raises(SourceUnavailable, match=r"its threads have read for others for 0\.\d s"):
        await threads.run(waits(0.1), lambda _: "content")
    with pytest.raises(SourceUnavailable, match=r"^the volume claim 'c' is too slow: "):
        release.set()
        await asyncio.gather(*busy, third)
        release.clear()
        await threads.run(waits(0.1), slow)
    release.set()


async def test_an_abandoned_read_stops_at_its_next_step(threads: ClaimReads, claim: Claim) -> None:
    steps = []

    def walk(stop: Stop) -> None:
        claim.read(stop)
        stop.check()
        steps.append("looked on")

    reading = asyncio.create_task(threads.run(waits(), walk))
    await until(lambda: claim.begun == 1)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    claim.answers.set()
    await until(lambda: threads._lanes.is_idle)
    assert steps == []


async def test_only_mounted_claims_get_threads(tmp_path: Path) -> None:
    """Made once, however many ask for them at a time."""
    (tmp_path / "mine").mkdir()
    looks = Workers("look", 1)
    claims = ClaimsReads(tmp_path, looks)
    with pytest.raises(InvalidRequest, match="the volume claim 'made-up' is not mounted: expected it at"):
        await claims.of("made-up")
    found = await asyncio.gather(*(claims.of("mine") for _ in range(10)))
    assert len(set(found)) == 1
    named = [thread.name for thread in threading.enumerate() if thread.name.startswith(("claim-mine", "claim-made-up"))]
    assert sorted(named) == ["claim-mine_0", "claim-mine_1"]
    claims.close()
    looks.close()


async def test_a_survey_ends_in_time_whatever_hangs(bed, tmp_path, monkeypatch) -> None:
    """The claim, the folder of claims, the model volume or the storage secret; a cancel of it waits for none of them."""
    write_tree(tmp_path / "claims/c/m", {"file": b"abc"})
    bed.configure("k", {"type": "pvc", "name": "c"})
    release, names = threading.Event(), ("scandir", "stat", "lstat", "listdir", "readlink", "open")

    def hang(path: str) -> None:
        if threading.current_thread() is not threading.main_thread() and tmp_path in Path(path).parents:
            release.wait(30)

    watch(monkeypatch, hang, *names)
    helped = a_spec(str(bed.root / "m"), disk_size_bytes=3)
    for spec in (a_spec(storage_params={"type": "pvc", "name": "c"}), a_spec(storage_key="k"), helped) * 3:
        began = time.monotonic()
        survey = await bed.store.survey(spec, 0.2)
        assert (survey.seen_bytes, survey.listing) == (0, None)
        assert time.monotonic() - began < 5
    release.set()
    monkeypatch.undo()
    await until(lambda: not bed.store._left)
    assert (await bed.store.survey(a_spec(storage_key="k"), 20)).seen_bytes == 3


# a link below the root, what it leads to, the claims that are met
WAYS = [
    ("{claims}/c/m", ["c"]),
    ("{claims}/../claims/./c//m", ["c"]),
    ("{claims}", []),
    ("/etc", []),
    ("nowhere", []),
    ("loop", []),
    ("other", ["c"]),
    ("{claims}/c/to-d", ["c", "d"]),
    ("{claims}/nothing/m", ["nothing"]),
]


@pytest.mark.parametrize(("target", "met"), WAYS)
def test_claims_are_found_without_a_look_into_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, met: list[str]) -> None:
    """The first one that is told was not looked into."""
    claims = tmp_path / "claims"
    write_tree(claims, {"c/m/file": b"", "d/file": b""})
    (claims / "c/to-d").symlink_to("../d/file")
    (tmp_path / "link").symlink_to(target.format(claims=claims))
    (tmp_path / "loop").symlink_to("link")
    (tmp_path / "other").symlink_to(claims / "c")
    assert list(claims_on_the_way(tmp_path / "link", claims)) == met
    (tmp_path / "elsewhere").symlink_to(claims)
    assert list(claims_on_the_way(tmp_path / "link", tmp_path / "elsewhere")) == met

    looks: list[str] = []
    watch(monkeypatch, looks.append, "readlink", "lstat", "stat")
    assert next(claims_on_the_way(tmp_path / "link", claims), None) == (met[0] if met else None)
    assert not [path for path in looks if path.startswith(f"{claims}/")]


def test_a_link_into_another_claim_is_refused_before_a_look(tmp_path: Path) -> None:
    write_tree(tmp_path, {"c/m/file": b"", "d/file": b""})
    (tmp_path / "c/m/x").symlink_to("../../d/file")
    with pytest.raises(InvalidModel, match="leads out of"):
        Bounds(claim=tmp_path / "c", mounts=tmp_path).check(tmp_path / "c/m/x")


async def test_the_ends_of_a_claims_files_are_read_by_its_own_threads(bed, tmp_path, monkeypatch) -> None:
    """And of ours by threads of our volume."""
    seen = []
    monkeypatch.setattr(
        local, "read_ends", lambda *more, original=local.read_ends: seen.append(threading.current_thread().name) or original(*more)
    )
    write_tree(tmp_path / "claims/c/m", {"file": b"abcabc"})
    write_tree(bed.root, {"helped/m": b"abcabc"})
    helped = a_spec(str(bed.root / "helped/m"), disk_size_bytes=1)
    for spec, start in ((a_spec(storage_params={"type": "pvc", "name": "c"}), "claim-c_"), (helped, "look_")):
        model = await opened(bed.store, spec)
        artifact = await model.fetch(model.listing.files)
        (found,) = (await model.ends(artifact, {model.listing.files[0]: Count(b"abc")})).values()
        assert (found.tail, found.mentions) == (b"abcabc", 2)
        assert seen.pop().startswith(start)


CALLS = ("stat", "lstat", "scandir", "readlink", "open", "pread")


@pytest.mark.parametrize("trouble", [errno.ESTALE, errno.EIO])
async def test_a_claim_that_answers_with_errors_is_at_fault_and_not_the_model(bed, tmp_path, monkeypatch, trouble: int) -> None:
    """Whichever call meets the first error: nothing is called missing, changed or wrong, and nothing is a defect of ours."""
    write_tree(tmp_path / "claims/c", {"v1/1/model": b"abc", "v1/config.pbtxt": b"x", "v1/deep/er/file": b"y"})
    (tmp_path / "claims/c/v1/link").symlink_to("1/model")
    (tmp_path / "claims/c/m").symlink_to("v1")
    spec = a_spec(storage_params={"type": "pvc", "name": "c"})
    met, allowed = 0, sys.maxsize

    def meet(path: str) -> None:
        nonlocal met
        if threading.current_thread().name.startswith("claim-c") and (path.isdecimal() or path.startswith(f"{tmp_path}/claims/c")):
            met += 1
            if met > allowed:
                raise OSError(trouble, os.strerror(trouble), path)

    async def load() -> None:
        model = await opened(bed.store, spec)
        artifact = await model.fetch(model.listing.files)
        await asyncio.gather(*map(model.read, model.listing.files))
        await model.ends(artifact, dict.fromkeys(model.listing.files))

    watch(monkeypatch, meet, *CALLS)
    await load()
    total = met
    for number in range(total):
        met, allowed = 0, number
        with pytest.raises(SourceUnavailable, match=os.strerror(trouble)):
            await load()
    assert total > 50


async def test_entries_are_counted_while_a_directory_is_read(bed, tmp_path, monkeypatch) -> None:
    """One with millions is not kept in memory, and a server that needs time for many does not count as silent."""
    write_tree(tmp_path / "claims/c/m", {f"{number}": b"" for number in range(50)})
    monkeypatch.setattr(local, "MAX_OBJECTS", 10)
    taken = 0

    class Scan:
        def __init__(self, path: object) -> None:
            self._entries = scandir(path)

        def __enter__(self) -> Scan:
            return self

        def __exit__(self, *_: object) -> None:
            self._entries.close()

        def __iter__(self) -> Iterator[os.DirEntry[str]]:
            nonlocal taken
            for entry in self._entries:
                taken += 1
                yield entry

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", Scan)
    with pytest.raises(InvalidModel, match="holds more than 10 files and directories"):
        await opened(bed.store, a_spec(storage_params={"type": "pvc", "name": "c"}))
    assert taken == 11


async def test_a_claim_that_is_busy_is_not_called_silent(threads: ClaimReads, capsys: pytest.CaptureFixture[str]) -> None:
    """Its threads make steps, and a prediction has no time to wait for them."""
    release = threading.Event()

    def slow(stop: Stop) -> None:
        while not release.wait(0.01):
            stop.check()

    busy = [asyncio.create_task(threads.run(waits(), slow)) for _ in range(THREADS)]
    await until(lambda: len(threads._reads) == THREADS)
    with pytest.raises(SourceUnavailable, match=r"^the volume claim 'c' is busy: its threads have read for others for 0\.\d s$"):
        await threads.run(waits(0.1), lambda _: "content")
    release.set()
    await asyncio.gather(*busy)
    assert "claim." not in capsys.readouterr().out
