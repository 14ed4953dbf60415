"""
What happens to a model, decided without knowing gRPC, storage or Triton.

`lifecycle` is the door: who joins, waits, overtakes. `takeover` is the gate before it. `work` runs an
`operation` to its end: `loading` has the steps of a load, `freeing` gives back. `registry` is the
table of models, `states` the law of their states; `planning` and `sizing` answer questions.
"""
