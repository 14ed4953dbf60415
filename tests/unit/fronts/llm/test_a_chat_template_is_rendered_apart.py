"""The process that renders chat templates: what happens when it dies, is slow, or its caller leaves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter.errors import InvalidModel
from adapter.fronts.failures import HttpError
from adapter.fronts.llm import chats
from adapter.fronts.llm.chats import Chats
from adapter.serving import KnownModel

PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"
SLOW = "{% for message in messages %}{% if message.content == 'slow' %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}" \
    "{% endfor %}{% endif %}{{ message.content }}{% endfor %}"  # fmt: skip
MANY = '{"chat_template": [{"name": ["x"]}, 1, {"name": "default", "template": "many"}]}'


def a_model(name: str) -> KnownModel:
    return KnownModel(name, name)


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
    return await found.prompt(a_model(model), json.dumps([{"role": "user", "content": text}]).encode())


async def test_a_process_that_died_is_started_again() -> None:
    async with rendering(plain=PLAIN) as found:
        assert await said(found, "plain", "a") == "a"
        os.kill(found._child._process.pid, signal.SIGKILL)
        await asyncio.to_thread(found._child._process.wait)
        assert await said(found, "plain", "b") == "b"


async def test_slow_messages_delay_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "RENDER_SECONDS", 1.0)
    async with rendering(slow=SLOW, plain=PLAIN) as found:
        with pytest.raises(InvalidModel, match="no prompt within 1 s"):
            await said(found, "slow", "slow")
        assert await said(found, "plain", "a") == "a"
        assert await said(found, "slow", "a") == "a"


async def test_a_process_that_does_not_start_is_no_fault_of_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rendering(plain=PLAIN) as found:
        for program in (("/absent",), ("/bin/true",)):
            monkeypatch.setattr(found._child, "_program", program)
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


async def test_a_prompt_is_bounded_and_names_of_templates_may_be_anything() -> None:
    async with rendering(plain=PLAIN, many=MANY) as found:
        with pytest.raises(HttpError, match="the prompt is too long"):
            await said(found, "plain", "a" * (2**22 + 1))
        assert await said(found, "many", "a") == "many"
