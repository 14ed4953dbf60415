"""The Dockerfile as its stages, and the house's rules for it. hadolint holds it to everybody's."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

from dockerfile_parse import DockerfileParser

from tests.real.children import TOP

DOCKERFILE = TOP / "deploy" / "Dockerfile"
SAGEMAKER = TOP / "deploy" / "sagemaker.Dockerfile"
"""The image that has Triton, too."""
_FLAG = re.compile(r"--([\w-]+)(?:=(\S+))?\s+")
_SECRET = re.compile(r"SECRET|TOKEN|PASSWORD|CREDENTIAL", re.IGNORECASE)


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

    def environment(self) -> dict[str, str]:
        """What ENV sets."""
        return dict(pair.split("=", 1) for each in self.all("ENV") for pair in each.words())


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


def broken_rules(text: str) -> Iterator[str]:
    """What a Dockerfile of ours may not have or lack beside hadolint's rules, one sentence each."""
    arguments, found = stages(text)
    names = {stage.name for stage in found if stage.name}
    final = found[-1]
    for stage in found:
        base = re.sub(r"\$\{(\w+)\}", lambda match: arguments.get(match[1], ""), stage.base)
        if base not in names and not re.search(r":(?!latest\b)[\w.-]+$|@sha256:[0-9a-f]{64}$", base):
            yield f"the base {base!r} has no tag and no digest"
        yield from _broken_in(stage)
    user = final.last("USER")
    if not user or not re.fullmatch(r"[1-9]\d*(:\d+)?", user[0]):
        yield f"the user is {user or 'root'}, and not a number above 0: runAsNonRoot refuses names"


def _broken_in(stage: Stage) -> Iterator[str]:
    if stage.all("ADD"):
        yield "ADD fetches and unpacks: COPY does neither"
    for each in stage.all("COPY"):
        *sources, _ = each.words()
        for source in sources if "from" not in each.flags else ():
            if not any(TOP.glob(re.sub(r"\$\{\w+\}", "*", source.rstrip("/")))):
                yield f"COPY {source}: there is no such file"
    for each in stage.all("RUN"):
        if "pip install" in each.value.replace("--python /opt/adapter/bin/python ", "") and not _is_pinned(each.value):
            yield "pip installs something without its hash"
    for each in (*stage.all("ENV"), *stage.all("ARG")):
        if _SECRET.search(each.value):
            yield f"{each.word} {each.value.split('=')[0]}: everybody who has the image reads it"


def _is_pinned(command: str) -> bool:
    return "--require-hashes" in command or "--no-index" in command
