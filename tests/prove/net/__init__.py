"""Planted mistakes: whether the tests find what they are there for."""

from tests.prove.net import core, deploy, fronts, rules, storage

MISTAKES = (*core.MISTAKES, *storage.MISTAKES, *rules.MISTAKES, *fronts.MISTAKES, *deploy.MISTAKES)
