"""How the adapter reaches Triton."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from adapter.settings.kinds import ENDPOINT, LOADS, PORT, SECONDS, SECRET, SECRET_FILE, TEXT, Group, Secret, setting
from adapter.units import Endpoint

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
    `port:N`, `host:N` or `unix:/path`; overrides `RUNTIME_PORT`. A Triton started with `--grpc-address unix:/p/t.sock` is
    `unix:/p/t.sock:8001`.
    """
    unload_timeout_seconds: float = setting("UNLOAD_TIMEOUT_SECONDS", SECONDS, "170")
    """Longest time for a whole unload; below ModelMesh's own 180 s."""
    load_threads: int = setting("TRITON_LOAD_THREADS", LOADS, "4")
    """Triton's `--model-load-thread-count`: the most loads that it has at once; should be more than `LOADING_CONCURRENCY`."""
    silent_seconds: float = setting("TRITON_SILENT_SECONDS", SECONDS, "60")
    """A Triton that accepts connections and answers nothing for this time hangs: `/healthz/triton` asks for its restart."""
    metrics_endpoint: Endpoint = setting("TRITON_METRICS_ENDPOINT", ENDPOINT, "127.0.0.1:8002")
    """`port:N` or `host:N` of Triton's own metrics, which tell the memory of GPUs in use."""
    restricted_key: str | None = setting("TRITON_RESTRICTED_KEY", TEXT, None)
    """
    The key of Triton's `--grpc-restricted-protocol=…:KEY=VALUE`: with it only the adapter can load and unload models.
    """
    restricted_value: Secret | None = setting("TRITON_RESTRICTED_VALUE", SECRET, None)
    """The value of that key; never shown."""
    restricted_value_file: Secret | None = setting("TRITON_RESTRICTED_VALUE_FILE", SECRET_FILE, None)
    """File that holds the value, instead of `TRITON_RESTRICTED_VALUE`; read at start."""

    def problems(self) -> Iterator[str]:
        """Half of a restriction, two values for it, or one that no call to Triton can carry. No text holds the value."""
        value = self.restricted_value or self.restricted_value_file
        name = "TRITON_RESTRICTED_VALUE" if self.restricted_value else "TRITON_RESTRICTED_VALUE_FILE"
        if self.restricted_value is not None and self.restricted_value_file is not None:
            yield "TRITON_RESTRICTED_VALUE and TRITON_RESTRICTED_VALUE_FILE are both set; set one of them"
        if self.restricted_key is None and value is not None:
            yield f"{name} is set, but TRITON_RESTRICTED_KEY is not"
        if self.restricted_key is not None and value is None:
            yield "TRITON_RESTRICTED_KEY is set, but neither TRITON_RESTRICTED_VALUE nor TRITON_RESTRICTED_VALUE_FILE is"
        if self.restricted_key is not None and (not _KEY.fullmatch(self.restricted_key) or self.restricted_key.endswith("-bin")):
            yield (
                "TRITON_RESTRICTED_KEY cannot be part of a gRPC header: it is KEY alone of Triton's "
                "--grpc-restricted-protocol=…:KEY=VALUE; write small letters, digits, '_', '-' and '.', here and there, without '-bin' "
                "at the end"
            )
        if value is not None and not value.text:
            yield f"{name}: it is empty"
        elif value is not None and len(value.text) > MAX_SECRET_CHARACTERS:
            yield f"{name}: it has more than {MAX_SECRET_CHARACTERS} characters"
        elif value is not None and not _VALUE.fullmatch(value.text):
            words = "a gRPC header cannot carry it; use printable ASCII characters, in one line, without spaces at its ends"
            yield f"{name}: {words}"

    @property
    def call_headers(self) -> tuple[tuple[str, str], ...]:
        """What every call to Triton carries: the header of the restricted protocol, or nothing."""
        value = self.restricted_value or self.restricted_value_file
        return () if self.restricted_key is None or value is None else ((f"{RESTRICTED_HEADER}{self.restricted_key}", value.text),)

    @property
    def target(self) -> str:
        """Triton, in gRPC's form."""
        return self.reach.target

    @property
    def reach(self) -> Endpoint:
        """The endpoint in force."""
        return self.endpoint or Endpoint(host="localhost", port=self.port)
