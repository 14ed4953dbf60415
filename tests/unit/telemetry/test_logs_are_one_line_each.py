"""One JSON object per line, from structlog and the standard library alike, without secrets."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from adapter.settings import read_group
from adapter.settings.process import TelemetrySettings
from adapter.storage.stores.table import BINDINGS
from adapter.telemetry import logs
from adapter.telemetry.redaction import MASK
from tests.fakes.logging_state import untouched_logging

ALL_CREDENTIALS = {name for binding in BINDINGS.values() for name in binding.credentials}
PUBLIC = {"client_id", "client_email", "tenant_id", "client_certificate"}
"""They belong to a credential and may be known."""


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    with untouched_logging():
        yield


class Lines(io.StringIO):
    """A stream that was written to by the logs."""

    def __init__(self, is_terminal: bool = False) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


def configured(stream: Any = None, **variables: str) -> Any:
    stream = Lines() if stream is None else stream
    logs.configure(read_group(TelemetrySettings, variables), stream)
    return stream


def test_line_is_an_object_that_begins_with_time_level_event() -> None:
    """In the order in which people read."""
    stream = configured()

    structlog.stdlib.get_logger("x").info("model.loaded", model_id="m1", size_bytes=5, phases={"pull": 0.5})

    (line,) = stream.objects
    assert list(line) == ["time", "level", "event", "model_id", "size_bytes", "phases"]
    assert (line["level"], line["event"], line["phases"]) == ("info", "model.loaded", {"pull": 0.5})
    assert line["time"].endswith("Z")


def test_standard_library_goes_through_the_same_processors() -> None:
    """Libraries log with `logging`; their lines look like ours, and lose their secrets too."""
    stream = configured()

    logging.getLogger("some.library").warning("GET %s", "https://u:p@h/x?sig=1")

    (line,) = stream.objects
    assert (line["level"], line["event"], line["logger"]) == ("warning", "GET https://h/x", "some.library")


@pytest.mark.parametrize(
    ("format_", "is_terminal", "is_json"),
    [("auto", False, True), ("auto", True, False), ("json", True, True), ("text", False, False)],
)
def test_json_unless_a_terminal(format_: str, is_terminal: bool, is_json: bool) -> None:
    """Readable where a person looks, and where it is asked for."""
    stream = configured(Lines(is_terminal), LOG_FORMAT=format_)

    structlog.stdlib.get_logger("x").info("model.loaded", model_id="m1")

    text = stream.getvalue()
    assert text.startswith("{") is is_json
    assert "model.loaded" in text
    assert "\x1b[" in text or not (is_terminal and not is_json)  # colours only for eyes


def test_level_is_honoured_by_both() -> None:
    """And libraries never go below info: botocore's debug lines hold signed headers."""
    stream = configured(LOG_LEVEL="debug")

    structlog.stdlib.get_logger("x").debug("ours")
    logging.getLogger("some.library").debug("theirs")
    for library in ("botocore.auth", "google.auth.transport.requests"):
        logging.getLogger(library).debug("signed")
    configured(stream, LOG_LEVEL="warning")
    structlog.stdlib.get_logger("y").info("quiet")
    logging.getLogger("some.library").info("quiet")

    assert [line["event"] for line in stream.objects] == ["ours", "theirs"]


@pytest.mark.parametrize("name", ["secret_access_key", "Access_Key_Id", "model_key", "storage_params", *sorted(ALL_CREDENTIALS - PUBLIC)])
def test_secret_fields_are_masked_at_any_depth(name: str) -> None:
    """By name, whatever the value."""
    stream = configured()

    structlog.stdlib.get_logger("x").info(
        "config.read", **{name: "hunter2"}, config={"inner": [{name: {"deep": "hunter2"}}, {name: 7654321}]}
    )

    assert "hunter2" not in stream.getvalue()
    assert "7654321" not in stream.getvalue()
    assert stream.objects[0][name] == MASK


def test_any_value_can_be_logged() -> None:
    """A log line must not be what fails."""
    stream = configured()

    structlog.stdlib.get_logger("x").info("odd", path=io, number=float("inf"), text="\ud800\n", nothing=None, many={"a"})

    assert len(stream.getvalue().splitlines()) == 1


def test_broken_stream_fails_no_load() -> None:
    """The reader of the log has gone; loads go on."""

    class Broken(Lines):
        attempts = 0

        def write(self, text: str) -> int:
            self.attempts += 1
            raise BrokenPipeError

    stream = configured(Broken())

    structlog.stdlib.get_logger("x").info("model.loaded")
    logging.getLogger("some.library").warning("hello")

    assert stream.attempts == 2
