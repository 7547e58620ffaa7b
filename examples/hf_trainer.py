"""AutoMix under Hugging Face's Trainer, around a ResNet of transformers: half a minute. Needs automix[huggingface].

python examples/hf_trainer.py [--method automix|cutmix|...] [--epochs N] [--accumulate N] [--seed N] [--out DIR]
"""

import argparse
import sys
from pathlib import Path
from typing import Any

# first: it repairs `import torchvision` where a CUDA wheel of torchvision lies beside a CPU-only torch
import automix
from automix.integrations.huggingface import Logits, TrainerModel, UpdateTask

# isort: split
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

from automix.data import ImageSet, load_images


class Digits(Dataset[dict[str, Tensor]]):
    def __init__(self, data: ImageSet) -> None:
        self.images = (torch.nn.functional.interpolate(data.images / 255, scale_factor=2) - 0.3) / 0.3
        self.labels = data.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def train(method: str, epochs: int, accumulate: int, seed: int, out: Path) -> float:
    torch.manual_seed(seed)
    train_set, test_set = (Digits(data) for data in load_images("digits", per_class=30))
    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], layer_type="basic", num_labels=10
    )
    network = Logits(ResNetForImageClassification(config))
    where = {"layer": "model.resnet.encoder.stages.1"} if method == "automix" else {}
    task = automix.create_task(method, network, ema=True, seed=seed, **where)
    trainer = Trainer(
        TrainerModel(task),
        TrainingArguments(
            str(out),
            num_train_epochs=epochs,
            per_device_train_batch_size=50 // accumulate,
            per_device_eval_batch_size=100,
            gradient_accumulation_steps=accumulate,
            lr_scheduler_type="cosine",
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=seed,
        ),
        train_dataset=train_set,
        eval_dataset=test_set,
        compute_metrics=accuracy,
        optimizers=(torch.optim.AdamW(task.param_groups(lr=5e-3), weight_decay=0.05), None),
        callbacks=[UpdateTask(task)],
    )
    trainer.train()
    classifier: Any = task.deploy()
    classifier.model.save_pretrained(out / "classifier")  # the model of transformers that Logits holds, the teacher's
    return trainer.evaluate()["eval_accuracy"]


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": 100 * float((prediction.predictions.argmax(axis=1) == prediction.label_ids).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="automix", choices=automix.methods())
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--accumulate", type=int, default=1, choices=(1, 2, 5), help="batches to a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/hf_trainer"), help="folder for the classifier")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {arguments.epochs}")
    try:
        found = train(arguments.method, arguments.epochs, arguments.accumulate, arguments.seed, arguments.out)
    except KeyboardInterrupt:
        sys.exit("stopped")
    print(f"test accuracy: {found:.2f} %")


if __name__ == "__main__":
    main()
