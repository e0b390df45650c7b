"""How results look: pure functions from result objects to terminal text and JSON."""
