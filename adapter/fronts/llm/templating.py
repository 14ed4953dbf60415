"""
A program that renders chat templates: an empty line when it is ready, then a line of JSON in, a line of JSON out.

It knows the standard library and jinja2 alone.

Templates come with models. They may loop forever or take any memory, so they run in a process that can be killed (`chats`), within
jinja2's sandbox. Source of what a template may use: transformers, `utils/chat_template_utils.py`.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY_BYTES = 512 * 1024 * 1024
MOST_SECONDS = 10
"""Then the program ends by itself: the process that would kill it sooner may have died."""
MOST_ERROR = 300


def raise_exception(text: str) -> NoReturn:
    """Of a template that refuses the messages."""
    raise TemplateError(text)


def main() -> None:
    """Until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": lambda form: datetime.now().strftime(form)}

    @lru_cache(16)
    def compiled(text: str) -> Template:
        return environment.from_string(text)

    _say(b"")
    for line in sys.stdin.buffer:
        signal.alarm(MOST_SECONDS)
        answer: dict[str, Any]
        try:
            asked = json.loads(line)
            answer = {"text": compiled(asked["template"]).render(**asked["context"])}
        except Exception as error:  # noqa: BLE001 - a template is anybody's program
            answer = {"error": f"{type(error).__name__}: {error}"[:MOST_ERROR]}
        signal.alarm(0)
        _say(json.dumps(answer).encode())


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
