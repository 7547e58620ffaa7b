"""Words that settings of the data accept. They are here, without torch, for the flags of the command line."""

from typing import Literal

BadData = Literal["fail", "skip"]
"""What happens to a file that cannot be read as an image."""

Balance = Literal["none", "sampling", "loss"]
"""How rare classes are treated: images drawn so that classes come equally often, or the loss weighted."""

Caching = Literal["auto", "exact", "off"]
"""Which decoded images are kept: also photographs that are reduced for it, only those as they are, or none."""
