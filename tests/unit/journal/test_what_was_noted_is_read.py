"""Notes reach the file in order, the last of each id counts, and the file stays short."""

from __future__ import annotations

import json
import stat

import pytest

from adapter.errors import InvalidRequest
from adapter.journal import SLACK_BYTES, line_of
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.model import MAX_NAME_BYTES, Named
from adapter.records import Content, Crashes, Digests, Needed, Sized
from tests.builders import a_listing, a_spec
from tests.fakes.memory import UntoldMemory
from tests.unit.journal.journals import Rig, a_record


async def test_a_later_process_reads_what_was_noted(rig: Rig) -> None:
    journal = rig.start()
    full = a_record("full")
    bare = a_record("bare", storage_key=None, content=None, artifact_key=None, placed=None, path="", model_type="", confirmed=0.0)
    partly = a_record("partly", content=Content("aa", None, "bb"))
    crashes = Crashes(digest="cc", count=2, last=7.5)
    sized = Sized(content=Content("ss", None, "dd"), model_type="onnx", size_bytes=5, source="measured", predicted_bytes=6, spread_bytes=1)
    needed = Needed(base_bytes=7, reserve_bytes=8)
    for entry in (full, bare, partly, crashes, sized, needed):
        journal.note(entry)
    await journal.written()

    later = rig.start()

    assert later.records == {"full": full, "bare": bare, "partly": partly} == journal.records
    assert later.crashes == {"cc": crashes} == journal.crashes
    assert later.sizes == {"ss": sized} == journal.sizes
    assert later.needed == {"memory": needed} == journal.needed
    assert later.digests.of_spec(a_spec()) == journal.digests.of_spec(a_spec())
    assert rig.trash == []


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "a\0", "a\n", "\ud800", "é" * (MAX_NAME_BYTES // 2 + 1)])
def test_a_name_that_cannot_be_kept_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="the name of a model"):
        Named(name, "/m")
    with pytest.raises(InvalidRequest, match="the url of a model"):
        Named("m", "/m\n" if name else "")


async def test_the_last_note_of_an_id_counts_also_in_one_batch_and_over_processes(rig: Rig) -> None:
    journal = rig.start()
    for size in range(50):
        journal.note(a_record("a", size_bytes=size))
        journal.note(a_record("b", size_bytes=size))
    journal.forget(a_record("b"))
    journal.note(Crashes(digest="c", count=1, last=1.0))
    journal.forget(Crashes(digest="c", count=1, last=1.0))
    journal.forget(a_record("never noted"))
    await journal.written()
    journal.close()

    later = rig.start()
    assert {name: record.size_bytes for name, record in later.records.items()} == {"a": 49}
    assert later.crashes == {}
    later.note(a_record("a", size_bytes=50))
    later.note(a_record("b", size_bytes=51))
    await later.written()

    assert {name: record.size_bytes for name, record in rig.found().records.items()} == {"a": 50, "b": 51}


async def test_nobody_else_may_read_the_file_whatever_the_umask_and_whoever_changed_it(rig: Rig) -> None:
    """A cluster's fsGroup opens files of a volume to the group; then they are closed again, and still believed."""
    journal = rig.start()
    journal.note(a_record("a"))
    await journal.written()
    journal.close()
    assert stat.S_IMODE(rig.path.stat().st_mode) == 0o600
    rig.path.chmod(0o660)

    later = rig.start()
    later.note(a_record("b"))
    await later.written()

    assert stat.S_IMODE(rig.path.stat().st_mode) == 0o600
    assert set(rig.found().records) == {"a", "b"}


async def test_two_thousand_ids_and_twenty_thousand_notes_stay_within_twice_what_is_held(rig: Rig) -> None:
    """Also while it grows: the file is looked at all along."""
    journal = rig.start()
    most = 0
    for number in range(20_000):
        journal.note(a_record(f"model-{number % 2_000}", size_bytes=number))
        if number % 1_000 == 999:
            await journal.written()
            most = max(most, rig.path.stat().st_size)
    held = sum(len(line_of(record)) for record in journal.records.values())

    assert most <= 2 * held + SLACK_BYTES + 1_000
    assert [record.size_bytes for record in rig.found().records.values()] == list(range(18_000, 20_000))


async def test_long_and_strange_texts_are_kept_as_far_as_they_are_for_people(rig: Rig) -> None:
    """The id is what everything hangs on: all of it is kept."""
    ids = ["ä" * 127, "\x01" * 255, "\U0001f600" * 63, 'a b\n{}"\\\x7f\x85\u2028', " "]
    journal = rig.start()
    for model_id in ids:
        journal.note(a_record(model_id, path="\U0001f600" * 5_000, model_type="t" * 5_000, storage_key="\x00" * 5_000))
    await journal.written()

    records = rig.found().records
    assert list(records) == ids
    assert rig.path.read_bytes().isascii()
    assert rig.path.read_text().isprintable() is False  # newlines
    assert all(line.isprintable() for line in rig.path.read_text().split("\n"))


async def test_no_secret_of_a_spec_reaches_the_file(rig: Rig) -> None:
    """Neither of the parameters, nor of the path, nor something that a guess can be tried against without the salt."""
    journal = rig.start()
    registry = Registry(journal, UntoldMemory())
    spec = a_spec(
        "https://user:pa55word-7@host/models/a?sig=5ecret5ig%3D&X-Amz-Signature=deadbeefcafe",
        model_id="a",
        storage_params={"secret_access_key": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"},
    )
    model = Model("a", asked=spec, content=Content(journal.digests.of_spec(spec), journal.digests.of_listing(a_listing(["x"])), "cc"))
    registry.move(model, State.PULLING)
    registry.move(model, State.LOADING)
    await journal.written()
    journal.close()

    text = rig.path.read_text()
    assert json.loads(text.splitlines()[1])["path"].startswith("https://host/models/a")
    for secret in ("pa55word", "5ecret5ig", "deadbeefcafe", "wJalrXUtnFEMI"):
        assert secret not in text
    assert Digests(b"").of_spec(spec) not in text
