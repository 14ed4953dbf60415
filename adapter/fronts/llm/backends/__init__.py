"""How each kind of backend is asked for text, and what its answers tell: one profile for each."""

from adapter.fronts.llm.backends.profile import PROMPT, TEXT, Piece, Profile, Question, Token
from adapter.fronts.llm.backends.table import profile_of

__all__ = ["PROMPT", "TEXT", "Piece", "Profile", "Question", "Token", "profile_of"]
