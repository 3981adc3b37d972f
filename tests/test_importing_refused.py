"""``perfsim calibrate import``: what is refused, in one sentence, with nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from import_command import CSV, imported, nets, nothing_written, own, rows, run, times

__all__ = ["nets"]


def test_a_network_that_is_there_is_replaced_by_force_alone(capsys, tmp_path, nets) -> None:
    file = own(tmp_path / "a.csv")
    imported(capsys, file, nets)
    before = {path.name: path.read_text() for path in nets.iterdir()}
    left, out, err = run(capsys, "calibrate", "import", file, "--name", "ours", "--out", nets)
    assert (left, out) == (2, "") and "is there already; --force replaces it" in err
    assert {path.name: path.read_text() for path in nets.iterdir()} == before
    left, out, err = run(capsys, "calibrate", "import", file, "--name", "10gbe", "--out", nets)
    assert (left, out) == (2, "") and "'10gbe' is a network that ships with perfsim" in err


def test_damaged_lines_are_refused_or_left_out_by_name(capsys, tmp_path, nets) -> None:
    file = own(tmp_path / "a.csv", "all_reduce,4,4,1,536870912,fast")
    left, out, err = imported(capsys, file, nets)
    assert (left, out) == (3, "") and "a.csv, line 18" in err and "'fast'" in err
    assert nothing_written(nets)
    left, out, err = imported(capsys, file, nets, "--skip-bad")
    assert left == 0 and err.startswith("perfsim: left out: ") and "a.csv:18: time" in err
    assert (nets / "ours.toml").is_file()
    _, out, _ = imported(capsys, file, nets, "--skip-bad", "--json")
    assert len(json.loads(out)["skipped"]) == 1


@pytest.mark.parametrize(
    ("more", "left", "message"),
    [
        (("--name", "a/b"), 2, "--name: 'a/b' is no name of a network"),
        (("--name", ""), 2, "--name: '' is no name of a network"),
        (("--name", "100"), 2, "--name: '100' reads as a number"),
        (("--nics-per-node", "0"), 2, "--nics-per-node: 0; at least 1."),
        (("--transport", " "), 2, "--transport: is empty"),
        (("--ranks", "8"), 3, "rank"),
        (
            ("--collective", "all_reduse"),
            2,
            "--collective: no 'all_reduse'; did you mean 'all_reduce'?",
        ),
        (("--gpus-per-node", "0"), 2, "--gpus-per-node: 0 is not a count; at least 1."),
        (("--profiles", "/nowhere"), 2, "/nowhere"),
    ],
)
def test_wrong_options(capsys, tmp_path, nets, more, left, message) -> None:
    found, out, err = imported(capsys, own(tmp_path / "a.csv"), nets, *more)
    assert (found, out) == (left, "")
    assert err.startswith("perfsim: ") and message in err and len(err.splitlines()) == 1
    assert nothing_written(nets)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("nothing to see\n", "holds no measurements in a form that is known"),
        (f"{CSV}\nall_reduce,4,4,1,8,120\n", "measure at least 3 sizes"),
        (f"{CSV}\nall_to_all,4,4,1,8,120\nall_to_all,4,4,1,80,121\n", "measure all_reduce"),
    ],
)
def test_files_that_tell_no_network(capsys, tmp_path, nets, text, message) -> None:
    file = tmp_path / "a.csv"
    if text is not None:
        file.write_text(text)
    left, out, err = imported(capsys, file, nets)
    assert (left, out) == (3, "")
    assert message in err and len(err.splitlines()) == 1
    assert nothing_written(nets)


@pytest.mark.parametrize(
    ("head", "word"),
    [
        ("# gpu: A100\n# library: nccl\n# version: 2.21.5\n", "several versions"),
        ("# gpu: A100\n# library: gloo\n# version: 2.18.3\n", "several libraries"),
        ("# gpu: H100\n# library: nccl\n# version: 2.18.3\n", "several GPUs"),
    ],
)
def test_two_clusters_are_not_one_network(capsys, tmp_path, nets, head, word) -> None:
    """The file of curves says library, version and GPU once."""
    files = own(tmp_path / "a.csv"), own(tmp_path / "b.csv", head=head)
    left, _, err = imported(capsys, files[0], nets, files[1])
    assert left == 2 and word in err and len(err.splitlines()) == 1
    assert nothing_written(nets)


@pytest.mark.parametrize("name", ["ours.toml", "ours.curves.csv"])
def test_a_folder_in_the_way_leaves_nothing_half_written(capsys, tmp_path, nets, name) -> None:
    (nets / name).mkdir(parents=True)
    left, _, err = imported(capsys, own(tmp_path / "a.csv"), nets)
    assert left == 2 and err == f"perfsim: --out: {str(nets / name)!r} is there and is no file.\n"
    assert [path.name for path in nets.iterdir()] == [name]


def test_an_out_that_is_a_file(capsys, tmp_path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("here")
    left, _, err = imported(capsys, own(tmp_path / "a.csv"), blocked)
    assert left == 2 and err.startswith(f"perfsim: --out: {str(blocked)!r} cannot be written")
    assert blocked.read_text() == "here"


def test_what_cannot_be_read_back_leaves_the_old_files(capsys, tmp_path, nets, monkeypatch) -> None:
    from perfsim.calibrate import write_network as network_files
    from perfsim.errors import DataError

    imported(capsys, own(tmp_path / "a.csv"), nets)
    before = {path.name: path.read_text() for path in nets.iterdir()}

    def damaged(path: Path) -> None:
        raise DataError("damaged", path=path)

    monkeypatch.setattr(network_files, "read_network", damaged)
    more = rows("all_gather", times(3, 0.75, 20.0))
    assert imported(capsys, own(tmp_path / "a.csv", *more), nets)[0] == 3
    assert {path.name: path.read_text() for path in nets.iterdir()} == before
