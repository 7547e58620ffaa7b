"""Datasets on disk: each layout in its official format, and by name."""

import io
import json
import os
import pickle
import sys
import tarfile
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
import torchvision.datasets
import torchvision.transforms.functional as TF
from PIL import Image

from automix.core.errors import AutomixError
from automix.data import (
    DATASETS,
    Augmentation,
    BadImage,
    ImageFiles,
    ImageSet,
    check_data,
    load_images,
    open_data,
    open_dataset,
    read_image,
)
from automix.data.folders import list_classes

needs_data = pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")


def write(root: Path, files: dict[str, str]) -> Path:
    """Text files, and pictures where a name ends like one: the text is then 'width height value'."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() in (".png", ".jpg", ".jpeg"):
            width, height, value = (int(number) for number in text.split())
            Image.new("RGB", (width, height), (value, value, value)).save(path, format="PNG")
        else:
            path.write_text(text)
    return root


def listed(pair: Any, root: Path) -> list[list[tuple[str, str]]]:
    """(path below root, name of the class) for both splits."""
    return [
        [
            (Path(path).relative_to(root).as_posix(), part.classes[label])
            for path, label in zip(part.paths, part.labels.tolist(), strict=True)
        ]
        for part in pair
    ]


def one_line(error: Any) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


TINY = {
    "wnids.txt": "n02\nn01\n",
    "words.txt": "n01\tgoldfish, Carassius auratus\nn02\tcrane\nn03\tnewt\n",
    "train/n01/n01_boxes.txt": "n01_0.JPEG\t0\t10\t63\t58\nn01_1.JPEG\t63\t2\t63\t49\n",
    "train/n02/n02_boxes.txt": "n02_0.JPEG\t0\t0\t63\t63\n",
    "val/val_annotations.txt": "val_0.JPEG\tn02\t1\t2\t3\t4\nval_1.JPEG\tn01\t0\t0\t63\t63\n",
}
CUB = {
    "images.txt": "1 001.Black_footed/a.jpg\n2 001.Black_footed/b.jpg\n3 002.Laysan_Albatross/c.jpg\n",
    "classes.txt": "1 001.Black_footed\n2 002.Laysan_Albatross\n",
    "image_class_labels.txt": "1 1\n2 1\n3 2\n",
    "train_test_split.txt": "1 0\n2 1\n3 1\n",
    "bounding_boxes.txt": "1 60.0 27.0 325.0 304.0\n2 1.0 2.0 3.0 4.0\n3 5.0 6.0 7.5 8.0\n",
}
INAT = {
    f"{split}2018.json": json.dumps(
        {
            "images": [{"id": i, "file_name": f"train_val2018/Aves/{i}.jpg"} for i in ids],
            "annotations": [{"id": 10 * i, "image_id": i, "category_id": [7, 3][i % 2]} for i in reversed(ids)],
            "categories": [{"id": 7, "name": "robin"}, {"id": 3, "name": "wren"}, {"id": 5, "name": "kite"}],
        }
    )
    for split, ids in (("train", (1, 2, 3)), ("val", (4,)))
}
PLACES = {
    "trainvalsplit_places205/train_places205.csv": "a/abbey/1.jpg 0\nb/basilica/indoor/2.jpg,1\n",
    "trainvalsplit_places205/val_places205.csv": "b/basilica/indoor/3.jpg 1\n",
    "images256/a/abbey/1.jpg": "4 4 7",
}
AIRCRAFT = {
    "data/variants.txt": "707-320\nA300 B4\n",
    "data/images_variant_trainval.txt": "0034309 A300 B4\n1025794 707-320\n",
    "data/images_variant_test.txt": "0056978 707-320\n",
}
PETS = {
    "annotations/trainval.txt": "#Image CLASS-ID SPECIES BREED ID\nEgyptian_Mau_10 12 1 5\nbeagle_1 5 2 3\n",
    "annotations/test.txt": "beagle_2 5 2 3\nEgyptian_Mau_7 12 1 5\n",
}


@pytest.mark.parametrize(
    ("name", "folder", "files", "expected"),
    [
        (
            "tiny-imagenet",
            "tiny-imagenet-200",
            TINY,
            [
                [
                    ("train/n01/images/n01_0.JPEG", "goldfish"),
                    ("train/n01/images/n01_1.JPEG", "goldfish"),
                    ("train/n02/images/n02_0.JPEG", "crane"),
                ],
                [("val/images/val_0.JPEG", "crane"), ("val/images/val_1.JPEG", "goldfish")],
            ],
        ),
        (
            "cub200",
            "CUB_200_2011",
            CUB,
            [
                [
                    ("images/001.Black_footed/b.jpg", "Black footed"),
                    ("images/002.Laysan_Albatross/c.jpg", "Laysan Albatross"),
                ],
                [("images/001.Black_footed/a.jpg", "Black footed")],
            ],
        ),
        (
            "pets",
            "oxford-iiit-pet",
            PETS,
            [
                [("images/Egyptian_Mau_10.jpg", "Egyptian Mau"), ("images/beagle_1.jpg", "beagle")],
                [("images/beagle_2.jpg", "beagle"), ("images/Egyptian_Mau_7.jpg", "Egyptian Mau")],
            ],
        ),
        (
            "inat2018",
            "inat2018",
            INAT,
            [
                [(f"train_val2018/Aves/{i}.jpg", name) for i, name in ((1, "wren"), (2, "robin"), (3, "wren"))],
                [("train_val2018/Aves/4.jpg", "robin")],
            ],
        ),
        (
            "places205",
            "places205",
            PLACES,
            [
                [("images256/a/abbey/1.jpg", "abbey"), ("images256/b/basilica/indoor/2.jpg", "basilica/indoor")],
                [("images256/b/basilica/indoor/3.jpg", "basilica/indoor")],
            ],
        ),
        (
            "aircraft",
            "fgvc-aircraft-2013b",
            AIRCRAFT,
            [
                [("data/images/0034309.jpg", "A300 B4"), ("data/images/1025794.jpg", "707-320")],
                [("data/images/0056978.jpg", "707-320")],
            ],
        ),
        (
            "imagenet",
            "imagenet",
            {f"{path}.JPEG": "9 8 1" for path in ("train/n01/a", "train/n02/b", "val/n01/c", "val/n02/d")},
            [
                [("train/n01/a.JPEG", "n01"), ("train/n02/b.JPEG", "n02")],
                [("val/n01/c.JPEG", "n01"), ("val/n02/d.JPEG", "n02")],
            ],
        ),
    ],
)
def test_official_layouts_by_name_and_by_folder(
    tmp_path: Path, name: str, folder: str, files: dict[str, str], expected: Any
) -> None:
    root = write(tmp_path / folder, files)
    check_data(name, tmp_path)
    pair = open_dataset(name, tmp_path)
    assert listed(pair, root) == expected
    assert pair[0].classes == pair[1].classes
    assert listed(open_dataset(str(root)), root) == expected  # recognized without its name


FLAT = {
    **{f"train/{wnid}/a.JPEG": "9 8 1" for wnid in ("n01", "n02", "n03")},
    **{f"val/ILSVRC2012_val_0000000{number}.JPEG": "9 8 1" for number in (1, 2, 3, 4)},
}
CLASSES_OF_FLAT = ["n03", "n01", "n01", "n02"]


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        (
            "ILSVRC/Data/CLS-LOC",  # Kaggle's, with the file three folders up; its rows are in no order
            {
                "../../../LOC_val_solution.csv": "ImageId,PredictionString\nILSVRC2012_val_00000004,n02 1 2 3 4 \n"
                "ILSVRC2012_val_00000001,n03 1 2 3 4 n03 5 6 7 8 \nILSVRC2012_val_00000002,n01 1 2 3 4 \n"
                "ILSVRC2012_val_00000003,n01 1 2 3 4 \n"
            },
        ),
        ("imagenet", {"imagenet_2012_validation_synset_labels.txt": "n03\nn01\nn01\nn02\n"}),
        (
            "imagenet",
            {
                "val/val.txt": "".join(
                    f"ILSVRC2012_val_0000000{n}.JPEG {c}\n" for n, c in ((1, 2), (2, 0), (3, 0), (4, 1))
                )
            },
        ),
        ("imagenet", {"ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt": "1\n3\n3\n2\n"}),
    ],
    ids=["kaggle", "synsets", "caffe", "devkit"],
)
def test_imagenets_flat_validation_folder(tmp_path: Path, folder: str, files: dict[str, str]) -> None:
    root = write(tmp_path / folder, {**FLAT, **files})
    if "devkit" in str(files):  # its classes have another order than their ids
        synsets = np.array(
            [((number, wnid),) for number, wnid in ((1, "n03"), (2, "n02"), (3, "n01"), (1001, "n00"))],
            dtype=[("row", [("ILSVRC2012_ID", "i4"), ("WNID", "O")])],
        )["row"]
        scipy.io.savemat(root / "ILSVRC2012_devkit_t12/data/meta.mat", {"synsets": synsets.reshape(-1, 1)})
    expected = [(f"val/ILSVRC2012_val_0000000{n}.JPEG", c) for n, c in enumerate(CLASSES_OF_FLAT, 1)]
    pair = open_dataset("imagenet", tmp_path)
    assert listed(pair, root)[1] == expected
    assert pair[0].classes == pair[1].classes == ("n01", "n02", "n03")
    assert listed(open_dataset(str(root)), root)[1] == expected  # recognized without its name


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "val: .*no class folders.*LOC_val_solution.csv, .*ground_truth.txt"),
        ({"LOC_val_solution.csv": "ImageId,PredictionString\nILSVRC2012_val_00000001,n01 1 2 3 4\n"}, "00000002.JPEG"),
        ({"imagenet_2012_validation_synset_labels.txt": "n01\nn09\nn01\nn02\n"}, "'n09'.*train"),
        ({"imagenet_2012_validation_synset_labels.txt": "n01\n"}, "1 lines.*image number 4"),
        ({"LOC_val_solution.csv": "a,b\n1,2\n"}, "malformed"),
        ({"ILSVRC2012_validation_ground_truth.txt": "1\n"}, "meta.mat"),
    ],
)
def test_a_flat_validation_folder_without_classes_is_one_line(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    write(tmp_path / "imagenet", {**FLAT, **files})
    with pytest.raises(AutomixError, match=message):
        open_dataset("imagenet", tmp_path)


def test_labels_follow_the_numbers_of_the_files(tmp_path: Path) -> None:
    """Classes without images keep their number."""
    write(tmp_path / "inat2018", INAT)
    train, _ = open_dataset("inat2018", tmp_path)
    assert train.classes == ("wren", "kite", "robin")
    assert isinstance(train, ImageFiles)
    assert train.labels.tolist() == [0, 2, 0]
    write(tmp_path / "inat2017", {name.replace("2018", "2017"): text for name, text in INAT.items()})
    assert len(open_dataset("inat2017", tmp_path)[0]) == 3


def test_boxes_have_exclusive_ends(tmp_path: Path) -> None:
    write(tmp_path / "tiny-imagenet-200", TINY)
    write(tmp_path / "CUB_200_2011", CUB)
    tiny, cub = (open_dataset(name, tmp_path) for name in ("tiny-imagenet", "cub200"))
    assert isinstance(tiny[0], ImageFiles)
    assert isinstance(cub[0], ImageFiles)
    assert tiny[0].boxes is not None
    assert tiny[0].boxes.tolist() == [[0, 10, 64, 59], [63, 2, 64, 50], [0, 0, 64, 64]]
    assert cub[0].boxes is not None
    assert cub[0].boxes.tolist() == [[1, 2, 4, 6], [5, 6, 12.5, 14]]
    few = cub[0].subset(classes=1)
    assert few.boxes is not None
    assert few.boxes.tolist() == [[1, 2, 4, 6]]


def test_boxes_of_pets_are_read_from_their_masks_when_asked_for(tmp_path: Path) -> None:
    root = write(tmp_path / "oxford-iiit-pet", PETS)
    names = ("Egyptian_Mau_10", "beagle_1", "beagle_2", "Egyptian_Mau_7")
    write(root, {f"images/{name}.jpg": "7 5 100" for name in names})
    train, test = open_dataset("pets", tmp_path)
    assert isinstance(train, ImageFiles)
    assert isinstance(test, ImageFiles)
    assert train.boxes is None
    assert load_images(root)[0].boxes is None  # no mask is there to be read
    with pytest.raises(BadImage, match=r"trimaps.*Egyptian_Mau_10.png: cannot be read") as error:
        train.with_boxes()
    one_line(error)
    trimap = np.full((5, 7), 2, dtype=np.uint8)
    trimap[1:4, 3:5] = 1
    trimap[3, 2] = 3  # the border belongs to the animal
    (root / "annotations" / "trimaps").mkdir()
    Image.fromarray(trimap).save(root / "annotations" / "trimaps" / "Egyptian_Mau_10.png")
    Image.fromarray(np.full_like(trimap, 2)).save(root / "annotations" / "trimaps" / "beagle_1.png")
    boxed = train.with_boxes()
    assert boxed.boxes is not None
    assert boxed.boxes.tolist() == [[2, 1, 5, 4], [0, 0, 0, 0]]
    assert boxed.with_boxes() is boxed
    assert np.array_equal(train.read_mask(0), trimap != 2)
    assert np.array_equal(train.take(torch.tensor([1, 0])).read_mask(1), trimap != 2)
    first = train.subset(classes=1)
    assert first.classes == ("beagle",)
    assert not first.read_mask(0).any()
    Image.new("RGB", (7, 5)).save(root / "annotations" / "trimaps" / "beagle_2.png")
    with pytest.raises(BadImage, match=r"beagle_2.png: a trimap must have 1 channel, got 3"):
        test.with_boxes()
    with pytest.raises(AutomixError, match="masks must be known"):
        replace(train, masks=None).read_mask(0)


@pytest.mark.parametrize(
    ("name", "folder", "files", "missing"),
    [
        ("tiny-imagenet", "tiny-imagenet-200", TINY, "train/n02/n02_boxes.txt"),
        ("tiny-imagenet", "tiny-imagenet-200", TINY, "val/val_annotations.txt"),
        ("cub200", "CUB_200_2011", CUB, "bounding_boxes.txt"),
        ("inat2018", "inat2018", INAT, "val2018.json"),
        ("places205", "places205", PLACES, "trainvalsplit_places205/val_places205.csv"),
        ("aircraft", "fgvc-aircraft-2013b", AIRCRAFT, "data/images_variant_test.txt"),
        ("pets", "pets", PETS, "annotations/test.txt"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, name: str, folder: str, files: dict[str, str], missing: str) -> None:
    write(tmp_path / folder, files)
    (tmp_path / folder / missing).unlink()
    with pytest.raises(AutomixError, match="not found; expected") as error:
        open_dataset(name, tmp_path)
    assert one_line(error).startswith(str(tmp_path / folder / missing))


@pytest.mark.parametrize(
    ("name", "folder", "files", "damaged"),
    [
        ("tiny-imagenet", "tiny-imagenet-200", TINY, {"train/n02/n02_boxes.txt": "n02_0.JPEG\t0\tten\t63\t63\n"}),
        ("cub200", "CUB_200_2011", CUB, {"images.txt": "1\n"}),
        ("pets", "oxford-iiit-pet", PETS, {"annotations/test.txt": "beagle_2 five 2 3"}),
        ("pets", "oxford-iiit-pet", PETS, {"annotations/test.txt": "beagle_2\n"}),
        ("inat2018", "inat2018", INAT, {"val2018.json": "{"}),
        ("inat2018", "inat2018", INAT, {"val2018.json": '{"images": []}'}),
    ],
)
def test_a_malformed_file_is_one_line(
    tmp_path: Path, name: str, folder: str, files: dict[str, str], damaged: dict[str, str]
) -> None:
    write(tmp_path / folder, files | damaged)
    with pytest.raises(AutomixError, match=f"{folder}.*malformed") as error:
        open_dataset(name, tmp_path)
    one_line(error)


# --- CIFAR -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("cifar10", "cifar-10-batches-py"),
        ("cifar10", "cifar10/cifar-10-batches-py"),
        ("cifar100", "cifar-100-python"),
        ("cifar100", "cifar100/cifar-100-python"),
    ],
)
def test_cifar_from_its_python_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: str) -> None:
    kind = {"cifar10": torchvision.datasets.CIFAR10, "cifar100": torchvision.datasets.CIFAR100}[name]
    root = tmp_path / folder
    root.mkdir(parents=True)
    pixels = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
    key = "labels" if name == "cifar10" else "fine_labels"
    for file, _ in kind.train_list + kind.test_list:
        (root / file).write_bytes(pickle.dumps({"data": pixels.flatten(1).numpy(), key: [3, 1, 0, 2]}))
    (root / kind.meta["filename"]).write_bytes(pickle.dumps({kind.meta["key"]: ["a", "b", "c", "d"]}))
    with pytest.raises(AutomixError, match="not found or corrupted; expected the official python files") as error:
        open_dataset(name, tmp_path)
    one_line(error)
    monkeypatch.setattr(kind, "train_list", [[file, None] for file, _ in kind.train_list])
    monkeypatch.setattr(kind, "test_list", [[file, None] for file, _ in kind.test_list])
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": None})
    train, test = open_dataset(name, tmp_path)
    assert isinstance(train, ImageSet)
    assert isinstance(test, ImageSet)
    assert len(train) == 4 * len(kind.train_list)
    assert torch.equal(test.images, pixels)
    assert test.labels.tolist() == [3, 1, 0, 2]
    assert test.classes == ("a", "b", "c", "d")
    streamed = open_data(
        name, Augmentation(train_size=80, crop="none", flip=False), root=tmp_path, batch_size=4, workers=0
    )
    assert next(iter(streamed.loader.test_batches()))[1].tolist() == [3, 1, 0, 2]
    loader = open_data(f"torch/{name}", Augmentation(train_size=32), root=root.parent, batch_size=4, workers=0).loader
    x, y = next(iter(loader.test_batches()))
    torch.testing.assert_close(x, (pixels / 255 - loader.mean.view(3, 1, 1)) / loader.std.view(3, 1, 1))
    assert y.tolist() == [3, 1, 0, 2]


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_without_test_set_holds_every_fifth_image_of_a_class_out(tmp_path: Path) -> None:
    files = {f"{name}/{i}.png": f"8 8 {i}" for name, count in (("bird", 10), ("cat", 11)) for i in range(count)}
    first, second = open_dataset(str(write(tmp_path, files))), open_dataset(str(tmp_path))
    train, test = listed(first, tmp_path)
    assert listed(second, tmp_path) == [train, test]
    assert sorted(train + test) == sorted((path, path.split("/")[0]) for path in files)
    assert [name for _, name in test] == ["bird"] * 2 + ["cat"] * 3
    assert [path for path, _ in test] != [f"bird/{i}.png" for i in (0, 5)] + [f"cat/{i}.png" for i in (0, 5, 10)]
    (tmp_path / "dog").mkdir()
    write(tmp_path, {"dog/0.png": "8 8 0"})
    with pytest.raises(AutomixError, match="dog: only one image"):
        open_dataset(str(tmp_path))


@pytest.mark.skipif(os.name != "posix", reason="no named pipes here")
def test_named_pipes_are_not_listed_and_not_opened(tmp_path: Path) -> None:
    """Opening one would wait for a writer for ever."""
    files = {f"{split}/{name}/0.png": "8 8 0" for split in ("train", "test") for name in ("bird", "cat")}
    root = write(tmp_path, files)
    os.mkfifo(root / "train" / "bird" / "1.png")
    (root / "train" / "cat" / "1.png").symlink_to(root / "train" / "bird" / "1.png")
    pair = open_dataset(str(root))
    assert [path for part in listed(pair, root) for path, _ in part] == list(files)
    assert len(load_images(root)[0]) == 2
    with pytest.raises(BadImage, match=r"1\.png: .*not a regular file"):
        read_image(root / "train" / "bird" / "1.png")
    write_shard(root / "shards" / "train.tar", {"0": (0, "0")})
    write_shard(root / "shards" / "val.tar", {"0": (0, "0")})
    os.mkfifo(root / "shards" / "train-1.tar")
    assert len(open_dataset(f"wds/{root / 'shards'}")[0]) == 1


def test_loops_of_links_do_not_repeat_images(tmp_path: Path) -> None:
    files = {f"{name}/{i}.png": f"8 8 {i}" for name in ("bird/a", "bird/b", "cat") for i in range(4)}
    root = write(tmp_path / "pets", files)
    expected = listed([list_classes(root)], root)
    (root / "bird" / "self").symlink_to(root / "bird")
    (root / "bird" / "a" / "b again").symlink_to(root / "bird" / "b")
    (root / "cat" / "parent").symlink_to(root)
    (root / "cat" / "above").symlink_to(tmp_path)
    (root / "cat" / "endless").symlink_to("endless")
    assert listed([list_classes(root)], root) == expected


def test_links_to_folders_elsewhere_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"0.png": "8 8 0", "1.png": "8 8 1"})
    root = write(tmp_path / "pets", {"bird/0.png": "8 8 0"})
    (root / "bird" / "more").symlink_to(tmp_path / "elsewhere")
    (root / "cat").symlink_to(tmp_path / "elsewhere")
    names = [("bird/0.png", "bird"), ("bird/more/0.png", "bird"), ("bird/more/1.png", "bird")]
    assert listed([list_classes(root)], root) == [[*names, ("cat/0.png", "cat"), ("cat/1.png", "cat")]]


def test_class_folders_are_listed_as_by_torchvision(tmp_path: Path) -> None:
    names = ("b/10.png", "b/2.PNG", "b/sub/1.jpg", "b-/z.png", "B/0.png", "a/notes.txt", "a/x/y/0.png", "a/x.png")
    root = write(tmp_path, dict.fromkeys(names, "8 8 0"))
    theirs = torchvision.datasets.ImageFolder(str(root))
    ours = list_classes(root)
    assert ours.classes == tuple(theirs.classes)
    assert list(zip(ours.paths, ours.labels.tolist(), strict=True)) == theirs.samples


def test_photos_keep_their_proportions_in_memory(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(256, size=(40, 64, 3), dtype=np.uint8)
    for split in ("train", "validation"):
        (tmp_path / split / "cat").mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / split / "cat" / "0.png")
    train, _ = load_images(tmp_path, image_size=20)
    whole = TF.resize(Image.fromarray(pixels), [20, 32], TF.InterpolationMode.BICUBIC)
    assert torch.equal(train.images[0], TF.pil_to_tensor(whole)[:, :, 6:26])


def test_in_memory_keeps_the_order(tmp_path: Path) -> None:
    files = {f"{split}/cat/{i:03d}.png": f"4 4 {i}" for split in ("train", "test") for i in range(200)}
    train, _ = load_images(write(tmp_path, files))
    assert train.images[:, 0, 0, 0].tolist() == list(range(200))


# --- timm's readers --------------------------------------------------------------------------------------------------


def write_tar(path: Path, names: tuple[str, ...], start: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for value, name in enumerate(names, start):
            content = io.BytesIO()
            Image.new("RGB", (8, 8), (value, value, value)).save(content, format="PNG")
            info = tarfile.TarInfo(name)
            info.size = len(content.getvalue())
            content.seek(0)
            tar.addfile(info, content)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # timm's reader leaves closing to the collector
@pytest.mark.parametrize("many", [False, True])
def test_tar_files_are_streamed_with_any_number_of_workers(tmp_path: Path, many: bool) -> None:
    if many:
        for shard in range(2):
            names = (f"bird/{shard}.png", f"cat/{shard}.png")
            write_tar(tmp_path / "train" / f"{shard}.tar", names, start=10 * shard)
            write_tar(tmp_path / "val" / f"{shard}.tar", names, start=10 * shard)
        values = {10: 0, 0: 0, 1: 1, 11: 1}
    else:
        write_tar(tmp_path / "train.tar", ("bird/0.png", "cat/0.png", "bird/1.png", "cat/1.png"))
        write_tar(tmp_path / "val.tar", ("bird/0.png", "cat/0.png", "bird/1.png", "cat/1.png"))
        values = {0: 0, 1: 1, 2: 0, 3: 1}
    check_data(str(tmp_path))
    augmentation = Augmentation(crop="none", flip=False)
    data = [open_data(str(tmp_path), augmentation, batch_size=2, workers=workers) for workers in (0, 2)]
    assert data[0].classes == ("bird", "cat")
    assert (data[0].image_size, data[0].train_count, data[0].test_count) == (8, 4, 4)
    (x, y), (x2, y2) = (
        tuple(torch.cat(part) for part in zip(*opened.loader.batches(0, 2), strict=True)) for opened in data
    )
    assert torch.equal(x, x2)
    assert torch.equal(y, y2)
    mean, std = data[0].loader.mean[0], data[0].loader.std[0]
    seen = ((x[:, 0, 0, 0] * std + mean) * 255).round().int().tolist()
    assert dict(zip(seen, y.tolist(), strict=True)) == values
    assert data[0].loader.preview(2)[1].tolist() == [0, 1]
    train, _ = open_dataset(str(tmp_path))
    train.read(0)
    assert len(pickle.loads(pickle.dumps(train))) == 4  # no file stays open, which processes would share
    with pytest.raises(AutomixError, match="classes and per_class need a named dataset or a folder"):
        open_data(str(tmp_path), augmentation, batch_size=2, classes=2)
    with pytest.raises(AutomixError, match=r"balance must be 'none' on data .* got 'sampling'"):
        open_data(str(tmp_path), augmentation, batch_size=2, balance="sampling")
    with pytest.raises(AutomixError, match="can only be streamed"):
        load_images(tmp_path)


@pytest.fixture
def fresh_reader() -> Iterator[None]:
    """timm's reader for Hugging Face remembers the library that it was imported with."""
    yield
    sys.modules.pop("timm.data.readers.reader_hfds", None)


