"""
Renders chat templates, in a process that can be killed (`chats`): they come with models, and may loop forever or take any memory.

Within jinja2's sandbox. Source of what a template may use: transformers, `utils/chat_template_utils.py`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import NoReturn

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_SECONDS = 10
"""Then the process ends by itself: the one that would kill it sooner may have died."""
MOST_PROMPT = 4 * 1024 * 1024
MOST_ERROR = 300


def raise_exception(text: str) -> NoReturn:
    """Of a template that refuses the messages."""
    raise TemplateError(text)


_ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
_ENVIRONMENT.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
_ENVIRONMENT.globals |= {"raise_exception": raise_exception, "strftime_now": lambda form: datetime.now().strftime(form)}


@lru_cache(16)
def _compiled(text: str) -> Template:
    return _ENVIRONMENT.from_string(text)


def rendered(template: str, tokens: Mapping[str, str], messages: bytes) -> tuple[bytes, bytes]:
    """The prompt of messages in JSON, and an error: one of both is empty."""
    signal.alarm(MOST_SECONDS)
    try:
        text = _compiled(template).render(messages=json.loads(messages), add_generation_prompt=True, tools=None, **tokens).encode()
        return (text, b"") if len(text) <= MOST_PROMPT else (b"", b"the prompt is too long")
    except Exception as error:  # noqa: BLE001 - a template is anybody's program
        return b"", f"{type(error).__name__}: {error}"[:MOST_ERROR].encode("utf-8", "replace")
    finally:
        signal.alarm(0)
