"""Counterparts in memory, for tests of the client."""
