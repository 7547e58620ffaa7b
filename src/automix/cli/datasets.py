"""`automix datasets`: the datasets by name, and where each is looked for."""

from automix.cli._arguments import new_parser, parse
from automix.cli._tables import print_table
from automix.data import DATASETS

ABOUT = """List the datasets that have a name.

Named datasets are looked for in --data-root, AUTOMIX_DATA or ./data. `automix train` also takes a folder of images,
DIR/<class>/*.jpg or DIR/{train,test}/<class>/*.jpg.
"""


def run(arguments: list[str]) -> None:
    parse(new_parser("datasets", "", ABOUT), arguments)
    rows = [(name, str(dataset.num_classes), dataset.about) for name, dataset in DATASETS.items()]
    print_table(("dataset", "classes", "about"), rows)
