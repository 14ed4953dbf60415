"""The V2 inference protocol over HTTP."""
