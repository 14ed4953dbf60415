"""
Where models come from. The door is `store.Store`.

`secret` finds the config of a request, a row of `stores.table` finds the model in the store that the
config names, `pull` brings its files onto our volume; `mounted` has models that are files already.
`bucket` is what every store of objects must do, `search` what every way of finding a model shares,
`wire` what reaches below client libraries. Imports point from the door down: only the table knows
stores.
"""
