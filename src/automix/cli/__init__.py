"""The command line: one module a command, with `run(arguments)`; `main` chooses among them."""
