"""When: which worker makes which batch, and when it is handed out."""
