"""The results of a study as files of docs/results: tables, pictures, and the logs behind them.

    python benchmarks/kept_runs.py page STUDY       runs/bench -> docs/results: *.json, *.png; and the tables of a page
    python benchmarks/kept_runs.py keep STUDY       runs/bench -> docs/results/STUDY-runs.json: the logs of the runs
    python benchmarks/kept_runs.py restore STUDY    the reverse: `automix bench STUDY --report` then has all numbers

STUDY is replica, finetune or label-noise. After `restore`, another machine can continue a grid: the runs in the file
count as finished. A run that two studies share is kept in one file and restored for both.
"""

import json
import sys
from pathlib import Path
from typing import Any

from automix.cli.main import execute
from automix.core.files import write_text
from automix.runs.folder import RunFolder
from automix.studies import EXPERIMENTS
from automix.studies.plan import Grid, plan_jobs

RUNS = Path("runs/bench")
RESULTS = Path(__file__).parent.parent / "docs" / "results"
STUDIES = {name: RESULTS / f"{name}.md" for name in ("replica", "finetune")}
STUDIES["label-noise"] = RESULTS.parent / "label-noise.md"  # a page with more than results
"""Page of each study."""
EVALUATIONS = ("evaluation", "evaluation-student")


def experiments_of(study: str) -> list[str]:
    return [name for name in EXPERIMENTS if name.startswith(study)]


def page(study: str) -> None:
    """Write each experiment's tables between the two comments that name it; the rest of the page is written by hand."""
    path = STUDIES[study]
    text = path.read_text(encoding="utf-8")
    for name in (name for name in experiments_of(study) if f"<!-- {name} -->" in text):
        execute(["bench", name, "--report", "--out", str(RUNS)])
        (RESULTS / f"{name}.json").write_bytes((RUNS / f"{name}.json").read_bytes())
        (RESULTS / f"{name}.png").write_bytes((RUNS / f"{name}.png").read_bytes())
        tables = (RUNS / f"{name}.md").read_text(encoding="utf-8").partition("\n## ")[2].replace("\n## ", "\n### ")
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition(f"<!-- end of {name} -->\n")[2]
        text = f"{before}<!-- {name} -->\n\n### {tables}\n<!-- end of {name} -->\n{after}"
    write_text(path, text)


def keep(study: str) -> None:
    """Keep summary, accuracies by epoch and evaluations of every finished run, besides those kept before."""
    path, kept = kept_file(study), kept_runs(study)
    elsewhere = {name for other in STUDIES if other != study for name in kept_runs(other)}
    for folder in folders_of(study):
        if RunFolder(folder).is_finished and folder.name not in elsewhere:
            kept[folder.name] = log_of(folder)
    lines = [f'"{name}": {json.dumps(content)}' for name, content in sorted(kept.items())]
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(kept)} runs in {path}")


def kept_file(study: str) -> Path:
    return RESULTS / f"{study}-runs.json"


def kept_runs(study: str) -> dict[str, Any]:
    """The logs in the file of a study, by the name of the run folder."""
    path = kept_file(study)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def folders_of(study: str) -> list[Path]:
    """The run folders that the tables of a study are made of."""
    jobs = (job for name in experiments_of(study) for job in plan_jobs(EXPERIMENTS[name], Grid(RUNS, 10)))
    return sorted({job.folder for job in jobs})


def log_of(folder: Path) -> dict[str, Any]:
    records = RunFolder(folder).read_metrics().records
    names = ("step", "kind", "epoch", "student_top1", "teacher_top1")
    epochs = [
        {name: record[name] for name in names if name in record} for record in records if "student_top1" in record
    ]
    content = {"summary": RunFolder(folder).summary(), "epochs": epochs}
    for name in EVALUATIONS:
        if (results := folder / name / "results.json").is_file():
            found = json.loads(results.read_text(encoding="utf-8"))
            content[name] = {evaluator: {"values": entry["values"]} for evaluator, entry in found.items()}
    return content


def restore(study: str) -> None:
    """Write run folders with the files that the tables need; existing runs are not touched."""
    shared = {folder.name for folder in folders_of(study)}
    elsewhere = {name: content for other in STUDIES for name, content in kept_runs(other).items() if name in shared}
    for name, content in (elsewhere | kept_runs(study)).items():
        folder = RUNS / name
        if RunFolder(folder).is_finished:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_text(RunFolder(folder).metrics, "".join(json.dumps(record) + "\n" for record in content["epochs"]))
        for evaluation in content.keys() & set(EVALUATIONS):
            (folder / evaluation).mkdir(exist_ok=True)
            write_text(folder / evaluation / "results.json", json.dumps(content[evaluation]))
        RunFolder(folder).write_summary(content["summary"])


if __name__ == "__main__":
    commands = {"page": page, "keep": keep, "restore": restore}
    if len(sys.argv) != 3 or sys.argv[1] not in commands or sys.argv[2] not in STUDIES:
        sys.exit(f"usage: python benchmarks/kept_runs.py {' | '.join(commands)} {' | '.join(STUDIES)}")
    commands[sys.argv[1]](sys.argv[2])
