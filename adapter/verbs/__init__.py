"""What the verbs `layout` and `models` show. Nothing here changes anything."""
