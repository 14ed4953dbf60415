"""A package, so that the fixture of that scope, the API server, ends with the tests of this folder."""
