"""`automix datasets`: the datasets that have a name."""

from automix.cli._output import print_table


def datasets() -> None:
    """List the datasets that have a name.

    A named dataset is read from --data-root, AUTOMIX_DATA or ./data.
    `automix train` also takes a folder of images: DIR/<class>/*.jpg or
    DIR/{train,test}/<class>/*.jpg.
    """
    from automix.data import DATASETS

    rows = [(name, str(dataset.num_classes), dataset.description) for name, dataset in DATASETS.items()]
    print_table(("dataset", "classes", "about"), rows)
