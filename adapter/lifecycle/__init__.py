"""
What happens to a model, decided without knowing gRPC, storage or Triton.

`lifecycle` is the entry point: which call joins, waits, overtakes. `reconciler` is the one task beside the calls, and the gate before
them: purge, `takeover`, `looks` for lost models, comparisons. `background` restores LOST models and takes FAILED ones down. `worker`
runs an `operation` to its end; `fetching` has its steps for the files, and predicts sizes. `registry` is the table of models, `states`
says which state may follow which, `known` is what fronts see; `facts` are sizes and deaths.
"""
