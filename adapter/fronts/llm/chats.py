"""
The chat template of a model, and the prompt that it makes of messages.

It is read beside the model: `chat_template.jinja`, or `tokenizer_config.json`, at the top of its directory or in version 1. All templates
are rendered by one process of their own, one after the other; one that takes too long is killed.
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
from adapter.fronts.answers import UNAVAILABLE, HttpError
from adapter.fronts.bodies import off_loop_if_large
from adapter.fronts.llm.parameters import BadParameter
from adapter.model import CHAT_PATHS, CHAT_TEMPLATE_FILE, TOKENIZER_FILE
from adapter.serving import KnownModel

START_SECONDS = 30.0
"""For the process to import what it needs: a busy node is no fault of a template."""
RENDER_SECONDS = 2.0
MOST_BYTES = 4 * 1024 * 1024
"""Of a prompt, of a file, and characters of messages."""
MOST_TEMPLATE = 128 * 1024
_PROGRAM = Path(__file__).with_name("templating.py")
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
NONE = f"the model has no chat template ({CHAT_TEMPLATE_FILE}, or chat_template in {TOKENIZER_FILE}): it answers /v1/completions only"
FileOf = Callable[[KnownModel, str, int], Awaitable[bytes | None]]
"""A file beside a model, by its path there, with a bound on its bytes; None: it has none."""


class Chats:
    """Makes prompts of messages. Call `close` at the end."""

    def __init__(self, file_of: FileOf) -> None:
        self._file_of = file_of
        self._child: Process | None = None
        self._turn = asyncio.Lock()

    async def prompt(self, model: KnownModel, messages: Sequence[Mapping[str, str]]) -> str:
        """
        The prompt, without the token of its beginning: the backend's tokenizer puts that.

        Raises:
            BadParameter: the model has no template, or the messages are too long.
            HttpError: 400: the template refuses these messages; 503: none can be rendered now.
            InvalidModel: the files beside the model cannot be used, or the template takes too much.
        """
        template, tokens = await self._template(model)
        if template is None:
            raise BadParameter("messages", NONE)
        size = sum(len(name) + len(text) for message in messages for name, text in message.items())
        if size > MOST_BYTES:
            raise BadParameter("messages", f"have more than {MOST_BYTES} characters")
        asked = {"template": template, "context": {"messages": messages, "add_generation_prompt": True, "tools": None, **tokens}}
        async with self._turn:  # also around the line: those that wait have none in memory
            line = await off_loop_if_large(size, lambda: json.dumps(asked).encode() + b"\n")
            answer = await self._rendered(line)
        if "error" in answer:
            raise HttpError(400, f"the model's chat template refuses these messages: {answer['error']}")
        return str(answer["text"]).removeprefix(tokens.get("bos_token", "") or "\0")

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
        template = config.get("chat_template")
        if (content := await self._beside(model, CHAT_TEMPLATE_FILE)) is not None:
            template = content.decode("utf-8", "replace")
        if isinstance(template, list):  # several, by name
            defaults = [entry.get("template") for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
            template = defaults[0] if defaults else None
        if not isinstance(template, str):
            return None, tokens
        if len(template) > MOST_TEMPLATE:
            raise InvalidModel(f"the model's chat template has {len(template)} characters; {MOST_TEMPLATE} are the most")
        return template, tokens

    async def _beside(self, model: KnownModel, name: str) -> bytes | None:
        for path in CHAT_PATHS[name]:
            if (content := await self._file_of(model, path, MOST_BYTES)) is not None:
                return content
        return None

    async def _rendered(self, line: bytes) -> Any:
        try:
            child = await self._started()
            writer, reader = cast("StreamWriter", child.stdin), cast("StreamReader", child.stdout)
            async with asyncio.timeout(RENDER_SECONDS):
                writer.write(line)
                await writer.drain()
                return json.loads(await reader.readuntil(b"\n"))
        except TimeoutError:
            await self._end()
            raise InvalidModel(f"the model's chat template has made no prompt within {RENDER_SECONDS:g} s") from None
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:  # it has died, or its answer is too long
            await self._end()
            raise InvalidModel("the model's chat template takes too much memory, or its prompt is too long") from error
        except BaseException:
            await self._end()  # what it would answer is another one's
            raise

    async def _started(self) -> Process:
        """The process, which may have died since it was last needed. Raises HttpError 503: it does not start."""
        if self._child is not None and self._child.returncode is None:
            return self._child
        try:
            async with asyncio.timeout(START_SECONDS):
                command = (sys.executable, "-I", str(_PROGRAM))
                self._child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env={}, limit=MOST_BYTES)
                await cast("StreamReader", self._child.stdout).readuntil(b"\n")
        except (OSError, EOFError) as error:  # a TimeoutError is an OSError
            raise HttpError(UNAVAILABLE, "chat templates cannot be rendered now: their process does not start") from error
        return self._child

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _text_of(token: Any) -> str:
    """A special token is a text, or an object that holds one."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else ""
