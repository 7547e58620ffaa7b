"""Write docs/support.md: what every method supports, found by running it.

    python benchmarks/support_matrix.py --out docs/support.md

The checks are those of tests/support.py; about 3 minutes on one core.
"""

import argparse
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import torch
from support import COLUMNS, outcome

import automix

PAGE = """# What every method supports

Every cell was found by running the method. The tests run the cells again.

```bash
python benchmarks/support_matrix.py --out docs/support.md
```

{table}

yes: it works. refused: an error says so in one line. no: it does not work. -: does not apply, or the method has no
such form.

- one graph: `torch.compile(automix.mixup, fullgraph=True)`, without a `generator`, which torch does not compile.
  PuzzleMix needs a given `grid`. SuperMix optimizes its masks by gradients of a network.
- compiled task: `task.compile(fullgraph=True)`. Student, teacher and Mix Block have no graph breaks. Passes in which a
  method reads or changes a layer of the student run without compiled code.
- bf16: weights and images of bfloat16. Autocast is in [every kind of loop](results/loops.md).
- uint8: images of uint8, which the function takes, and the transform but for AttentiveMix. Pixels are copied, never
  blended or resized.
- lam per sample: `per_sample=True`.
- partners of another class: `pairing="other-class"`.
- multi-label: rows of bool or integers.
- ViT: timm's plain transformer with a class token. PatchUp needs maps, RecursiveMix a network that ends in global
  average pooling.
- collate: a transform in the collate function of a `DataLoader`. AttentiveMix, StyleMix and SuperMix need a network
  there.
- odd batch: five images of 19 x 22 pixels, then three.
- video: clips `(N, C, T, H, W)` with the transform. One mask mixes all frames. Refused where channels are colors.

Graphs were compiled with the eager backend, which traces them as a whole and runs their operations as they are. The
default backend, inductor, was tried on a CPU with g++ 12: `automix train shapes --method mixup --compile` in bf16 (a
ResNet of 8 channels, six steps) and a step of AutoMix after `task.compile()` (a network of two layers, float32, the
same loss as without). Nothing here was run on a GPU.

automix {version}, torch {torch}.
"""


def support_table() -> str:
    """Methods in rows, what they support in columns."""
    lines = [f"| method | {' | '.join(COLUMNS)} |", f"| --- |{' --- |' * len(COLUMNS)}"]
    for name in automix.methods():
        lines.append(f"| {name} | {' | '.join(outcome(column, name) for column in COLUMNS)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    """Run all checks and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    page = PAGE.format(table=support_table(), version=automix.__version__, torch=torch.__version__)
    out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
