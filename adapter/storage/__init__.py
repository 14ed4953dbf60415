"""
Where models come from. Used through `store.Store`.

`secret` finds the config of a request, `stores` has the store that the config names, `pull` finds the model in it and
brings its files onto our volume, `cache` keeps them; `mounted` has models that are files already. `bucket` is what every
store of objects must do, `search` what every way of finding a model shares, `net` sends all requests. Imports point inwards:
only the table knows stores.
"""
