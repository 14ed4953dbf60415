"""
What happens to a model, decided without knowing gRPC, storage or Triton.

`lifecycle` is the entry point: which call joins, waits, overtakes. `takeover` is the gate before it. `work` runs an `operation` to
its end: `loading` has the steps of a load, `freeing` gives back. `reconciler` does what no call does. `registry` is the table of
models, `states` says which state may follow which; `planning` and `sizing` answer questions.
"""
