"""One rank of a test in test_detect_train.py, started by torchrun: a few steps on few scenes."""

import os
import sys
from pathlib import Path

from automix.studies.detection import DetectConfig
from automix.studies.detection import train as training
from automix.studies.detection.scenes import draw_scenes


def main(config: str) -> None:
    training.open_detection_data = lambda name, root=None: (draw_scenes(12), draw_scenes(2, seed=1))
    results = training.train_detector(DetectConfig.load(Path(config)))
    if bool(results) != (os.environ["RANK"] == "0"):
        raise SystemExit("only the main process must have results")


if __name__ == "__main__":
    main(sys.argv[1])
