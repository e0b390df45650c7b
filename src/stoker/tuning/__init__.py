"""How many workers: trials, their noise and the recommendation."""
