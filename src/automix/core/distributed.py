"""The processes of torch.distributed, also for builds of torch that come without it."""

import torch.distributed as dist


def is_distributed() -> bool:
    """Tell whether this process is in a process group.

    Returns:
        True in a process group.
    """
    return dist.is_available() and dist.is_initialized()


def rank_and_world() -> tuple[int, int]:
    """Return the rank of this process and the number of processes.

    Returns:
        Rank and world size; (0, 1) outside of a process group.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
