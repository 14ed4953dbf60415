"""How a model is asked: once, or as a stream."""
