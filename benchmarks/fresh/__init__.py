"""Workers that start afresh: memory for a large array, and the time to the first batch."""
