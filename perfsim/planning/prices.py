"""What a GPU costs for an hour, as the user's own price table says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfsim.catalog import Catalog
from perfsim.errors import DataError
from perfsim.limits import shown
from perfsim.toml_file import Table, read_toml

__all__ = ["Price", "Prices", "find_prices", "read_prices"]

SCHEMA = "perfsim/prices/1"
FILE = "prices.toml"
KEYS = ("gpu", "net", "per_gpu_hour", "source", "date")


@dataclass(frozen=True, slots=True)
class Price:
    """One GPU for one hour, on one network between nodes or on any ("")."""

    gpu: str
    net: str
    per_gpu_hour: float
    source: str
    date: str


@dataclass(frozen=True)
class Prices:
    """A price table: its currency, its prices and the file."""

    currency: str
    prices: tuple[Price, ...]
    path: Path

    def of(self, gpu: str, net: str) -> Price | None:
        """Return what a GPU costs on a network: its own price there, else that for any network."""
        fitting = [one for one in self.prices if one.gpu == gpu and one.net in (net, "")]
        return max(fitting, key=lambda one: bool(one.net), default=None)


def find_prices(catalog: Catalog, path: Path | None) -> Prices:
    """Return the prices of a file, or of the first prices.toml in the folders of profiles.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    if path is None:
        path = catalog.beside("", "", FILE)
    return Prices("", (), Path(FILE)) if path is None else read_prices(path)


def read_prices(path: Path) -> Prices:
    """Return the prices of a file.

    Raises
    ------
    DataError
        If the file cannot be read, a key is unknown or lacks, or a price is not above zero.
    """
    table = read_toml(path)
    table.only(("schema", "currency", "price"))
    table.check_schema(SCHEMA)
    found = tuple(_price(one) for one in table.tables("price")) if "price" in table.values else ()
    seen = [(one.gpu, one.net) for one in found]
    for one in seen:
        if seen.count(one) > 1:
            told = f"{' on '.join(filter(None, one))} stands twice"
            raise DataError(f"price: {told}", path=path)
    return Prices(table.text("currency").lower(), found, path)


def _price(table: Table) -> Price:
    table.only(KEYS)
    value = table.get("per_gpu_hour")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise table.wrong(
            "per_gpu_hour", f"found {shown(value)}, allowed is a number above zero, below 1e6"
        )
    net = table.text("net") if "net" in table.values else ""
    return Price(table.text("gpu"), net, float(value), table.text("source"), table.text("date"))
