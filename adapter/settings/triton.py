"""How the adapter reaches Triton."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from adapter.settings.files import content, why_not
from adapter.units import ENDPOINT, LOADS, PORT, SECONDS, SECRET, SECRET_PATH, TEXT, Endpoint, Secret, setting

RESTRICTED_HEADER = "triton-grpc-protocol-"
"""And the key: the header that Triton compares. Source: Triton's inference_protocols.md, "Limit Endpoint Access"."""
MAX_SECRET_CHARACTERS = 4096
"""gRPC allows 8 KiB for all headers of a call. Source: grpc/include/grpc/impl/channel_arg_names.h, `max_metadata_size`."""
_KEY = re.compile(r"[a-z0-9_.-]+")
"""Source: gRPC over HTTP/2, Header-Name. Triton compares a key as it was written, and gRPC carries small letters only."""
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""Source: gRPC over HTTP/2, ASCII-Value; spaces at its ends may be taken away on the way."""


@dataclass(frozen=True, kw_only=True)
class TritonSettings:
    """How the adapter reaches Triton."""

    port: int = setting(PORT, "RUNTIME_PORT", "8001", "Triton's gRPC port on localhost")
    endpoint: Endpoint | None = setting(
        ENDPOINT,
        "RUNTIME_ENDPOINT",
        None,
        "`port:N`, `host:N` or `unix:/path`; beats `RUNTIME_PORT`. "
        "A Triton started with `--grpc-address unix:/p/t.sock` is `unix:/p/t.sock:8001`",
    )
    unload_timeout_seconds: float = setting(
        SECONDS,
        "UNLOAD_TIMEOUT_SECONDS",
        "170",
        "Longest time for a whole unload, waiting for other calls and for a purge included; then the unload is answered with an "
        "error that names the obstacle, and ModelMesh repeats it. Below ModelMesh's own 180 s",
    )
    load_threads: int = setting(
        LOADS,
        "TRITON_LOAD_THREADS",
        "4",
        "Triton's `--model-load-thread-count`. Triton never has more loads at once, those included that nobody waits for any more. "
        "Should be more than `LOADING_CONCURRENCY`: else a load that never ends keeps a loading slot",
    )
    silent_seconds: float = setting(
        SECONDS,
        "TRITON_SILENT_SECONDS",
        "60",
        "Triton hangs when it accepts connections and has answered nothing for so long: `/healthz/triton` then asks for its restart",
    )
    restricted_key: str | None = setting(
        TEXT,
        "TRITON_RESTRICTED_KEY",
        None,
        "The key of Triton's `--grpc-restricted-protocol=…:KEY=VALUE`: with it only the adapter can load and unload models",
    )
    restricted_value: Secret | None = setting(SECRET, "TRITON_RESTRICTED_VALUE", None, "The value of that key; never shown")
    restricted_value_file: Path | None = setting(
        SECRET_PATH, "TRITON_RESTRICTED_VALUE_FILE", None, "File that holds the value, instead of `TRITON_RESTRICTED_VALUE`; read at start"
    )

    def problems(self) -> Iterator[str]:
        """Half of a restriction, two values for it, or one that no call to Triton can carry. No text holds the value."""
        given = [name for name, value in self._values.items() if value is not None]
        if len(given) > 1:
            yield f"{' and '.join(given)} are both set; set one of them"
        elif self.restricted_key is None:
            yield from (f"{name} is set, but TRITON_RESTRICTED_KEY is not" for name in given)
        elif not given:
            yield f"TRITON_RESTRICTED_KEY is set, but neither {' nor '.join(self._values)} is"
        if self.restricted_key is not None and (not _KEY.fullmatch(self.restricted_key) or self.restricted_key.endswith("-bin")):
            yield (
                "TRITON_RESTRICTED_KEY cannot be part of a gRPC header: it is KEY alone of Triton's "
                "--grpc-restricted-protocol=…:KEY=VALUE; write small letters, digits, '_', '-' and '.', here and there, without '-bin' "
                "at the end"
            )
        if len(given) == 1 and (problem := self._secret[1]) is not None:
            yield f"{given[0]}: {problem}"

    @property
    def call_headers(self) -> tuple[tuple[str, str], ...]:
        """What every call to Triton carries: the header of the restricted protocol, or nothing."""
        secret, _ = self._secret
        return () if self.restricted_key is None or secret is None else ((f"{RESTRICTED_HEADER}{self.restricted_key}", secret.text),)

    @property
    def _values(self) -> dict[str, object]:
        return {"TRITON_RESTRICTED_VALUE": self.restricted_value, "TRITON_RESTRICTED_VALUE_FILE": self.restricted_value_file}

    @cached_property
    def _secret(self) -> tuple[Secret | None, str | None]:
        """The value, or why it cannot be used. The file is read once."""
        text = self.restricted_value.text if self.restricted_value is not None else None
        if text is None and self.restricted_value_file is not None:
            try:
                text = content(self.restricted_value_file, MAX_SECRET_CHARACTERS + 3)
                text = text.removesuffix("\n").removesuffix("\r")  # the end of its line, which most editors write
            except (OSError, UnicodeDecodeError) as error:
                return None, f"{self.restricted_value_file} cannot be read: {why_not(error)}"
        if text is None:
            return None, None
        return (None, problem) if (problem := _value_problem(text)) else (Secret(text), None)

    @property
    def target(self) -> str:
        """Triton, in gRPC's form."""
        return self.reach.target

    @property
    def reach(self) -> Endpoint:
        """The endpoint in force."""
        return self.endpoint or Endpoint(host="localhost", port=self.port)


def _value_problem(text: str) -> str | None:
    if not text:
        return "it is empty"
    if len(text) > MAX_SECRET_CHARACTERS:
        return f"it has more than {MAX_SECRET_CHARACTERS} characters"
    if not _VALUE.fullmatch(text):
        return "a gRPC header cannot carry it; use printable ASCII characters, in one line, without spaces at its ends"
    return None
