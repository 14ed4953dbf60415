"""
Artifacts that outlive their models: one copy for any number of ids, found again by what it is. Used through `cache.Cache`.

`identity` says what an artifact is, `record` is its record on disk, `table` knows all of them, `artifacts` does on the volume
what the table has decided, `cache` has one pull for all that want the same, `stale` gives an artifact while its store is
away. Knows no store, and no way to pull: both come with each request, with its credentials.
"""
