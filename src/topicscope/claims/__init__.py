"""One file per claim of the paper: where theory, training and probing meet."""
