"""The schemas of LMI and of TGI over HTTP, in front of language models."""

from adapter.fronts.llm.answering import Answering
from adapter.fronts.llm.backends import PROMPT
from adapter.fronts.llm.options import MOST_BYTES
from adapter.fronts.llm.routes import TARGET, front, target_of

__all__ = ["MOST_BYTES", "PROMPT", "TARGET", "Answering", "front", "target_of"]