@pytest.mark.usefixtures("fresh_reader")
def test_hugging_face_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm's reader on a stand-in for the library: what it asks for and what we make of it."""

    class Label:
        names = ("cat", "dog")

        def str2int(self, name: str) -> int:
            return self.names.index(name)

    class Split(list[Any]):
        def cast_column(self, *_: Any) -> "Split":
            return self

        info = types.SimpleNamespace(
            features={"label": Label()},
            splits={name: types.SimpleNamespace(num_examples=2) for name in ("train", "test")},
        )

    def load_dataset(path: str, split: str, **_: Any) -> Split:
        if path != "me/pets" or split not in ("train", "test"):
            raise ValueError(f"Unknown split {split!r} of {path}.\nMore lines.")
        picture = io.BytesIO()
        Image.new("RGB", (8, 8)).save(picture, format="PNG")
        rows = [{"image": {"bytes": content, "path": "x"}, "label": 1} for content in (picture.getvalue(), b"broken")]
        return Split(rows)

    stand_in: Any = types.ModuleType("datasets")
    stand_in.load_dataset, stand_in.Image = load_dataset, lambda decode: None
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    train, test = open_dataset("hfds/me/pets", tmp_path)
    assert train.classes == ("cat", "dog")
    assert test.read(0)[1] == 1
    with pytest.raises(AutomixError, match=r"hfds/me/pets: x: cannot be read as an image"):
        test.read(1)
    with pytest.raises(
        AutomixError, match=r"data 'hfds/me/cars', split train: Unknown split 'train' of me/cars"
    ) as error:
        open_dataset("hfds/me/cars", tmp_path)
    one_line(error)


