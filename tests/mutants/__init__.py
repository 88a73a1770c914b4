"""Mutants: small wrong changes to the package, each tried against the tests that run the changed line."""
