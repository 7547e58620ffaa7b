"""Write docs/results/loops.md: every method in every kind of loop, and on a device that is not the host.

    python benchmarks/loop_table.py --out docs/results/loops.md

The checks are those of tests/test_loops.py and tests/test_fake_device.py; about 3 minutes on one core.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from loops import LOOPS, outcome
from method_pages import method_table, write_page

import automix

PAGE = """# Loops and devices

Does every method have the right gradients in the loop that you have? Each cell compares the loss and the gradients of
one step with those of the plain step: the sum of the losses, one backward pass, float32.

```bash
python benchmarks/loop_table.py --out docs/results/loops.md
```

## Loops

{loops}

yes: the same up to rounding. refused: an error says so in one line. -: does not apply.

- plain sum: the cross-entropy written out, with gradients by `torch.autograd.grad`. Methods with a dash change more
  than the images and have tests of their own.
- bf16: autocast, gradients within 10 %. The masks of Co-Mixup jump with the rounding of the saliency.
- checkpointing, reentrant: `torch.utils.checkpoint` around the layer that is mixed or read. It would run again in the
  backward pass, unmixed, so that methods which mix there refuse it. Methods that need gradients of the images cannot
  use the reentrant kind, which torch does not allow.
- low memory: `low_memory=True`. dropout: the same with dropout. copies: `copy.deepcopy`, and a state dict loaded into
  another task.
- DDP: one process, with unused parameters allowed. Two processes are in `tests/test_ddp.py` and
  `tests/test_torchrun.py`.

## Devices

A step on a device that is not the host: CPU tensors in a wrapper that refuses to mix devices and counts copies and
reads. All methods give the loss of the CPU. Reads are values for which the program would wait in a step; copies are
draws of the CPU generator that are sent to the device.

{devices}

## Not shown

- Nothing here was run on a real GPU: no CUDA, no MPS kernel, no NCCL, no memory or speed on a device.
- FSDP2 is not in the table. `torch.compile` is in [what every method supports](../support.md).
- Losses with a criterion of your own that has parameters outside of the task: with `low_memory=True` they get no
  gradient from the terms that are back-propagated early.

automix {version}, torch {torch}.
"""


def device_table() -> str:
    """Reads and copies of each method."""
    command = [sys.executable, str(ROOT / "tests" / "fake_device.py"), *automix.methods()]
    lines = ["| method | reads a step | copies a step |", "| --- | --- | --- |"]
    for text in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        step = json.loads(text)
        lines.append(f"| {step['method']} | {sum(step['reads'].values())} | {step['copies']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    write_page(__doc__, PAGE, lambda: {"loops": method_table(LOOPS, outcome), "devices": device_table()})