@pytest.mark.usefixtures("fresh_reader")
def test_hugging_face_is_an_optional_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        AutomixError, match=r"'hfds/some/set' needs a package that is not installed: .*datasets"
    ) as error:
        open_dataset("hfds/some/set", tmp_path)
    one_line(error)


def write_shard(path: Path, samples: dict[str, tuple[int, str | None]]) -> None:
    """Images of one gray value, and what their labels' files contain."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for key, (value, label) in samples.items():
            picture = io.BytesIO()
            Image.new("RGB", (8, 8), (value, value, value)).save(picture, format="PNG")
            files = {f"{key}.png": picture.getvalue()} | ({} if label is None else {f"{key}.cls": label.encode()})
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def test_webdataset_shards_are_read_by_position(tmp_path: Path) -> None:
    root = tmp_path / "pets"
    write_shard(root / "pets-train-0000.tar", {"a/0": (10, "2"), "a/1": (11, "0\n")})
    write_shard(root / "pets-train-0001.tar", {"0": (12, "1"), "1": (13, "1")})
    write_shard(root / "pets-validation-0000.tar", {"0": (14, "0"), "1": (15, "2")})
    check_data("wds/pets", tmp_path)
    check_data(f"wds/{root}")
    data = open_data("wds/pets", Augmentation(crop="none"), root=tmp_path, batch_size=2, workers=2)
    assert data.classes == ("0", "1", "2")
    assert (data.train_count, data.test_count, data.image_size) == (4, 2, 8)
    seen: dict[int, int] = {}
    for x, y in data.loader.batches(0, 2):
        values = ((x[:, 0, 0, 0] * data.loader.std[0] + data.loader.mean[0]) * 255).round().int().tolist()
        seen |= dict(zip(values, y.tolist(), strict=True))
    assert seen == {10: 2, 11: 0, 12: 1, 13: 1}
    assert next(iter(data.loader.test_batches()))[1].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("name", "label", "message"),
    [
        ("train", None, "train.tar: image or label of sample 7 is missing"),
        ("train", "cat", "cannot be read as a shard"),
        ("other", "1", "no shards for training"),
    ],
)
def test_wrong_shards_are_refused(tmp_path: Path, name: str, label: str | None, message: str) -> None:
    write_shard(tmp_path / "pets" / f"{name}.tar", {"7": (0, label)})
    write_shard(tmp_path / "pets" / "val.tar", {"8": (0, "0")})
    with pytest.raises(AutomixError, match=message) as error:
        open_dataset("wds/pets", tmp_path)
    one_line(error)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifer100", "data must be one of digits, shapes, cifar10, .*'cifer100'; did you mean 'cifar100'"),
        ("", "data must be one of .* an existing folder, hfds/<name>, torch/<name>, wds/<folder>; got ''"),
        ("no/such/folder", "data must be one of .*'no/such/folder'"),
        ("hfds/", "data must be one of .*'hfds/'"),
        ("wds/shards", "data 'wds/shards': no folder .*shards"),
        ("tfds/mnist", "data 'tfds/mnist' .*use an existing folder, hfds/"),
        ("cub200", "data 'cub200': .*CUB_200_2011.train_test_split.txt not found; get it from https"),
        ("torch/nonsense", "data 'torch/nonsense', split train: Unknown torchvision dataset nonsense"),
    ],
)
def test_wrong_names_are_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(AutomixError, match=message) as error:
        open_dataset(name, tmp_path)
    one_line(error)


def test_check_data_reads_nothing_and_searches_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Any:
        pytest.fail("it is read")

    monkeypatch.setenv("AUTOMIX_DATA", str(tmp_path))
    write(tmp_path / "CUB_200_2011", CUB)
    for name, known in list(DATASETS.items()):
        monkeypatch.setitem(DATASETS, name, replace(known, layout=fail, generate=known.generate and fail))
        if name == "cub200" or known.generate:
            check_data(name)
        else:
            with pytest.raises(AutomixError, match=str(tmp_path)):
                check_data(name)
    with pytest.raises(AutomixError, match="elsewhere"):
        check_data("cub200", tmp_path / "elsewhere")


# --- real images -----------------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(
    ("name", "counts", "file", "label"),
    [
        ("cifar100", (26000, 6000, 100), "test/cockroach/02421.png", "cockroach"),
        ("tiny-imagenet", (10000, 2000, 40), "train/n01443537/images/n01443537_3.JPEG", "goldfish"),
        (
            "cub200",
            (600, 515, 20),
            "images/001.Black_footed_Albatross/Black_Footed_Albatross_0002_55.jpg",
            "Black footed Albatross",
        ),
        ("pets", (1480, 1110, 37), "images/yorkshire_terrier_136.jpg", "yorkshire terrier"),
    ],
)
def test_real_datasets(name: str, counts: tuple[int, int, int], file: str, label: str) -> None:
    """A cut of each dataset: the counts are those of its README."""
    train, test = open_dataset(name)
    assert isinstance(train, ImageFiles)
    assert isinstance(test, ImageFiles)
    assert (len(train), len(test), len(train.classes)) == counts
    assert not set(train.paths) & set(test.paths)
    both = dict(zip(train.paths + test.paths, torch.cat([train.labels, test.labels]).tolist(), strict=True))
    (found,) = [path for path in both if path.endswith(file)]
    assert train.classes[both[found]] == label
    if name == "cifar100":
        return
    train = train.with_boxes()
    assert train.boxes is not None
    for position in range(0, len(train), len(train) // 20):
        image, _ = train.read(position)
        x0, y0, x1, y1 = train.boxes[position].tolist()
        assert 0 <= x0 < x1 <= image.width
        assert 0 <= y0 < y1 <= image.height


@needs_data
def test_pets_are_torchvisions() -> None:
    """Files, labels and segmentations; torchvision knows no boxes."""
    for split, ours in zip(("trainval", "test"), open_dataset("pets"), strict=True):
        theirs = torchvision.datasets.OxfordIIITPet(
            os.environ["AUTOMIX_DATA"], split=split, target_types=["category", "segmentation"]
        )
        assert isinstance(ours, ImageFiles)
        assert [Path(path).name for path in ours.paths] == [path.name for path in theirs._images]
        assert ours.labels.tolist() == theirs._labels
        assert [name.lower() for name in ours.classes] == [name.lower() for name in theirs.classes]
        some = ours.take(torch.arange(0, len(ours), 100)).with_boxes()
        assert some.boxes is not None
        for number, box in enumerate(some.boxes.int().tolist()):
            image, (_, trimap) = theirs[100 * number]
            animal = np.asarray(trimap) != 2
            x0, y0, x1, y1 = box
            assert image.size == trimap.size
            assert animal[y0:y1, x0:x1].sum() == animal.sum()
            assert all(edge.any() for edge in (animal[y0], animal[y1 - 1], animal[:, x0], animal[:, x1 - 1]))
