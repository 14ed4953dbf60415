"""The process that renders chat templates: what happens when it dies, is slow, or its caller leaves."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from adapter.errors import InvalidModel
from adapter.fronts.answers import HttpError
from adapter.fronts.llm import chats
from adapter.fronts.llm.chats import Chats
from adapter.fronts.llm.parameters import BadParameter
from adapter.serving import KnownModel

PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"
SLOW = "{% for message in messages %}{% if message.content == 'slow' %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}" \
    "{% endfor %}{% endif %}{{ message.content }}{% endfor %}"  # fmt: skip
MANY = '{"chat_template": [{"name": ["x"]}, 1, {"name": "default", "template": "many"}]}'


def a_model(name: str) -> KnownModel:
    return KnownModel(name, name, "", is_serving=True, is_coming_back=False, is_going=False)


@asynccontextmanager
async def rendering(**files: str) -> AsyncIterator[Chats]:
    """Model → its template, or its `tokenizer_config.json`."""

    async def file_of(model: KnownModel, path: str, _most: int) -> bytes | None:
        text = files[model.name]
        return text.encode() if path == ("tokenizer_config.json" if text.startswith('{"') else "chat_template.jinja") else None

    found = Chats(file_of)
    try:
        yield found
    finally:
        await found.close()


async def said(found: Chats, model: str, text: str) -> str:
    message: Mapping[str, str] = {"role": "user", "content": text}
    return await found.prompt(a_model(model), [message])


async def test_a_process_that_died_is_started_again() -> None:
    async with rendering(plain=PLAIN) as found:
        assert await said(found, "plain", "a") == "a"
        assert found._child is not None
        os.kill(found._child.pid, signal.SIGKILL)
        await found._child.wait()
        assert await said(found, "plain", "b") == "b"


async def test_slow_messages_harm_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "RENDER_SECONDS", 1.0)
    async with rendering(slow=SLOW, plain=PLAIN) as found:
        with pytest.raises(InvalidModel, match="no prompt within 1 s"):
            await said(found, "slow", "slow")
        assert await said(found, "plain", "a") == "a"
        assert await said(found, "slow", "a") == "a"


async def test_a_slow_start_is_no_fault_of_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "START_SECONDS", 0.001)
    async with rendering(plain=PLAIN) as found:
        with pytest.raises(HttpError, match="does not start") as refused:
            await said(found, "plain", "a")
        assert refused.value.status == 503
        monkeypatch.undo()
        assert await said(found, "plain", "a") == "a"


async def test_who_leaves_takes_no_answer_of_others() -> None:
    async with rendering(slow=SLOW, plain=PLAIN) as found:
        assert await said(found, "plain", "a") == "a"
        leaving = asyncio.create_task(said(found, "slow", "slow"))
        others = [asyncio.create_task(said(found, "plain", text)) for text in "bc"]
        await asyncio.sleep(0)
        leaving.cancel()
        assert await asyncio.gather(*others) == ["b", "c"]
        assert leaving.cancelled()


async def test_messages_are_bounded_and_names_of_templates_may_be_anything() -> None:
    async with rendering(plain=PLAIN, many=MANY) as found:
        with pytest.raises(BadParameter, match="more than 4194304 characters"):
            await said(found, "plain", "a" * 2**22)
        assert found._child is None
        assert await said(found, "many", "a") == "many"
