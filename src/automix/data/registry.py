"""The registry of named datasets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from automix.data import builtin, layouts
from automix.data.folders import class_folders
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.data.imagenet import imagenet


@dataclass(frozen=True)
class Dataset:
    """A named dataset.

    Attributes:
        description: What it is, in one line.
        num_classes: Number of classes.
        image_size: Side of the images in pixels; None if they differ in size.
        folders: Where it may be below the data root; the first of these that contains `marker` is taken.
        marker: A file or folder by which the dataset is recognized; empty if any folder will do.
        source: Where to get it.
        layout: Lists the training and the test set of its folder.
        generate: Makes a dataset that needs no files, at a given size; None if it has files.
        flip: Whether training may mirror its images.
        train_count: Number of training images of a generated dataset.
    """

    description: str
    num_classes: int
    image_size: int | None = None
    folders: tuple[str, ...] = ()
    marker: str = "train"
    source: str = ""
    layout: Callable[[Path], tuple[ImageFiles, ImageFiles] | tuple[ImageSet, ImageSet]] = class_folders
    generate: Callable[[int], tuple[ImageSet, ImageSet]] | None = None
    flip: bool = True
    train_count: int | None = None


DATASETS: dict[str, Dataset] = {
    "digits": Dataset(
        "scikit-learn's 1,797 handwritten digits", 10, 16, generate=builtin.digits, flip=False, train_count=1198
    ),
    "shapes": Dataset("6,960 drawn shapes on clutter", 12, 32, generate=builtin.shapes, train_count=5040),
    "cifar10": Dataset(
        "CIFAR-10: 60,000 photos of 32 px",
        10,
        32,
        ("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar10"),
        "",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        layouts.cifar,
    ),
    "cifar100": Dataset(
        "CIFAR-100: 60,000 photos of 32 px",
        100,
        32,
        ("cifar-100-python", "cifar100/cifar-100-python", "cifar100"),
        "",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        layouts.cifar,
    ),
    "tiny-imagenet": Dataset(
        "Tiny-ImageNet: 110,000 photos of 64 px, with boxes",
        200,
        64,
        ("tiny-imagenet-200", "tiny-imagenet"),
        "wnids.txt",
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        layouts.tiny_imagenet,
    ),
    "imagenet": Dataset(
        "ImageNet-1k: 1.3 million photos, train/<wnid>/ and val/",
        1000,
        None,
        ("imagenet", "ILSVRC2012", "imagenet-1k", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC"),
        "train",
        "https://www.image-net.org/download.php",
        imagenet,
    ),
    "cub200": Dataset(
        "CUB-200-2011: 11,788 photos of birds, with boxes",
        200,
        None,
        ("CUB_200_2011", "cub200"),
        "train_test_split.txt",
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        layouts.cub,
    ),
    "pets": Dataset(
        "Oxford-IIIT Pets: 7,349 photos of cats and dogs, with masks",
        37,
        None,
        ("oxford-iiit-pet", "pets"),
        "annotations/trainval.txt",
        "https://www.robots.ox.ac.uk/~vgg/data/pets/",
        layouts.pets,
    ),
    "aircraft": Dataset(
        "FGVC-Aircraft: 10,000 photos of 100 variants",
        100,
        None,
        ("fgvc-aircraft-2013b",),
        "data/variants.txt",
        "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
        layouts.aircraft,
    ),
    "inat2017": Dataset(
        "iNaturalist 2017: 675,170 photos of species",
        5089,
        None,
        ("inat2017", "iNat2017", "inaturalist2017"),
        "train2017.json",
        "https://github.com/visipedia/inat_comp/tree/master/2017",
        partial(layouts.inaturalist, year=2017),
    ),
    "inat2018": Dataset(
        "iNaturalist 2018: 461,939 photos of species",
        8142,
        None,
        ("inat2018", "iNat2018", "inaturalist2018"),
        "train2018.json",
        "https://github.com/visipedia/inat_comp/tree/master/2018",
        partial(layouts.inaturalist, year=2018),
    ),
    "places205": Dataset(
        "Places205: 2.5 million photos of scenes",
        205,
        None,
        ("places205", "Places205"),
        "trainvalsplit_places205",
        "http://places.csail.mit.edu/downloadData.html",
        layouts.places205,
    ),
}
"""The named datasets; see `automix datasets`."""
