"""The HTTP front for language models: the schemas of LMI and of TGI."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.units import BOOLEAN, OPTIONAL_PORT, TEXT, choice, setting

OUTPUT_FORMATTERS = ("auto", "json", "jsonlines", "sse")
ROLLING_BATCHES = ("auto", "disable", "vllm", "lmi-dist", "trtllm", "scheduler")
"""As DJL Serving names them: which engine batches is the model's own affair here."""
DETAILS = ("honest", "strict")


@dataclass(frozen=True, kw_only=True)
class LlmSettings:
    """The HTTP front for language models. A model's own `serving.properties` beats what begins with `OPTION_`."""

    port: int = setting(OPTIONAL_PORT, "LMI_PORT", "0", "Port of the LMI and TGI schemas over HTTP; 0 = off")
    model: str | None = setting(
        TEXT, "LMI_MODEL", None, "The model of paths that name none (`/invocations`, `/generate`). Default: the only model that is loaded"
    )
    is_tgi_compatible: bool = setting(
        BOOLEAN, "OPTION_TGI_COMPAT", "false", "Answer `/invocations` and `/predictions` as TGI does: a list, token details, SSE"
    )
    output_formatter: str = setting(
        choice(*OUTPUT_FORMATTERS),
        "OPTION_OUTPUT_FORMATTER",
        "auto",
        "Form of a stream: `jsonlines` or `sse`, which also stream where a request does not say; `auto`: `jsonlines`, with TGI `sse`",
    )
    is_streaming: bool = setting(BOOLEAN, "OPTION_ENABLE_STREAMING", "false", "Stream the answer of a request that does not say whether to")
    rolling_batch: str = setting(
        choice(*ROLLING_BATCHES),
        "OPTION_ROLLING_BATCH",
        "auto",
        "Schema: `disable`: always the dynamic one; all others as `auto`: a prompt has the rolling one, a list of prompts the dynamic one",
    )
    details: str = setting(
        choice(*DETAILS),
        "LMI_DETAILS",
        "honest",
        "Token details that the model's backend cannot tell are `honest`: null, or `strict`: the request fails",
    )
