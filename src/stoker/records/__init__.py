"""Records in flat buffers: what many workers read without each getting a copy."""
