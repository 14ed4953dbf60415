"""A model that Triton has lost, and that is being loaded again, is 503 with `Retry-After` in every front; Triton is not asked."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from adapter.fronts import sagemaker
from adapter.fronts.llm import routes as llm
from adapter.fronts.v2 import routes as v2
from adapter.serving import KnownModel
from adapter.settings import read_group
from adapter.settings.fronts import LlmSettings, SageMakerSettings
from tests.unit.fronts.rigs import parts_of, served

NOT_ASKED: Any = Mock(spec=["answer", "model_metadata", "is_model_ready"])
READY: Any = Mock(is_ready=AsyncMock(return_value=True))


class Models:
    """One model, which is being loaded again."""

    obstacle = None

    def find(self, name: str) -> KnownModel | None:
        return (
            KnownModel("sm-digest", name, "/u", is_serving=False, is_coming_back=True, is_going=False) if name == "an opaque name" else None
        )

    find_id = find

    def known(self) -> list[KnownModel]:
        return [model for model in [self.find("an opaque name")] if model is not None]


MODELS: Any = Models()
FRONTS = {
    "sagemaker": sagemaker.front(read_group(SageMakerSettings, {}), MODELS, NOT_ASKED, NOT_ASKED),
    "v2": v2.front(NOT_ASKED, NOT_ASKED, MODELS),
    "lmi": llm.front(read_group(LlmSettings, {}), MODELS, NOT_ASKED, NOT_ASKED),
}


@pytest.mark.parametrize(
    ("front", "method", "path"),
    [
        ("sagemaker", "POST", "/models/an%20opaque%20name/invoke"),
        ("v2", "GET", "/v2/models/an%20opaque%20name"),
        ("v2", "GET", "/v2/models/an%20opaque%20name/ready"),
        ("v2", "POST", "/v2/models/an%20opaque%20name/infer"),
        ("v2", "POST", "/v2/models/an%20opaque%20name/versions/1/generate_stream"),
        ("lmi", "POST", "/predictions/an%20opaque%20name"),
        ("lmi", "GET", "/v1/models/an%20opaque%20name"),
    ],
)
async def test_it_is_for_later(front: str, method: str, path: str) -> None:
    async with served(*FRONTS[front].routes) as server:
        status, headers, body = parts_of(await server.asked(method, path, body=b"{}" if method == "POST" else b""))
    assert (status, headers["retry-after"], b"being loaded" in body) == (503, "1", True)
    assert NOT_ASKED.mock_calls == []


async def test_v2_is_not_ready_meanwhile_but_for_a_minute_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(*v2.front(READY, READY, MODELS).routes) as server:
        assert parts_of(await server.asked("GET", "/v2/health/ready"))[0] == 503
        monkeypatch.setattr(v2, "RESTORE_SECONDS", 0)
        assert parts_of(await server.asked("GET", "/v2/health/ready"))[0] == 200


@pytest.mark.parametrize(("is_live", "status"), [(True, 200), (False, 503)])
async def test_v2_is_not_ready_while_the_server_behind_it_is_dead(is_live: bool, status: int) -> None:
    async with served(*v2.front(Mock(is_live=AsyncMock(return_value=is_live)), READY).routes) as server:
        assert parts_of(await server.asked("GET", "/v2/health/ready"))[0] == status
