"""The Dockerfile as its stages."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from io import BytesIO

from dockerfile_parse import DockerfileParser

from tests.real.children import TOP

DOCKERFILE = TOP / "deploy" / "Dockerfile"
SAGEMAKER = TOP / "deploy" / "sagemaker.Dockerfile"
"""The image that has Triton, too."""
_FLAG = re.compile(r"--([\w-]+)(?:=(\S+))?\s+")


@dataclass(frozen=True)
class Instruction:
    """One line of a stage, its flags apart."""

    word: str
    value: str
    flags: dict[str, str]

    def words(self) -> list[str]:
        """The value as the shell, or as JSON, parts it."""
        if self.value.startswith("["):
            return [str(word) for word in json.loads(self.value)]
        return shlex.split(self.value)


@dataclass(frozen=True)
class Stage:
    """From one FROM to the next."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]

    def all(self, word: str) -> list[Instruction]:
        """Its instructions of one kind."""
        return [each for each in self.instructions if each.word == word]

    def last(self, word: str) -> list[str]:
        """What holds at the end; empty without one."""
        found = self.all(word)
        return found[-1].words() if found else []

    def pairs(self, word: str) -> dict[str, str]:
        """What ENV, or LABEL, sets."""
        return dict(pair.split("=", 1) for each in self.all(word) for pair in each.words())


def stages(text: str) -> tuple[dict[str, str], list[Stage]]:
    """Default of each ARG before the first FROM, and the stages."""
    parser = DockerfileParser(fileobj=BytesIO(text.encode()))
    arguments: dict[str, str] = {}
    found: list[Stage] = []
    for row in parser.structure:
        word, value = str(row["instruction"]), str(row["value"])
        if word == "COMMENT":
            continue
        if word == "FROM":
            base, _, name = value.partition(" AS ")
            found.append(Stage(base.strip(), name.strip(), ()))
        elif not found:
            name, _, default = value.partition("=")
            arguments[name] = default
        else:
            last = found.pop()
            found.append(Stage(last.base, last.name, (*last.instructions, _instruction(word, value))))
    return arguments, found


def _instruction(word: str, value: str) -> Instruction:
    flags: dict[str, str] = {}
    while word in ("RUN", "COPY", "ADD", "HEALTHCHECK") and (match := _FLAG.match(value)):
        flags[match[1]] = match[2] or ""
        value = value[match.end() :]
    return Instruction(word, value, flags)
