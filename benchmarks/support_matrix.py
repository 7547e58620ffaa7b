"""Write docs/support.md: what every method supports, found by running it.

    python benchmarks/support_matrix.py --out docs/support.md

The checks are those of tests/support.py; about 3 minutes on one core.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from method_pages import method_table, write_page
from support import COLUMNS, outcome

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
- uint8: images of uint8, which functions take, and transforms except AttentiveMix. Pixels are copied, never
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


if __name__ == "__main__":
    write_page(__doc__, PAGE, lambda: {"table": method_table(COLUMNS, outcome)})
