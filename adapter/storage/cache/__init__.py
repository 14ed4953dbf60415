"""
Artifacts that outlive their models: one copy for any number of ids, found again by what it is. Used through
`cache.Cache`.

`record` says what an artifact is, on disk too; `artifacts` knows all of them; `build` makes one; `cache` has one pull for
all that want the same, and gives an artifact while its store is away. Knows no store, and no way to pull: both come with
each request, with its credentials.
"""
