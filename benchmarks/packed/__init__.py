"""Two million records in workers: as a list, packed, and none at all."""
