"""What has the shape of a credential, and what was read as one, is in no answer, log line, probe, view or metric."""

from __future__ import annotations

import asyncio
import io
import logging
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import grpc
import pytest
import structlog
from grpc import aio

from adapter._pb import model_runtime_pb2 as pb
from adapter.errors import ModelRefused
from adapter.model import ModelSpec
from adapter.settings.process import TelemetrySettings
from adapter.telemetry import logs
from adapter.telemetry.http import TelemetryServer
from adapter.telemetry.redaction import remember
from tests.unit.journal.journals import a_record
from tests.unit.spi.serving import ScriptedLifecycle, serving
from tests.verbs.models import Place

SECRET = "hunter2hunter2"
REMEMBERED = "correct horse battery"
"""Without any shape: it was read from a storage config."""
PUBLIC = "minio-host"
TEXTS = [
    f"GET http://user:{SECRET}@{PUBLIC}/b failed",
    f"GET https://{PUBLIC}/b/k?X-Amz-Signature={SECRET}&y=z failed",
    f"{PUBLIC} said: Authorization: Bearer {SECRET}",
    f"{PUBLIC} said: headers {{'x-api-key': '{SECRET}', 'Accept': '*/*'}}",
    f"{PUBLIC}: AccountName=a;AccountKey={SECRET};EndpointSuffix=core",
    f'{PUBLIC}: {{"secret_access_key": "{SECRET}", "region": "x"}}',
    f"{PUBLIC}: password = {SECRET}; next",
    f"{PUBLIC}: -----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----.",
    f"{PUBLIC}: sv=2022-11-02&sp=r&sig={SECRET}&se=2030",
    f"{PUBLIC} wants x-team: {REMEMBERED}",
    f"{PUBLIC} was asked for ?q={quote(REMEMBERED)}&r=1",
]
BY_TEXT = pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:40])


@pytest.fixture(autouse=True)
def remembered() -> None:
    remember(REMEMBERED)


def is_clean(shown: str) -> bool:
    """The secret is gone, and the word that a person needs is still there."""
    assert PUBLIC in shown
    return not any(secret in shown for secret in (SECRET, REMEMBERED, quote(REMEMBERED)))


@BY_TEXT
async def test_an_answer_to_modelmesh_has_none(text: str) -> None:
    async def load(_: ModelSpec) -> None:
        raise ModelRefused(text)

    async with serving(ScriptedLifecycle(load)) as runtime:
        with pytest.raises(aio.AioRpcError) as refused:
            await runtime.loadModel(pb.LoadModelRequest(modelId="m"), timeout=10)
    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert is_clean(refused.value.details() or "")


@BY_TEXT
def test_a_log_line_has_none_in_any_field_at_any_depth_nor_in_a_traceback(text: str) -> None:
    lines = io.StringIO()
    logs.configure(TelemetrySettings(metrics_port=0, log_level="debug", log_format="json"), lines)
    log = structlog.stdlib.get_logger("x")
    log.info("one", cause=text, inner={"many": [text, {"deep": text}]})
    logging.getLogger("some.library").warning("two %s", text)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("three")
    assert len(lines.getvalue().splitlines()) == 3
    assert all(is_clean(line) for line in lines.getvalue().splitlines())


@BY_TEXT
def test_probes_and_metrics_have_none(text: str) -> None:
    server = TelemetryServer(port=0, readiness=lambda: None, notice=lambda: text)
    try:
        with urlopen(f"http://127.0.0.1:{server.port}/readyz", timeout=10) as answer:
            assert is_clean(answer.read().decode())
        with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
            assert SECRET not in answer.read().decode()
    finally:
        server.close()


@BY_TEXT
async def test_the_view_of_models_has_none_of_a_path_or_of_tritons_reason(text: str, place: Place) -> None:
    """Neither for people nor for programs."""
    place.note(a_record("m", placed=await place.put("m"), path=text))
    place.triton.behaviour("m").refuse = text
    with pytest.raises(Exception, match=PUBLIC):
        await place.load("m")
    async with asyncio.timeout(20):
        code, shown, _ = await place.shows()
    assert code == 1
    assert SECRET not in shown and REMEMBERED not in shown and "Triton says of m: " in shown
    assert is_clean(str(await place.json()))


def test_the_exact_value_is_found_in_the_forms_that_libraries_write(tmp_path: Path) -> None:
    """As it is, in a path, in a query, and with what a log line escapes."""
    odd = 'correct horse/"battery"\n+staple=é'
    remember(odd)
    lines = io.StringIO()
    logs.configure(TelemetrySettings(metrics_port=0, log_level="debug", log_format="json"), lines)
    structlog.stdlib.get_logger("x").info("one", forms=[odd, quote(odd), quote(odd, safe=""), odd.strip()])
    assert "staple" not in lines.getvalue()
