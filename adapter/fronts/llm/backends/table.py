"""Which backend a model has: told by its inputs. Pure."""

from __future__ import annotations

from adapter.fronts.llm.backends.filling import takes
from adapter.fronts.llm.backends.plain_text import PlainText
from adapter.fronts.llm.backends.profile import PROMPT, TEXT, Profile
from adapter.fronts.llm.backends.tensorrt_llm import LlmApi, TrtLlm
from adapter.fronts.llm.backends.vllm import Vllm
from adapter.fronts.llm.parameters import BadPayload
from adapter.inference import ModelInfo


def profile_of(info: ModelInfo) -> Profile:
    """
    The profile of a model.

    Raises:
        BadPayload: it takes no text, or gives none.
    """
    if not takes(info, PROMPT) or all(entry.name != TEXT for entry in info.outputs):
        raise BadPayload(f"the model {info.name!r} is no language model: it has no {PROMPT} and {TEXT}")
    if takes(info, "sampling_parameters"):
        return Vllm()
    if takes(info, "sampling_param_max_tokens"):
        return LlmApi()
    return TrtLlm() if takes(info, "max_tokens") else PlainText()
