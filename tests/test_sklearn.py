"""automix.Classifier in scikit-learn: its own checks, cross-validation, grid search, a pipeline, files."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import automix

sklearn = pytest.importorskip("sklearn")
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

TINY: dict[str, Any] = {
    "model_options": {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]}, "batch_size": 16, "device": "cpu", "lr": 0.05,
}  # fmt: skip


def tiny(**changes: Any) -> automix.Classifier:
    return automix.Classifier(**{"method": "mixup", "epochs": 2, **TINY, **changes})


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    data = load_digits(n_class=3)
    return data.images[:150], np.array(["zero", "one", "two"])[data.target[:150]]


def test_scikit_learns_own_checks_pass() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = check_estimator(tiny(epochs=6), on_fail=None, on_skip=None)
    failed = {one["check_name"]: str(one["exception"])[:300] for one in done if one["status"] == "failed"}
    assert not failed
    assert sum(one["status"] == "passed" for one in done) > 40


def test_images_and_their_flattened_rows_give_the_same(digits: Any) -> None:
    x, y = digits
    plain = tiny().fit(x, y)
    rows = tiny(image_shape=(8, 8)).fit(x.reshape(len(x), -1), y)
    assert np.array_equal(plain.predict_proba(x), rows.predict_proba(x.reshape(len(x), -1)))
    channels = tiny().fit(x[..., None].repeat(3, axis=3), y)
    assert np.array_equal(plain.predict_proba(x[:5]), channels.predict_proba(x[:5, :, :, None].repeat(3, axis=3)))


def test_it_learns_and_works_in_cross_validation_grids_and_pipelines(digits: Any) -> None:
    x, y = digits
    long = {"epochs": 20, "batch_size": 8}
    scores = cross_val_score(tiny(**long), x, y, cv=2)
    assert scores.min() > 0.6  # a third by chance
    grid = GridSearchCV(tiny(), {"alpha": [0.2, 1.0]}, cv=2, refit=True).fit(x, y)
    assert set(grid.best_params_) == {"alpha"}
    bright = make_pipeline(FunctionTransformer(lambda images: 2 * images), tiny(**long)).fit(x, y)
    assert bright.score(x, y) > 0.6


def test_saved_and_loaded_it_predicts_the_same(digits: Any, tmp_path: Path) -> None:
    x, y = digits
    trained = tiny().fit(x, y)
    trained.save(tmp_path / "digits.safetensors")
    loaded = automix.Classifier.load(tmp_path / "digits.safetensors")
    assert loaded.get_params() == trained.get_params()
    assert np.array_equal(loaded.predict_proba(x), trained.predict_proba(x))
    assert loaded.predict(x[:3]).tolist() == trained.predict(x[:3]).tolist()
    assert b"pickle" not in (tmp_path / "digits.safetensors").read_bytes()[:2000]
    _, card = automix.load_classifier(tmp_path / "digits.safetensors")
    assert card.classes == ("one", "two", "zero")
    copied = pickle.loads(pickle.dumps(trained))  # for joblib's processes
    assert np.array_equal(copied.predict_proba(x), trained.predict_proba(x))


def test_a_folder_is_trained_on_and_scored_on_its_test_images(photos: Path, tmp_path: Path) -> None:
    trained = tiny(recipe="quick", batch_size=6).fit(photos)
    assert trained.classes_.tolist() == ["a", "b", "c"]
    score = trained.score(photos)
    tests = sorted((photos / "test").glob("*/*.png"))
    found = trained.predict([str(path) for path in tests])
    assert score == pytest.approx(np.mean([path.parent.name == name for path, name in zip(tests, found, strict=True)]))
    trained.save(tmp_path / "photos.safetensors")
    predicted = list(automix.predict(tmp_path / "photos.safetensors", tests))
    assert [one.classes[0] for one in predicted] == found.tolist()


def test_the_training_is_that_of_automix_train(photos: Path, tmp_path: Path) -> None:
    """The same settings give the same weights to the bit."""
    trained = tiny(recipe="quick", batch_size=6).fit(photos)
    settings = {"method": "mixup", "recipe": "quick", "epochs": 2, "warmup_epochs": 0, **TINY, "batch_size": 6}
    automix.train(photos, out=str(tmp_path / "run"), workers=0, **settings)
    model, _ = automix.load_classifier(tmp_path / "run")
    for ours, theirs in zip(trained.model_.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
