"""The catalog: the user's folders come first, and a wrong folder or name is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfsim.data.catalog import Catalog, shipped
from perfsim.errors import RequestError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, so that no ./profiles is found by accident."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profiles(root: Path, *models: str) -> Path:
    (root / "models").mkdir(parents=True)
    for model in models:
        (root / "models" / f"{model}.csv").write_text(str(root))
    return root


def find(catalog: Catalog, name: str) -> Path:
    return catalog.path("models", name, "model", "models")


def test_the_order_is_flag_then_path_then_here_then_shipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = profiles(folder / "flag", "a")
    first = profiles(folder / "first", "a", "b")
    second = profiles(folder / "second", "a", "b", "c")
    here = profiles(folder / "profiles", "a", "b", "c", "d")
    monkeypatch.setenv("PERFSIM_PATH", os.pathsep.join([str(first), "", str(second)]))
    catalog = Catalog(flag)
    assert [find(catalog, name).read_text() for name in "abcd"] == [
        str(part) for part in (flag, first, second)
    ] + [str(here)]
    assert catalog.folders[-1] == shipped()
    assert {"a", "b", "c", "d"} <= set(catalog.files("models"))


def test_without_anything_only_the_shipped_folder_is_searched(folder: Path) -> None:
    assert Catalog().folders == [shipped()]


def test_a_folder_given_twice_is_searched_once(folder: Path) -> None:
    here = profiles(folder / "profiles", "a")
    assert len(Catalog(here).folders) == 2


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_a_flag_that_is_no_folder_is_refused(folder: Path, name: str) -> None:
    (folder / "file").write_text("")
    with pytest.raises(RequestError, match=f"profiles: '{name}' is not a folder"):
        Catalog(name)


def test_a_path_entry_that_is_no_folder_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFSIM_PATH", "nowhere")
    with pytest.raises(RequestError, match="PERFSIM_PATH: 'nowhere' is not a folder"):
        Catalog()


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_flag_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(RequestError, match="profiles is empty; give a folder that holds models"):
        Catalog(name)


@pytest.mark.parametrize("name", ["n" * 5000, "a\0b"])
def test_a_flag_that_can_be_no_path_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(RequestError, match=r"profiles: '.*is not a folder"):
        Catalog(name)
    with pytest.raises(RequestError, match="scenario: no "):
        Catalog().scenario(name)


def test_a_folder_without_data_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "profiles").mkdir()  # found here, not asked for: nothing to say
    assert len(Catalog().folders) == 2
    (folder / "empty").mkdir()
    for name in ("empty", Path()):
        with pytest.raises(RequestError, match=r"profiles: '.*' holds no models/, devices/"):
            Catalog(name)
    monkeypatch.setenv("PERFSIM_PATH", "empty")
    with pytest.raises(RequestError, match="PERFSIM_PATH: 'empty' holds no models/, devices/"):
        Catalog()
    (folder / "empty" / "learning").mkdir()  # a record, which counts in --profiles alone
    with pytest.raises(RequestError, match=r"networks/, nodes/ or measurements/\."):
        Catalog()


@pytest.mark.parametrize("kind", ["models", "nodes", "measurements", "learning", "methods"])
def test_a_folder_with_one_kind_is_enough(folder: Path, kind: str) -> None:
    (folder / "own" / kind).mkdir(parents=True)
    assert Catalog(folder / "own").folders[0] == folder / "own"


@pytest.mark.parametrize(
    ("kind", "name", "file"),
    [
        ("networks", "10gbe", "networks/10gbe.toml"),
        ("devices", "v100", "devices/v100.toml"),
        ("devices", "v100", "devices/v100.anchors.csv"),
        ("devices", "any", "devices/any.kernels.csv"),
    ],
)
def test_a_file_in_place_of_a_shipped_one_is_known(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, file: str
) -> None:
    own = folder / "own" / file
    own.parent.mkdir(parents=True)
    own.write_text("")
    assert Catalog().shadowed(kind, name) is None
    assert Catalog(folder / "own").shadowed(kind, name) == own
    assert Catalog(folder / "own").shadowed(kind, "k80") is None
    monkeypatch.setenv("PERFSIM_PATH", str(folder / "own"))
    assert Catalog(shipped()).shadowed(kind, name) is None  # the shipped one comes first


def test_a_file_of_a_new_name_replaces_nothing(folder: Path) -> None:
    assert Catalog(profiles(folder / "own", "new")).shadowed("models", "new") is None


def test_hidden_files_are_passed_over(folder: Path) -> None:
    assert ".a" not in Catalog(profiles(folder / "own", ".a", "b")).files("models")


@pytest.mark.parametrize(
    "name", ["", "../models/resnet5O", "/etc/passwd", "a\\b", "resnet5O.csv", "n" * 5000, "a\0b"]
)
def test_a_name_that_is_not_there_is_refused(folder: Path, name: str) -> None:
    catalog = Catalog(profiles(folder / "own", "resnet50"))
    with pytest.raises(RequestError, match=r"model: no .*Allowed: .*resnet50"):
        find(catalog, name)


def test_kernel_tables_are_no_devices(folder: Path) -> None:
    devices = folder / "own" / "devices"
    devices.mkdir(parents=True)
    (devices / "v100.toml").write_text("")
    (devices / "v100.kernels.csv").write_text("")
    assert Catalog(folder / "own").files("devices")["v100"] == devices / "v100.toml"
    assert "v100.kernels" not in Catalog(folder / "own").files("devices")


def test_the_shipped_folders_are_there() -> None:
    assert shipped().is_dir() and shipped("scenarios").is_dir()
