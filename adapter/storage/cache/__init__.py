"""
Artifacts that outlive their models: one copy for any number of ids, found again by what it is. The door is `cache.Cache`.

`identity` says what an artifact is, `meta` is its record on disk, `shelf` the table of all of them, `flights` has one pull
for all that want the same, `build` makes an artifact, `stale` gives one while its store is away. Knows no store, and no
way to pull: both come with each request, with the credentials of that request.
"""
