"""The schemas of LMI, of TGI and of OpenAI over HTTP, in front of language models."""

from adapter.fronts.llm.answering import Answering
from adapter.fronts.llm.routes import front

__all__ = ["Answering", "front"]
