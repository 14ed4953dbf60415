"""Planted mistakes: whether the tests find what they are there for."""

from tests.prove.net import core, deploy, fronts, memory, rules, storage

MISTAKES = (*core.MISTAKES, *storage.MISTAKES, *rules.MISTAKES, *fronts.MISTAKES, *memory.MISTAKES, *deploy.MISTAKES)
