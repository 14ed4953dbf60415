"""How each kind of backend is asked for text, and what its answers tell: one profile for each."""

from adapter.fronts.llm.backends.profile import Piece, Profile, Question, Token
from adapter.fronts.llm.backends.table import profile_of

__all__ = ["Piece", "Profile", "Question", "Token", "profile_of"]
