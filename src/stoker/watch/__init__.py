"""What a program does with its loaders: watches a script that nobody has edited, or serves it."""
