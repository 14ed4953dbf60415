"""
The chat template of a model, and the prompt that it makes of messages.

It is read beside the model: `chat_template.jinja`, or `tokenizer_config.json`, at the top of its directory or in version 1. All templates
are rendered by one process of their own, one after the other; one that takes too long is killed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from adapter.errors import InvalidModel
from adapter.fronts.bodies import off_loop_if_large
from adapter.fronts.children import Child, ChildEnded
from adapter.fronts.failures import UNAVAILABLE, HttpError
from adapter.fronts.llm.parameters import BadParameter
from adapter.model import CHAT_PATHS, CHAT_TEMPLATE_FILE, TOKENIZER_FILE
from adapter.serving import KnownModel

MEMORY_BYTES = 512 * 1024 * 1024
RENDER_SECONDS = 2.0
MOST_BYTES = 4 * 1024 * 1024
"""Of a file."""
MOST_TEMPLATE = 128 * 1024
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
NONE = f"the model has no chat template ({CHAT_TEMPLATE_FILE}, or chat_template in {TOKENIZER_FILE}): it answers /v1/completions only"
FileOf = Callable[[KnownModel, str, int], Awaitable[bytes | None]]
"""A file beside a model, by its path there, with a bound on its bytes; None: it has none."""


class Chats:
    """Makes prompts of messages. Call `close` at the end."""

    def __init__(self, file_of: FileOf) -> None:
        self._file_of = file_of
        self._child = Child("adapter.fronts.llm.templating:rendered", MEMORY_BYTES)  # jinja2 is not for this process
        self.close = self._child.close

    async def prompt(self, model: KnownModel, messages: bytes) -> str:
        """
        The prompt of messages in JSON, without the token of its beginning: the backend's tokenizer puts that.

        Raises:
            BadParameter: the model has no template.
            HttpError: 400: the template refuses these messages; 503: none can be rendered now.
            InvalidModel: the files beside the model cannot be used, or the template takes too much.
        """
        template, tokens = await self._template(model)
        if template is None:
            raise BadParameter("messages", NONE)
        try:
            text, error = await self._child.call(template, tokens, body=messages, seconds=RENDER_SECONDS)
        except TimeoutError:
            raise InvalidModel(f"the model's chat template has made no prompt within {RENDER_SECONDS:g} s") from None
        except ChildEnded as ended:
            if ended.args:
                raise HttpError(UNAVAILABLE, f"a chat template cannot be rendered now: {ended}") from ended
            raise InvalidModel("the model's chat template takes too much memory, or its prompt is too long") from ended
        if error:
            raise HttpError(400, f"the model's chat template refuses these messages: {error.decode('utf-8', 'replace')}")
        return text.decode("utf-8", "replace").removeprefix(tokens["bos_token"])

    async def _template(self, model: KnownModel) -> tuple[str | None, Mapping[str, str]]:
        """The template, and the special tokens that it may name."""
        config: Any = {}
        content = await self._beside(model, TOKENIZER_FILE)
        with suppress(ValueError):
            config = await off_loop_if_large(len(content), partial(json.loads, content))
        config = config if isinstance(config, dict) else {}
        tokens = {name: _text_of(config.get(name)) for name in _TOKENS}
        template = config.get("chat_template")
        if content := await self._beside(model, CHAT_TEMPLATE_FILE):
            template = content.decode("utf-8", "replace")
        if isinstance(template, list):  # several, by name
            defaults = [entry.get("template") for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
            template = next(iter(defaults), None)
        if isinstance(template, str) and len(template) > MOST_TEMPLATE:
            raise InvalidModel(f"the model's chat template has {len(template)} characters; {MOST_TEMPLATE} are the most")
        return template if isinstance(template, str) else None, tokens

    async def _beside(self, model: KnownModel, name: str) -> bytes:
        """Empty: there is none."""
        for path in CHAT_PATHS[name]:
            if (content := await self._file_of(model, path, MOST_BYTES)) is not None:
                return content
        return b""


def _text_of(token: Any) -> str:
    """A special token is a text, or an object that holds one."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else ""
