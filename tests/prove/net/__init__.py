"""Planted mistakes: whether the tests find what they are there for."""
