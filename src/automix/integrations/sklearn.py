"""scikit-learn: a classifier of images with `fit`, `predict` and `score`. Needs ``pip install 'automix[sklearn]'``.

    classifier = automix.Classifier(method="cutmix", epochs=20)
    cross_val_score(classifier, images, labels)                 # images: (N, H, W, 3) or (N, H, W)
    classifier.fit("photos/").score("photos/")                  # photos/<class>/*.jpg; its test images
    classifier.save("photos.safetensors")

Arrays are trained on in memory, from scratch with the recipe `quick` unless another one is given; a folder as ``automix
train`` would. No run folder is written.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from automix.core.errors import AutomixError
from automix.core.normalization import Normalization
from automix.data import BatchPlan, Data, ImageSet, MemoryLoader, open_dataset
from automix.data.augmentation import padding_for
from automix.data.image_set import resize_and_crop
from automix.deploy.image_files import list_images, read_square
from automix.runs.classifier import Card, WithNormalization, read_classifier, save_classifier
from automix.runs.config import TrainConfig
from automix.training.build import build_data
from automix.training.defaults import complete_settings, settle_normalization
from automix.training.distributed import World
from automix.training.loop import training_step
from automix.training.prepare import assemble
from automix.training.signals import StopRequest

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"needs {error.name}: pip install 'automix[sklearn]'", name=error.name) from None

__all__ = ["Classifier"]

ARRAYS = "arrays"  # what a configuration calls data that came as arrays
SMALLEST = 16  # px; smaller images are enlarged, because networks reduce them 8 times
BATCH = 100  # images at once when classifying

Array = NDArray[Any]


class Classifier(ClassifierMixin, BaseEstimator):
    """A network trained with mixup, as a scikit-learn estimator.

    Args:
        method: How images are mixed; see `automix.methods`.
        model: The network; the recipe's if not given (resnet18 for arrays).
        recipe: The settings to start from; `quick` for arrays if not given, and for folders the choice of ``automix
            train``.
        epochs: Passes over the images; the recipe's if not given.
        batch_size: Images in a step; the recipe's if not given. No more than there are images.
        lr: The highest learning rate; the recipe's if not given.
        alpha: ``lam ~ Beta(alpha, alpha)``; the recipe's choice for the method if not given.
        ema: Keep a moving average of the weights, and classify with it; the recipe's choice if not given.
        flip: Mirror half of the training images; the recipe's choice if not given, but never for rows of numbers
            without `image_shape`.
        image_size: Side in pixels that images are resized to; as they are if not given, but at least 16.
        image_shape: Height and width, or height, width and channels, of images that come as rows of numbers. If not
            given, a row is laid out as a square, with zeros at its end.
        model_options: Further options of the network.
        method_options: Further options of the method.
        device: Where to train: cpu, cuda, mps, or auto.
        random_state: Seed of the initial weights, the order of the images and every draw.

    Attributes:
        classes_: The classes, in the order of the columns of `predict_proba`.
        n_features_in_: Numbers in a row, if the classifier was trained on rows.
        model_: The trained network.
        card_: Its classes, image size and normalization.
    """

    def __init__(
        self,
        method: str = "automix",
        *,
        model: str | None = None,
        recipe: str | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        alpha: float | None = None,
        ema: bool | None = None,
        flip: bool | None = None,
        image_size: int | None = None,
        image_shape: Sequence[int] | None = None,
        model_options: dict[str, Any] | None = None,
        method_options: dict[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.recipe = recipe
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.alpha = alpha
        self.ema = ema
        self.flip = flip
        self.image_size = image_size
        self.image_shape = image_shape
        self.model_options = model_options
        self.method_options = method_options
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "Classifier":  # noqa: N803 (scikit-learn's name)
        """Train on arrays or on a folder of images.

        Args:
            X: Images ``(N, H, W, C)``, ``(N, C, H, W)`` or ``(N, H, W)`` with 1 or 3 channels, or rows of numbers
                ``(N, features)``; uint8, or numbers of any range, which is stretched to that of uint8. Or a folder, or
                the name of a dataset, whose training images are used.
            y: Labels ``(N,)`` of any type; none for a folder.

        Returns:
            The classifier.
        """
        if isinstance(X, str | Path):
            if y is not None:
                raise AutomixError("y must not be given with a folder, whose subfolders are the classes")
            values = {"data": str(X), "train_size": self.image_size, "test_size": self.image_size}
            given = {name: value for name, value in values.items() if value is not None}
            config = settle_normalization(TrainConfig.from_flat(complete_settings({**self._settings(), **given})))
            data = build_data(config, World(), use_skip_list=False)
            self.classes_ = np.array(data.classes)
            self._clear("n_features_in_", "range_")
        else:
            data, config = self._open_arrays(X, y)
        run = assemble(config, World(), data)
        run.task.train()
        batches, stop = data.loader.batches(0, run.total_steps), StopRequest()
        with torch.random.fork_rng(devices=[]):
            while run.step < run.total_steps:
                training_step(run, batches, stop)
        self.card_ = run.card({})
        self.model_ = run.task.deploy().cpu().eval().requires_grad_(False)
        return self

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Compute the probabilities of the classes.

        Args:
            X: Images as in `fit`; or a folder, an image file or a list of them.

        Returns:
            Probabilities, ``(N, classes)``, in the order of `classes_`.
        """
        check_is_fitted(self, "model_")
        classifier = WithNormalization(self.model_, self.card_)
        parts = []
        with torch.inference_mode():
            for pixels in self._read(X).split(BATCH):
                parts.append(classifier(pixels.float() / 255).double().softmax(dim=1))
        return torch.cat(parts).numpy()

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Classify images.

        Args:
            X: Images as in `predict_proba`.

        Returns:
            The most probable classes, ``(N,)``.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Measure the accuracy.

        Args:
            X: Images as in `fit`; of a folder or a dataset, the test images are used.
            y: Their labels; none for a folder.
            sample_weight: Weights of the images.

        Returns:
            The share that is classified right.
        """
        if not isinstance(X, str | Path):
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self, "model_")
        _, test = open_dataset(str(X), image_size=self.card_.train_size)
        if tuple(test.classes) != self.card_.classes:
            raise AutomixError(f"{X}: the data must have the classes of the training, got others")
        size, crop = self.card_.image_size, self.card_.crop
        images, labels = zip(*(test.read(index) for index in range(len(test))), strict=True)
        pixels = [np.asarray(resize_and_crop(image, image.size, size, crop)) for image in images]
        return float(np.mean(self.predict(np.stack(pixels)) == self.classes_[list(labels)]))

    def save(self, path: str | Path) -> None:
        """Write the classifier to a safetensors file, which `automix.load_classifier` and ``automix predict`` read too.

        Args:
            path: The file.
        """
        check_is_fitted(self, "model_")
        about = {
            "params": self.get_params(),
            "classes": [self.classes_.dtype.str, self.classes_.tolist()],
            "range": getattr(self, "range_", None),
            "features": getattr(self, "n_features_in_", None),
        }
        values = {item: getattr(self.card_, item) for item in self.card_.__dataclass_fields__}
        try:
            facts = {**self.card_.facts, "sklearn": json.loads(json.dumps(about))}
        except TypeError as error:
            raise AutomixError(f"parameters and classes must be values that JSON has ({error})") from None
        save_classifier(Path(path), self.model_, Card(**{**values, "facts": facts}))

    @classmethod
    def load(cls, path: str | Path) -> "Classifier":
        """Read a classifier that `save` wrote.

        Args:
            path: The file.

        Returns:
            The classifier, ready to predict.
        """
        model, card = read_classifier(Path(path))
        about = card.facts.get("sklearn")
        if not isinstance(about, dict):
            raise AutomixError(f"{path}: no classifier of scikit-learn's kind; use automix.load_classifier")
        loaded = cls(**about["params"])
        kind, values = about["classes"]
        loaded.classes_ = np.array(values, dtype=np.dtype(kind))
        loaded.model_, loaded.card_ = model.requires_grad_(False), card
        if about["range"] is not None:
            loaded.range_ = tuple(about["range"])
        if about["features"] is not None:
            loaded.n_features_in_ = about["features"]
        return loaded

    # --- arrays

    def _settings(self) -> dict[str, Any]:
        """The parameters that were given, as settings of a training."""
        names = ("model", "recipe", "epochs", "batch_size", "lr", "alpha", "ema", "flip", "model_options")
        given = {name: getattr(self, name) for name in (*names, "method_options")}
        state = self.random_state
        seed = state if isinstance(state, int) else int(check_random_state(state).randint(2**31))
        settings = {name: value for name, value in given.items() if value is not None}
        if "epochs" in settings:
            settings.setdefault("warmup_epochs", 0)
        return {"method": self.method, "device": self.device, "seed": seed, "workers": 0, **settings}

    def _open_arrays(self, x: Any, y: Any) -> tuple[Data, TrainConfig]:
        """Check the arrays, and make batches of them."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        self._clear("n_features_in_")  # of an earlier fit; images have none
        x, y = validate_data(self, x, y, ensure_2d=_dimensions(x) < 3, allow_nd=True, dtype="numeric")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise AutomixError("y must have 2 classes or more, got 1 class")
        self.range_ = (0.0, 255.0) if x.dtype == np.uint8 else (float(x.min()), float(x.max()))
        pixels = self._pixels(x)
        names = tuple(str(name) for name in self.classes_)
        images = ImageSet(pixels, torch.from_numpy(labels.reshape(-1)).long(), names)
        settings = {"recipe": "quick", **self._settings()}
        if x.ndim == 2 and self.image_shape is None:
            settings |= {"flip": False, "crop": "none"}  # the order of numbers in a row means something
        settings["batch_size"] = min(settings.get("batch_size") or 32, len(images))
        config = TrainConfig.from_flat({**settings, "data": ARRAYS})
        recipe, size = config.settings, pixels.shape[-1]
        loader = MemoryLoader(
            images,
            BatchPlan(len(images), recipe.batch_size, config.seed),
            crop=recipe.crop,
            padding=padding_for(size),
            flip=recipe.flip,
            crop_scale=recipe.crop_scale,
            normalization=Normalization(config.mean, config.std) if config.mean and config.std else None,
        )
        return Data(ARRAYS, names, size, len(images), 0, loader), config

    def _pixels(self, x: Array) -> torch.Tensor:
        """Turn an array into uint8 images ``(N, 3, S, S)``."""
        if x.ndim == 2:
            x = self._lay_out_rows(x)
        if x.ndim == 3:
            x = x[..., None]
        if x.ndim != 4:
            raise AutomixError(f"X must have 2, 3 or 4 dimensions, got {x.ndim}")
        if x.shape[-1] not in (1, 3):
            if x.shape[1] not in (1, 3):
                raise AutomixError(f"X must have 1 or 3 channels, last or second, got shape {x.shape}")
            x = np.moveaxis(x, 1, -1)
        if x.dtype != np.uint8:
            low, high = self.range_
            x = np.clip((x.astype(np.float64) - low) * (255 / ((high - low) or 1)), 0, 255).round().astype(np.uint8)
        pixels = torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1))).expand(-1, 3, -1, -1).contiguous()
        size = self.image_size or max(SMALLEST, min(pixels.shape[2:]))
        return _resize(pixels, size)

    def _lay_out_rows(self, x: Array) -> Array:
        """Lay rows of numbers out as images."""
        count = x.shape[1]
        if self.image_shape is not None:
            if math.prod(self.image_shape) != count:
                raise AutomixError(f"image_shape must have {count} numbers, those of a row, got {self.image_shape}")
            return x.reshape(len(x), *self.image_shape)
        side = math.isqrt(count - 1) + 1
        rows = np.full((len(x), side * side), self.range_[0], dtype=x.dtype)
        rows[:, :count] = x
        return rows.reshape(len(x), side, side)

    def _read(self, x: Any) -> torch.Tensor:
        """Images to classify as uint8 ``(N, 3, S, S)``."""
        paths = [x] if isinstance(x, str | Path) else x
        if isinstance(paths, list | tuple) and paths and all(isinstance(path, str | Path) for path in paths):
            files = list_images([Path(path) for path in paths])
            return torch.stack([read_square(path, self.card_.image_size, self.card_.crop) for path in files])
        if not hasattr(self, "range_"):  # trained on a folder
            x = np.asarray(x)
            if x.dtype != np.uint8:
                raise AutomixError(f"X must be uint8 for a classifier that was trained on files, got {x.dtype}")
            return _resize(torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1))), self.card_.image_size)
        x = validate_data(self, x, reset=False, ensure_2d=_dimensions(x) < 3, allow_nd=True, dtype="numeric")
        return self._pixels(x)

    def _clear(self, *names: str) -> None:
        """Forget what an earlier fit learned of arrays."""
        for name in names:
            if hasattr(self, name):
                delattr(self, name)


def _resize(pixels: torch.Tensor, size: int) -> torch.Tensor:
    """Resize and center-crop uint8 images."""
    return ImageSet(pixels, torch.zeros(len(pixels), dtype=torch.int64), ("",)).resized(size).images


def _dimensions(x: Any) -> int:
    """The number of axes of an array, a data frame, a sparse matrix or nested lists."""
    return len(x.shape) if hasattr(x, "shape") else np.asarray(x).ndim
