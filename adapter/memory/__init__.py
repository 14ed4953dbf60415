"""
What models take of memory in truth: told by a reporter beside Triton and by Triton's metrics, and laid to the models' charge.

`report` and `devices` read, `attribution` decides (pure), `ledger` keeps what was seen of each model, `watch` asks and tells.
"""
