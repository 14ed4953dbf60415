"""How the adapter reaches Triton."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from adapter.settings.files import text_of
from adapter.settings.kinds import ENDPOINT, LOADS, PORT, SECONDS, SECRET, SECRET_PATH, TEXT, Group, Secret, setting
from adapter.units import Endpoint

RESTRICTED_VALUE = "TRITON_RESTRICTED_VALUE"
RESTRICTED_HEADER = "triton-grpc-protocol-"
"""And the key: the header that Triton compares. Source: Triton's inference_protocols.md, "Limit Endpoint Access"."""
MAX_SECRET_CHARACTERS = 4096
"""gRPC allows 8 KiB for all headers of a call. Source: grpc/include/grpc/impl/channel_arg_names.h, `max_metadata_size`."""
_KEY = re.compile(r"[a-z0-9_.-]+")
"""Source: gRPC over HTTP/2, Header-Name. Triton compares a key as it was written, and gRPC carries small letters only."""
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""Source: gRPC over HTTP/2, ASCII-Value; spaces at its ends may be taken away on the way."""


@dataclass(frozen=True, kw_only=True)
class TritonSettings(Group):
    """How the adapter reaches Triton."""

    port: int = setting("RUNTIME_PORT", PORT, "8001")
    """Triton's gRPC port on localhost."""
    endpoint: Endpoint | None = setting("RUNTIME_ENDPOINT", ENDPOINT, None)
    """
    `port:N`, `host:N` or `unix:/path`; beats `RUNTIME_PORT`. A Triton started with `--grpc-address unix:/p/t.sock` is
    `unix:/p/t.sock:8001`.
    """
    unload_timeout_seconds: float = setting("UNLOAD_TIMEOUT_SECONDS", SECONDS, "170")
    """
    Longest time for a whole unload, waiting for other calls and for a purge included; then the unload is answered with
    an error that names the obstacle, and ModelMesh repeats it. Below ModelMesh's own 180 s.
    """
    load_threads: int = setting("TRITON_LOAD_THREADS", LOADS, "4")
    """
    Triton's `--model-load-thread-count`. Triton never has more loads at once, loads without a caller
    included. Should be more than `LOADING_CONCURRENCY`: else a load that never ends keeps a loading slot.
    """
    silent_seconds: float = setting("TRITON_SILENT_SECONDS", SECONDS, "60")
    """
    Triton hangs when it accepts connections and has answered nothing for so long: `/healthz/triton` then asks for its
    restart.
    """
    metrics_endpoint: Endpoint = setting("TRITON_METRICS_ENDPOINT", ENDPOINT, "127.0.0.1:8002")
    """`port:N` or `host:N` of Triton's own metrics, which tell the memory of GPUs in use."""
    restricted_key: str | None = setting("TRITON_RESTRICTED_KEY", TEXT, None)
    """
    The key of Triton's `--grpc-restricted-protocol=…:KEY=VALUE`: with it only the adapter can load and unload models.
    """
    restricted_value: Secret | None = setting("TRITON_RESTRICTED_VALUE", SECRET, None)
    """The value of that key; never shown."""
    restricted_value_file: Path | None = setting("TRITON_RESTRICTED_VALUE_FILE", SECRET_PATH, None)
    """File that holds the value, instead of `TRITON_RESTRICTED_VALUE`; read at start."""

    def problems(self) -> Iterator[str]:
        """Half of a restriction, two values for it, or one that no call to Triton can carry. No text holds the value."""
        yield from super().problems()
        values = {RESTRICTED_VALUE: self.restricted_value, f"{RESTRICTED_VALUE}_FILE": self.restricted_value_file}
        given = [name for name, value in values.items() if value is not None]
        if self.restricted_key is None and len(given) == 1:
            yield f"{given[0]} is set, but TRITON_RESTRICTED_KEY is not"
        if self.restricted_key is not None and not given:
            yield f"TRITON_RESTRICTED_KEY is set, but neither {' nor '.join(values)} is"
        if self.restricted_key is not None and (not _KEY.fullmatch(self.restricted_key) or self.restricted_key.endswith("-bin")):
            yield (
                "TRITON_RESTRICTED_KEY cannot be part of a gRPC header: it is KEY alone of Triton's "
                "--grpc-restricted-protocol=…:KEY=VALUE; write small letters, digits, '_', '-' and '.', here and there, without '-bin' "
                "at the end"
            )
        try:
            _ = self._secret
        except ValueError as error:
            yield str(error)

    @property
    def call_headers(self) -> tuple[tuple[str, str], ...]:
        """What every call to Triton carries: the header of the restricted protocol, or nothing."""
        secret = self._secret
        return () if self.restricted_key is None or secret is None else ((f"{RESTRICTED_HEADER}{self.restricted_key}", secret.text),)

    @cached_property
    def _secret(self) -> Secret | None:
        """The file is read once. Raises ValueError: the value cannot be used."""
        file = self.restricted_value_file
        text = text_of(RESTRICTED_VALUE, self.restricted_value, file, MAX_SECRET_CHARACTERS + 3)
        if text is None:
            return None
        if file is not None:
            text = text.removesuffix("\n").removesuffix("\r")  # the end of its line, which most editors write
        problems = {
            "it is empty": not text,
            f"it has more than {MAX_SECRET_CHARACTERS} characters": len(text) > MAX_SECRET_CHARACTERS,
            "a gRPC header cannot carry it; use printable ASCII characters, in one line, without spaces at its ends": (
                not _VALUE.fullmatch(text)
            ),
        }
        if problem := next((words for words, is_so in problems.items() if is_so), None):
            raise ValueError(f"{RESTRICTED_VALUE}{'_FILE' if file else ''}: {problem}")
        return Secret(text)

    @property
    def target(self) -> str:
        """Triton, in gRPC's form."""
        return self.reach.target

    @property
    def reach(self) -> Endpoint:
        """The endpoint in force."""
        return self.endpoint or Endpoint(host="localhost", port=self.port)
