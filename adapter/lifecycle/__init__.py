"""
What happens to a model, decided without knowing gRPC, storage or Triton.

`lifecycle` is the entry point: which call joins, waits, overtakes. `takeover` is the gate before it. `worker` runs an `operation` to
its end; `fetching` has its steps for the files, and predicts sizes. `reconciler` does what no call does, `audit` compares. `registry`
is the table of models, `states` says which state may follow which, `known` is what fronts see; `facts` are sizes and deaths.
"""
