"""Whether this process trains together with others, through torch.distributed. Some builds of torch have none."""

import torch.distributed as dist


def is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank_and_world() -> tuple[int, int]:
    """This process's number, and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)
