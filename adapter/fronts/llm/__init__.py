"""The schemas of LMI, of TGI and of OpenAI over HTTP, in front of language models."""

from adapter.fronts.llm.answering import Answering, as_it_is
from adapter.fronts.llm.backends import PROMPT
from adapter.fronts.llm.chats import Chats
from adapter.fronts.llm.openai import is_openai
from adapter.fronts.llm.options import MOST_BYTES
from adapter.fronts.llm.routes import TARGET, front, target_of

__all__ = ["MOST_BYTES", "PROMPT", "TARGET", "Answering", "Chats", "as_it_is", "front", "is_openai", "target_of"]
