"""
What happens to a model, decided without knowing gRPC, storage or Triton.

`lifecycle` is the entry point: which call joins, waits, overtakes, and what fronts see. `reconciler` is the one task beside the calls,
and the gate before them; it restores LOST models and takes FAILED ones down. `looks` compares table, index and folder at the start,
after Triton's returns and once a minute. `worker` runs an `operation` to its end; `fetching` has its steps for the files, and predicts
sizes. `registry` is the table of models, `states` says which state may follow which; `facts` are sizes and deaths.
`repository_calls` are for callers who know Triton's names.
"""
