"""`python -m automix`, and `torchrun -m automix`."""

from automix.cli.main import main

main()
