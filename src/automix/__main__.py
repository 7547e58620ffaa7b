"""`python -m automix`, and `torchrun -m automix`."""

from automix.cli import main

main()
