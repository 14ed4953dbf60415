"""The mounted storage secret: which config a model is pulled with, its fields, and what may see its credentials."""
