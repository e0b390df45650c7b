"""What the machine has: each number with its source."""
