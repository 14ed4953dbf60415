"""Generations under way, over a scripted backend: what runs beside what, what a failure takes with it, and when a line is out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from adapter.fronts.llm.answering import Answering
from adapter.fronts.llm.generating import AT_ONCE, Asked, generation, texts
from adapter.fronts.llm.options import options_of
from adapter.fronts.llm.parameters import BadParameter
from adapter.inference import Failure, InferenceFailed, InferRequest, InferResponse, ModelInfo, Tensor
from tests.unit.fronts.llm import beds
from tests.unit.fronts.llm.beds import PLAIN, TRTLLM, VLLM, settings, values, wishes

Script = Callable[[str], AsyncGenerator[InferResponse, None]]
WAIT_SECONDS = 20
BROKEN = InferenceFailed(Failure.INTERNAL, "broken")


def an_answer(*outputs: Tensor, is_final: bool = False) -> InferResponse:
    return InferResponse(model="m", version="1", id="", parameters={}, outputs=outputs, is_final=is_final)


def word(text: str, reason: str = "None") -> InferResponse:
    return an_answer(beds.texts("text_output", text), beds.texts("finish_reason", reason))


class Backend:
    """Answers by a script for each prompt, and knows who is asked."""

    def __init__(self, script: Script, info: ModelInfo = VLLM) -> None:
        self._script = script
        self._info = info
        self.running: set[str] = set()
        self.most = 0
        self.asked: list[str] = []
        self.rows: list[int] = []

    async def model_info(self, _model: str, _version: str = "", *, max_age_seconds: float = 0) -> ModelInfo:
        return self._info

    async def infer(self, request: InferRequest, *, headers: Mapping[str, str] | None = None) -> InferResponse:
        prompts = values(request.inputs)["text_input"]
        self.rows.append(len(prompts))
        return an_answer(beds.texts("text_output", *(f"<{prompt}>" for prompt in prompts)), is_final=True)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        (prompt,) = values(request.inputs)["text_input"]
        self.asked.append(prompt)
        self.running.add(prompt)
        self.most = max(self.most, len(self.running))
        try:
            async with aclosing(self._script(prompt)) as answers:
                async for answer in answers:
                    yield answer
        finally:
            self.running.discard(prompt)


def an_asked(*prompts: str, is_stream: bool = True, is_dynamic: bool = False, **parameters: Any) -> Asked:
    return Asked(
        model="m",
        prompts=prompts,
        wishes=wishes(**parameters),
        is_stream=is_stream,
        is_dynamic=is_dynamic,
        options=options_of(settings(), None),
    )


async def lines(backend: Backend, asked: Asked) -> list[tuple[str | None, str | None]]:
    """Text of each line, and of the whole in the last."""
    async with asyncio.timeout(WAIT_SECONDS), generation(backend, asked, asked.prompts) as begun:  # type: ignore[arg-type]
        return [(token.text, end.text if end else None) async for token, end in begun.lines()]


def scripted(*answers: InferResponse | InferenceFailed) -> Script:
    async def script(_prompt: str) -> AsyncGenerator[InferResponse, None]:
        for answer in answers:
            if isinstance(answer, InferenceFailed):
                raise answer
            yield answer

    return script


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([word("a"), word("b", "length"), an_answer(is_final=True)], [("a", None), ("b", "ab")]),
        ([word("a"), word("", "stop"), an_answer(is_final=True)], [("a", None), ("", "a")]),
        ([word("a"), an_answer(is_final=True)], [("a", None), ("", "a")]),
        ([word("a"), word("")], [("a", None), ("", "a")]),
        ([an_answer(), word("a"), an_answer(), word("b", "stop")], [("a", None), ("b", "ab")]),
        ([], [("", "")]),
        ([an_answer(is_final=True)], [("", "")]),
        ([word("a", "length"), word("more")], [("a", "a")]),
        ([word("a", "length"), BROKEN], [("a", "a")]),
    ],
)
async def test_the_last_line_has_the_end_once(answers: Sequence[Any], found: list[Any]) -> None:
    backend = Backend(scripted(*answers))
    assert await lines(backend, an_asked("p")) == found
    assert not backend.running


@pytest.mark.parametrize("before", [[], [word("a")]])
async def test_a_failure_before_the_end_is_raised(before: list[InferResponse]) -> None:
    with pytest.raises(InferenceFailed, match="broken"):
        await lines(Backend(scripted(*before, BROKEN)), an_asked("p"))


async def test_a_line_is_out_before_the_next_token_is_there() -> None:
    goes_on = asyncio.Event()

    async def script(_prompt: str) -> AsyncGenerator[InferResponse, None]:
        yield word("a")
        await goes_on.wait()
        yield word("b", "stop")

    backend = Backend(script)
    async with asyncio.timeout(WAIT_SECONDS), generation(backend, an_asked("p"), ["p"]) as begun:  # type: ignore[arg-type]
        found = begun.lines()
        assert (await anext(found))[0].text == "a"
        goes_on.set()
        assert (await anext(found))[0].text == "b"
        await found.aclose()
    assert not backend.running


@pytest.mark.parametrize(("given", "name"), [({"ignore_eos": True}, "ignore_eos"), ({"ignore_eos_token": True}, "ignore_eos_token")])
async def test_what_a_backend_does_not_have_has_its_callers_name(given: dict[str, Any], name: str) -> None:
    with pytest.raises(BadParameter, match=rf"^parameters\.{name}: this model cannot do that"):
        await lines(Backend(forever, TRTLLM), an_asked("p", **given))


async def forever(_prompt: str) -> AsyncGenerator[InferResponse, None]:
    yield word("a")
    await asyncio.Event().wait()


async def test_whoever_leaves_stops_it() -> None:
    backend = Backend(forever)
    asking = asyncio.create_task(lines(backend, an_asked("p")))
    while not backend.running:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait({asking}, timeout=WAIT_SECONDS)
    assert (asking.cancelled(), backend.running) == (True, set())


async def test_prompts_run_beside_each_other_a_few_at_a_time() -> None:
    async def script(prompt: str) -> AsyncGenerator[InferResponse, None]:
        await asyncio.sleep(0.001 * (int(prompt) % 3))
        yield word(f"<{prompt}>", "stop")

    backend = Backend(script)
    prompts = [str(number) for number in range(20)]
    found = await texts(backend, an_asked(*prompts, is_stream=False, is_dynamic=True))  # type: ignore[arg-type]
    assert [end.text for end in found] == [f"<{prompt}>" for prompt in prompts]
    assert (backend.most, backend.running) == (AT_ONCE, set())


async def test_prompts_of_a_model_that_batches_go_together() -> None:
    backend = Backend(forever, replace(TRTLLM, is_decoupled=False))
    found = await texts(backend, an_asked(*"abcdefghij", is_stream=False, is_dynamic=True))  # type: ignore[arg-type]
    assert [end.text for end in found] == [f"<{prompt}>" for prompt in "abcdefghij"]
    assert backend.rows == [8, 2]


async def test_one_failure_stops_the_others() -> None:
    async def script(prompt: str) -> AsyncGenerator[InferResponse, None]:
        if prompt == "b":
            raise BROKEN
        await asyncio.Event().wait()
        yield word("never")

    backend = Backend(script, PLAIN)
    with pytest.raises(InferenceFailed, match="broken"):
        async with asyncio.timeout(WAIT_SECONDS):
            await texts(backend, an_asked("a", "b", "c", is_stream=False, is_dynamic=True))  # type: ignore[arg-type]
    assert not backend.running


async def steps(backend: Backend, *prompts: str) -> list[Any]:
    answering = Answering(settings(), backend, _no_properties)  # type: ignore[arg-type]
    async with asyncio.timeout(WAIT_SECONDS):
        return [value async for value in answering._steps(an_asked(*prompts, is_dynamic=True))]


async def _no_properties(_model: object) -> None:
    return None


async def test_a_stream_of_a_list_begins_all_prompts_at_once() -> None:
    """None of them gives its first token before all are asked."""
    all_asked = asyncio.Barrier(10)

    async def script(prompt: str) -> AsyncGenerator[InferResponse, None]:
        await all_asked.wait()
        yield word(prompt)
        yield word("!", "stop")

    prompts = [f"p{number}" for number in range(10)]
    assert await steps(Backend(script), *prompts) == [{"outputs": prompts}, {"outputs": ["!"] * 10}]


@pytest.mark.parametrize("answers", [[], [word("", "stop")], [word(""), word(""), an_answer(is_final=True)]])
async def test_a_stream_of_a_list_without_any_text_has_one_line(answers: Sequence[InferResponse]) -> None:
    assert await steps(Backend(scripted(*answers)), "a", "b") == [{"outputs": ["", ""]}]


async def test_a_stream_of_a_list_fails_with_the_first_of_them() -> None:
    async def script(prompt: str) -> AsyncGenerator[InferResponse, None]:
        if prompt == "b":
            raise BROKEN
        await asyncio.Event().wait()
        yield word("never")

    backend = Backend(script)
    with pytest.raises(InferenceFailed, match="broken"):
        await steps(backend, "a", "b", "c")
    assert not backend.running
