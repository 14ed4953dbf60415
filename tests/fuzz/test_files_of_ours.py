"""The journal and the records of the cache, whatever another program has written into them: believed only where they can be true."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
from hypothesis import event
from hypothesis import strategies as st

from adapter.journal import FORMAT, Found, Head, Journal, JournalProblem, line_of, read
from adapter.lifecycle.states import State
from adapter.model import Listing, SourceFile, id_problem
from adapter.paths import path_problem
from adapter.records import Crashes, Record, Sized
from adapter.storage.bucket import StoredObject
from adapter.storage.cache import record as records
from adapter.storage.cache.record import FILES, ArtifactRecord, KeptFile, Unusable
from adapter.volume.boot import boot_id
from tests.fuzz.fuzzing import fuzzed, mutated, texts, trees
from tests.unit.journal.journals import BOOT, DIGEST, a_record

HEAD = line_of(Head(FORMAT, BOOT, (b"Z" * 32).hex()))
LINES = [
    line_of(a_record()),
    line_of(Crashes(digest=DIGEST, count=2, last=3.0)),
    b'{"id":"m","gone":true}\n',
    b'{"crash":"aa","gone":true}\n',
]
NAMES = [*json.loads(LINES[0]), *json.loads(LINES[1]), "gone", "format"]


def a_line(changes: dict[str, object]) -> bytes:
    return json.dumps(json.loads(LINES[0]) | changes).encode() + b"\n"


honest_values = st.sampled_from([
    "loaded", "loading", "lost", DIGEST, "m", "", None, True, 0, 7, 12.5, 2**63 - 1, 1e10, [DIGEST, None, DIGEST], "../../x", "x" * 200, "é"
])  # fmt: skip
changed = st.builds(a_line, st.dictionaries(st.sampled_from(NAMES), honest_values | trees, min_size=1, max_size=2))
free = st.dictionaries(st.sampled_from(NAMES) | texts, trees, max_size=6).map(lambda found: json.dumps(found).encode() + b"\n")
lines = st.one_of(st.sampled_from(LINES), mutated(st.sampled_from(LINES), 1), changed, changed, changed, free, st.binary(max_size=60))
files = st.one_of(
    st.lists(lines, max_size=6).map(lambda found: HEAD + b"".join(found)),
    mutated(st.lists(st.sampled_from(LINES), max_size=4).map(lambda found: HEAD + b"".join(found))),
    st.lists(lines, max_size=3).map(b"".join),
    st.binary(max_size=100),
)


def check_entry(entry: Record | Crashes) -> None:
    """As the rest of the adapter takes it: nothing in it leads anywhere, and all of it can be written again."""
    if isinstance(entry, Record):
        assert id_problem(entry.model_id) is None and entry.model_id.encode()
        assert entry.state in [state.value for state in State if state is not State.ABSENT]
        assert 0 <= entry.size_bytes < 2**63 and 0 <= entry.since < 1e11 and 0 <= entry.confirmed < 1e11
        assert entry.artifact_key is None or (path_problem(entry.artifact_key) is None and "/" not in entry.artifact_key)
    else:
        assert entry.count >= 0 and "/" not in entry.digest
    assert entries_of(line_of(entry)) == [entry]


@fuzzed(line=lines)
def test_any_line_of_a_journal_says_what_can_be_or_nothing(line: bytes) -> None:
    said = entries_of(line)
    event("an entry" if said else "nothing")
    for entry in said:
        check_entry(entry)


def entries_of(line: bytes) -> list[Record | Crashes | Sized]:
    found = Found(b"")
    found.take(line)
    return [*found.records.values(), *found.crashes.values(), *found.sizes.values()]


@fuzzed(content=files)
def test_any_file_in_the_journals_place_is_read_or_put_away(tmp_path: Path, content: bytes) -> None:
    """And the journal works afterwards, with what was believed and what is new."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    path.chmod(0o600)
    try:
        before = read(path, BOOT)
    except JournalProblem as problem:
        event("put away")
        assert "\n" not in str(problem) and len(str(problem)) < 400
        believed = {}
    else:
        believed = before.records
        for entry in (*before.records.values(), *before.crashes.values()):
            check_entry(entry)
    journal = Journal(path, discard=lambda path: path.unlink(missing_ok=True), boot=BOOT)
    try:
        assert journal.records == believed
        journal.note(Record(model_id="new", state="loading", since=1.0))
        asyncio.run(journal.written())
    finally:
        journal.close()
    assert set(read(path, BOOT).records) == {*believed, "new"}
    path.unlink()


def honest_meta() -> tuple[str, bytes]:
    stored = {"1/model.onnx": StoredObject("m/1/model.onnx", 10, "v1"), "config.pbtxt": StoredObject("m/config.pbtxt", 3, "v2")}
    listed = tuple(SourceFile(path, each.size_bytes, each.etag) for path, each in sorted(stored.items()))
    time_ns = 1_700_000_000_000_000_000
    kept = tuple(KeptFile(f"{FILES}/{path}", each.key, each.etag, each.size_bytes, time_ns) for path, each in sorted(stored.items()))
    listing = Listing("s3://b/m", "m", False, listed)
    return DIGEST, msgspec.json.encode(ArtifactRecord(boot_id=boot_id(), key=DIGEST, origin=DIGEST, listing=listing, files=kept))


KEY, META = honest_meta()
META_NAMES = list(json.loads(META))


def another_meta(changes: dict[str, object], inner: dict[str, object], kept: dict[int, object]) -> tuple[str, bytes]:
    """A record with other values."""
    document = json.loads(META) | changes
    if isinstance(document.get("listing"), dict):
        document["listing"] |= inner
    if document.get("files") == json.loads(META)["files"]:
        document["files"][0] = [kept.get(place, value) for place, value in enumerate(document["files"][0])]
    return KEY, json.dumps(document).encode()


paths = (
    st.sampled_from(["../x", "/etc/passwd", "files/../../x", "files/a", "files/a/b", "schema", "meta.json", "", "files/1/model.onnx"])
    | texts
)
metas = st.one_of(
    st.tuples(st.just(KEY), mutated(st.just(META))),
    st.tuples(st.just(KEY), st.binary(max_size=100)),
    st.builds(
        another_meta,
        st.dictionaries(st.sampled_from(META_NAMES), trees, max_size=1) | st.just({}),
        st.dictionaries(st.sampled_from(["name", "is_single_file", "schema", "files"]), trees | paths, max_size=1),
        st.dictionaries(st.integers(0, 4), honest_values | trees | paths, max_size=2),
    ),
)


def test_the_honest_record_is_believed() -> None:
    assert records.parse(META, KEY).key == KEY
    assert json.loads(META)["boot_id"] == boot_id()


@fuzzed(record=metas)
def test_any_record_of_an_artifact_stays_below_it_or_is_unusable(tmp_path: Path, record: tuple[str, bytes]) -> None:
    """Looking at its files raises nothing else, and it can be written again."""
    key, content = record
    try:
        found = records.parse(content, key)
    except Unusable as reason:
        event(str(reason))
        assert str(reason) in ("a damaged record", "another boot", "another format")
        return
    event("believed")
    for file in found.files:
        assert path_problem(file.path) is None and (file.path == "schema" or file.path.startswith("files/"))
    for listed in found.listing.files:
        assert path_problem(listed.path) is None and 0 <= listed.size_bytes < 2**63
    assert records.parse(msgspec.json.encode(found), key) == found
    if found.files:
        try:
            records.check(tmp_path, found)
        except Unusable:
            return
        raise AssertionError("there are no files here")
