"""What becomes of each model at a take-over, by what its record, the index and the folder say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from adapter.lifecycle.looks import Finding, findings
from adapter.lifecycle.states import State
from adapter.model import Placed, ServerModel
from adapter.records import Content, Record

CONTENT = Content(spec="s", listing="l", crash="c")


def a_record(state: str, model_id: str = "a", **fields: Any) -> Record:
    """Of a model whose directory has the identity `1`."""
    return Record(model_id=model_id, state=state, since=7.0, **{"placed": "1", "content": CONTENT, **fields})


def rows_of(*states: str, name: str = "a") -> list[ServerModel]:
    return [ServerModel(name, str(version), state, "") for version, state in enumerate(states, 1)]


def found(record: Record | None, states: Sequence[str], identity: str | None = "1", **others: Record) -> Finding:
    """The finding on `a`; `others` are loaded models that the index does not know any more, or serves."""
    records = {name: other for name, other in {"a": record, **others}.items() if other is not None}
    rows: Mapping[str, Sequence[ServerModel]] = {"a": rows_of(*states)} if states else {}
    rows = {**rows, **{name: rows_of("", name=name) for name in others}}
    placed = {name: Placed("1", 100) for name in others} | ({} if identity is None else {"a": Placed(identity, 100)})
    return next(finding for finding in findings(records, rows, placed) if finding.model_id == "a")


@pytest.mark.parametrize("state", ["loaded", "lost", "loading", "pulling"])
def test_a_model_that_serves_what_its_record_tells_is_adopted_with_its_record(state: str) -> None:
    """A load that Triton has ended after the adapter's death was wanted; a record may be one step behind."""
    record = a_record(state)

    assert found(record, ["READY"]) == Finding("a", State.LOADED, record, Placed("1", 100))


@pytest.mark.parametrize(
    "record", [None, a_record("loaded", placed="2"), a_record("unloading", placed="2"), a_record("loaded", placed=None)]
)
def test_a_model_that_serves_from_a_directory_of_no_record_is_adopted_with_unknown_content(record: Record | None) -> None:
    """Another directory is another content: an adapter without a journal was here meanwhile."""
    assert found(record, ["READY"]) == Finding("a", State.LOADED, None, Placed("1", 100))


@pytest.mark.parametrize("state", ["unloading", "failed"])
def test_an_unload_that_was_begun_is_finished(state: str) -> None:
    """Triton was told, or was about to be."""
    assert found(a_record(state), ["READY"]).state is State.FAILED


@pytest.mark.parametrize("state", ["loaded", "lost"])
def test_a_loaded_model_that_this_triton_was_never_asked_for_is_lost(state: str) -> None:
    assert found(a_record(state), [""]).state is State.LOST


@pytest.mark.parametrize("states", [["UNAVAILABLE"], ["UNLOADING"], ["LOADING"]])
def test_a_loaded_model_that_somebody_else_has_touched_is_taken_down(states: list[str]) -> None:
    assert found(a_record("loaded"), states).state is State.FAILED


@pytest.mark.parametrize("record", [None, a_record("loaded", placed="2")])
@pytest.mark.parametrize("states", [[""], ["LOADING"], ["UNAVAILABLE"], ["READY", "UNLOADING"]])
def test_what_no_record_tells_of_and_triton_does_not_serve_is_taken_down(record: Record | None, states: list[str]) -> None:
    assert found(record, states) == Finding("a", State.FAILED, None, Placed("1", 100))


@pytest.mark.parametrize("states", [[""], ["LOADING"], ["UNAVAILABLE"]])
@pytest.mark.parametrize("state", ["pulling", "loading"])
def test_a_first_load_that_was_under_way_is_undone(state: str, states: list[str]) -> None:
    assert found(a_record(state), states).state is State.FAILED


@pytest.mark.parametrize(("states", "state"), [([""], State.LOST), (["LOADING"], State.FAILED), (["UNAVAILABLE"], State.FAILED)])
def test_a_model_that_was_about_to_be_loaded_again_is_still_to_be_loaded_again(states: list[str], state: State) -> None:
    """It had been answered LOADED before. A load that runs in Triton has nobody any more who could follow it."""
    assert found(a_record("loading", confirmed=3.0), states).state is state


def test_a_record_of_a_model_that_nobody_has_is_forgotten() -> None:
    record = a_record("loaded")

    assert found(record, [], None) == Finding("a", State.ABSENT, record, None)


def test_a_directory_that_the_index_leaves_out_is_taken_down() -> None:
    assert found(a_record("loaded"), []).state is State.FAILED


def test_a_directory_that_neither_journal_nor_index_knows_is_left_alone() -> None:
    assert findings({}, {}, {"a": Placed("1", 100)}) == []


@pytest.mark.parametrize("confirmed", [0.0, 3.0])
def test_a_load_that_was_under_way_when_triton_restarted_is_a_crash_of_its_content(confirmed: float) -> None:
    """Also of a model that was being loaded again: it may be what kills Triton."""
    found_in_load = found(a_record("loading", confirmed=confirmed), [""], b=a_record("loaded", "b"))

    assert (found_in_load.state, found_in_load.crash) == (State.FAILED, "c")


@pytest.mark.parametrize("state", ["lost", "pulling"])
def test_no_loaded_model_lost_since_is_no_evidence_of_a_crash(state: str) -> None:
    """What was lost before the load began says nothing of a restart since."""
    assert found(a_record("loading"), [""], b=a_record(state, "b")).crash is None


def test_a_load_that_triton_still_knows_was_not_under_way_at_its_restart() -> None:
    assert found(a_record("loading"), ["LOADING"], b=a_record("loaded", "b")).crash is None


def test_a_bundle_is_adopted_whole_or_not_at_all() -> None:
    record, placed = a_record("loaded"), {"a": Placed("1", 100)}
    rows = {"a": [*rows_of("READY"), *rows_of("UNAVAILABLE", name="a~inner~x")]}

    assert [finding.state for finding in findings({"a": record}, rows, placed)] == [State.FAILED]
