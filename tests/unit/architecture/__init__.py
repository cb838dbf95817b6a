"""The rules of the house that no linter knows: pure functions from a source file to what is wrong in it."""
