"""The V2 inference protocol over HTTP."""

from adapter.fronts.v2.routes import front

__all__ = ["front"]
