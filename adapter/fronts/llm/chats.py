"""
The chat template of a model, and the prompt that it makes of messages.

It is read beside the model: `chat_template.jinja`, or `tokenizer_config.json`, at the top of its directory or in version 1. All templates
are rendered by one process of their own, one after the other; one that takes too long is killed, and not tried again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from adapter.errors import InvalidModel
from adapter.fronts.answers import HttpError
from adapter.fronts.bodies import off_loop_if_large
from adapter.fronts.llm.parameters import BadParameter
from adapter.model import CHAT_TEMPLATE_FILE, TOKENIZER_FILE
from adapter.serving import KnownModel

RENDER_SECONDS = 2.0
MOST_BYTES = 4 * 1024 * 1024
"""Of a prompt, and of a file."""
MOST_TEMPLATE = 128 * 1024
KEPT = 256
"""Models whose template is remembered."""
_PROGRAM = Path(__file__).with_name("templating.py")
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
_MOST_REFUSED = 256
NONE = f"the model has no chat template ({CHAT_TEMPLATE_FILE}, or chat_template in {TOKENIZER_FILE}): it answers /v1/completions only"
FileOf = Callable[[KnownModel, str, int], Awaitable[bytes | None]]
"""A file beside a model, by its path there, of at most so many bytes; None: it has none."""


class Chats:
    """Makes prompts of messages. Call `close` at the end."""

    def __init__(self, file_of: FileOf) -> None:
        self._file_of = file_of
        self._child: Process | None = None
        self._turn = asyncio.Lock()
        self._known: dict[tuple[str, str | None], tuple[str | None, Mapping[str, str]]] = {}
        """Model id and placement → template and special tokens."""
        self._refused: dict[str, str] = {}
        """Template that has taken too long → why."""

    async def prompt(self, model: KnownModel, messages: Sequence[Mapping[str, Any]]) -> str:
        """
        The prompt, without the token of its beginning: the backend's tokenizer puts that.

        Raises:
            BadParameter: the model has no template, or it refuses these messages.
            InvalidModel: the files beside the model cannot be used.
        """
        key = (model.model_id, model.placed)
        if key not in self._known:
            self._known[key] = await self._template(model)
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        template, tokens = self._known[key]
        if template is None:
            raise BadParameter("messages", NONE)
        context = {"messages": messages, "add_generation_prompt": True, "tools": None, **tokens}
        return (await self._rendered(template, context)).removeprefix(tokens.get("bos_token", "") or "\0")

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            await self._end()

    async def _template(self, model: KnownModel) -> tuple[str | None, Mapping[str, str]]:
        """The template, and the special tokens that it may name."""
        config: Any = {}
        if (content := await self._beside(model, TOKENIZER_FILE)) is not None:
            with suppress(ValueError):
                config = await off_loop_if_large(len(content), partial(json.loads, content))
        config = config if isinstance(config, dict) else {}
        tokens = {name: _text_of(config.get(name)) for name in _TOKENS}
        if (content := await self._beside(model, CHAT_TEMPLATE_FILE)) is not None:
            return _checked(content.decode("utf-8", "replace")), tokens
        template = config.get("chat_template")
        if isinstance(template, list):  # several, by name
            template = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}.get("default")
        return _checked(template) if isinstance(template, str) else None, tokens

    async def _beside(self, model: KnownModel, name: str) -> bytes | None:
        for path in (name, f"1/{name}"):
            if (content := await self._file_of(model, path, MOST_BYTES)) is not None:
                return content
        return None

    async def _rendered(self, template: str, context: Mapping[str, Any]) -> str:
        line = json.dumps({"template": template, "context": context}).encode() + b"\n"
        async with self._turn:
            if template in self._refused:
                raise InvalidModel(self._refused[template])
            try:
                async with asyncio.timeout(RENDER_SECONDS):
                    answer = json.loads(await self._asked(line))
            except TimeoutError:
                await self._end()
                self._refused[template] = f"the model's chat template has made no prompt within {RENDER_SECONDS:g} s"
                if len(self._refused) > _MOST_REFUSED:
                    del self._refused[next(iter(self._refused))]
                raise InvalidModel(self._refused[template]) from None
            except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:  # it has died, or its answer is too long
                await self._end()
                raise InvalidModel("the model's chat template takes too much memory, or its prompt is too long") from error
            except BaseException:
                await self._end()  # what it would answer is another one's
                raise
        if "error" in answer:
            raise HttpError(400, f"the model's chat template refuses these messages: {answer['error']}")
        return str(answer["text"])

    async def _asked(self, line: bytes) -> bytes:
        if self._child is None:
            command = (sys.executable, "-I", str(_PROGRAM))
            self._child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env={}, limit=MOST_BYTES)
        writer, reader = cast("StreamWriter", self._child.stdin), cast("StreamReader", self._child.stdout)
        writer.write(line)
        await writer.drain()
        return await reader.readuntil(b"\n")

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _checked(template: str) -> str:
    if len(template) > MOST_TEMPLATE:
        raise InvalidModel(f"the model's chat template has {len(template)} characters; {MOST_TEMPLATE} are the most")
    return template


def _text_of(token: Any) -> str:
    """A special token is a text, or an object that holds one."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else ""
