"""``perfsim calibrate import``: a network of measured curves, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import perfsim
from perfsim.calibrate.import_logs import import_files
from perfsim.calibrate.write_network import make_network
from perfsim.network.cluster import read_network
from perfsim.network.measured import CollectiveCurve
from perfsim.network.network_file import Noticed
from support.import_command import CSV, imported, nets, nothing_written, own, rows, run, times
from support.measured_texts import FOOT, STARTING, devices, table

__all__ = ["nets"]


def test_both_files_are_written_and_say_what_was_measured(capsys, tmp_path, nets) -> None:
    left, out, err = imported(capsys, own(tmp_path / "a.csv"), nets, "--transport", "tcp")
    assert left == 0
    assert err == f"wrote {nets / 'ours.toml'}\nwrote {nets / 'ours.curves.csv'}\n"
    assert sorted(path.name for path in nets.iterdir()) == ["ours.curves.csv", "ours.toml"]
    network = read_network(nets / "ours.toml")
    assert (network.name, network.transport, network.gpus_per_node) == ("ours", "tcp", 1)
    assert network.links["inter"].rate.value == pytest.approx(2e9, rel=0.01)
    assert network.known is not None
    (curve,) = network.known.curves
    points = times(6, 1.5, 20.0)
    assert curve.size_bytes == tuple(points)
    assert curve.seconds == pytest.approx([one * 1e-6 for one in points.values()], rel=1e-3)
    assert (curve.kind, curve.version, curve.gpu) == ("measured", "2.18.3", "A100")
    assert "Link between nodes\n" in out and "2 GB/s" in out
    assert "ours.toml" not in out


def test_the_command_that_it_prints_predicts(capsys, tmp_path, nets) -> None:
    _, out, _ = imported(capsys, own(tmp_path / "a.csv"), nets)
    command = next(line for line in out.splitlines() if line.startswith("now: perfsim "))
    arguments = command.removeprefix("now: perfsim ").split()
    assert arguments == [
        *("predict", "--model", "resnet50", "--gpus", "4", "--net", "ours"),
        *("--profiles", str(nets.parent)),
    ]
    left, out, err = run(capsys, *arguments, "--json")
    assert left == 0 and err.endswith(" of your own were read.\n")
    found = json.loads(out)
    kinds = {
        (row["kind"], row["extrapolated"])
        for row in found["provenance"]
        if row["term"].startswith("all_reduce on 4 GPUs")
    }
    assert ("measured", False) in kinds
    left, out, _ = run(capsys, *arguments, "--json", "--gpus", "32")
    kinds = {
        (row["kind"], row["extrapolated"])
        for row in json.loads(out)["provenance"]
        if row["term"].startswith("all_reduce on 32 GPUs")
    }
    assert (left, kinds) == (0, {("fitted", True)})


def test_default_folder_is_profiles_networks_here(capsys, tmp_path, monkeypatch) -> None:
    file = own(tmp_path / "a.csv")
    monkeypatch.chdir(tmp_path)
    left, out, _ = run(capsys, "calibrate", "import", file, "--name", "ours")
    assert left == 0 and (tmp_path / "profiles" / "networks" / "ours.toml").is_file()
    assert out.splitlines()[-1] == "now: perfsim predict --model resnet50 --gpus 4 --net ours"
    assert run(capsys, "predict", "--model", "resnet50", "--gpus", "4", "--net", "ours")[0] == 0


def test_a_file_on_trial_is_none_of_the_users(capsys, tmp_path, monkeypatch) -> None:
    """./profiles/networks is there before, so that files of it are the user's own."""
    file = own(tmp_path / "a.csv")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles" / "networks").mkdir(parents=True)
    left, _, err = run(capsys, "calibrate", "import", file, "--name", "ours")
    assert (left, err) == (
        0,
        "wrote profiles/networks/ours.toml\nwrote profiles/networks/ours.curves.csv\n",
    )


def test_a_network_in_any_folder_is_named_by_its_path(capsys, tmp_path) -> None:
    _, out, _ = imported(capsys, own(tmp_path / "a.csv"), tmp_path / "else where")
    command = out.splitlines()[-1]
    assert command == (
        "now: perfsim predict --model resnet50 --gpus 4 --net"
        f" '{tmp_path / 'else where' / 'ours.toml'}'"
    )
    assert run(capsys, *shlex.split(command)[2:])[0] == 0


def test_nccl_tests_text_and_several_files(capsys, tmp_path, nets) -> None:
    """Two nodes of four in a log, one node of four in a table: both links are told."""
    log = tmp_path / "job.log"
    points = tuple(
        (size, 100 + size / 1e3, 100 + size / 1e3) for size in (1024, 2**20, 2**24, 2**26, 2**28)
    )
    log.write_text(STARTING + devices(2, 4) + table(points) + FOOT)
    inside = tmp_path / "inside.csv"
    lines = rows("all_reduce", times(6, 0.15, 3.0), 1, 4)
    inside.write_text("\n".join([CSV, *lines]) + "\n")
    left, _, err = imported(capsys, log, nets, inside)
    assert (left, err.count("\n"), err.count("wrote ")) == (0, 2, 2)
    network = read_network(nets / "ours.toml")
    assert set(network.links) == {"intra", "inter"}
    assert network.gpus_per_node == 4
    # 1000 ns a kB and 2 x 7/8 of the bytes on the wire; inside 2 x 3/4 at a tenth of 2 GB/s.
    assert network.links["inter"].rate.value == pytest.approx(1.75e9, rel=0.02)
    assert network.links["intra"].rate.value == pytest.approx(2e10, rel=0.02)


def test_json_says_the_same(capsys, tmp_path, nets) -> None:
    left, out, _ = imported(capsys, own(tmp_path / "a.csv"), nets, "--json")
    found = json.loads(out)
    assert left == 0
    assert set(found) == {
        *("schema", "name", "network", "curves", "links", "measured", "not_told", "warnings"),
        "skipped",
    }
    assert found["schema"] == "perfsim/calibrate-import/1"
    assert found["network"] == str(nets / "ours.toml")
    assert found["links"]["inter"]["rate_bytes_per_s"] == pytest.approx(2e9, rel=0.01)
    assert found["links"]["inter"]["ranks"] == [4, 4]
    (measured,) = found["measured"]
    assert (measured["collective"], measured["sizes"]) == ("all_reduce", 13)
    assert (measured["from_bytes"], measured["to_bytes"]) == (8, 8 * 4**12)
    assert found["skipped"] == [] and any("gamma" in one for one in found["not_told"])


def test_a_title_of_several_lines_stays_one(capsys, tmp_path, nets) -> None:
    left, _, _ = imported(capsys, own(tmp_path / "a.csv"), nets, "--title", "ours\n# gpu: none\n")
    assert left == 0
    assert read_network(nets / "ours.toml").title == "ours # gpu: none"


def test_full_report_has_each_fit_and_other_words_are_refused(capsys, tmp_path, nets) -> None:
    file = own(tmp_path / "a.csv")
    short = imported(capsys, file, nets)[1]
    full = imported(capsys, file, nets, "--report", "full")[1]
    assert "Shape up to 4 MiB" in short and "\n  Fit\n" not in short
    assert full.count("\n  Fit\n") == 2 and "rate of the link between nodes" in full
    left, out, err = imported(capsys, file, nets, "--report", "fulll")
    assert (left, out) == (2, "") and "--report" in err and "full" in err


def test_files_that_differ_are_warned_of(capsys, tmp_path, nets) -> None:
    """Half and one and a half times the time: a middle that was never measured."""
    first = own(tmp_path / "a.csv")
    second = tmp_path / "b.csv"
    slow = [
        ",".join([*line.split(",")[:5], str(3 * float(line.split(",")[5])), *line.split(",")[6:]])
        if line.startswith("all_reduce")
        else line
        for line in first.read_text().splitlines()
    ]
    second.write_text("\n".join(slow) + "\n")
    left, out, _ = imported(capsys, first, nets, second)
    assert left == 0 and "repeats differ by +-50%" in out


def test_files_that_differ_at_large_sizes_alone_are_warned_of(capsys, tmp_path, nets) -> None:
    """10 and 2 GB/s with one latency: the median over the sizes shows little of it."""
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for path, wire in ((first, 0.3), (second, 1.5)):
        path.write_text("\n".join([CSV, *rows("all_reduce", times(6, wire, 20.0))]) + "\n")
    left, out, _ = imported(capsys, first, nets, second)
    assert left == 0
    assert "repeats differ by +-67% at 134.2 MB, and their middle is taken" in out
    assert "repeats within 7.3% (median), at most 66.5% at 134.2 MB" in out


def test_a_change_that_was_noticed_is_said_first_and_for_a_wrong_unit(
    capsys, tmp_path, nets
) -> None:
    imported(capsys, own(tmp_path / "a.csv"), nets)
    path = nets / "ours.toml"
    slow = re.sub(r'(rate\]\nvalue = )"[^"]*"', r'\1"0.2GB/s"', path.read_text())
    asked = ("predict", "--model", "resnet50", "--gpus", "4", "--gpus-per-node", "1", "--net", path)
    path.write_text(slow)
    told = json.loads(run(capsys, *asked, "--json")[1])["notes"]
    assert any("one of the two has a wrong unit" in note for note in told)
    path.write_text(f'{slow}\n[[noticed]]\nwhat = "change"\ntext = "It changed at 1 MB."\n')
    told = json.loads(run(capsys, *asked, "--json")[1])["notes"]
    assert told[0] == "ours, when it was calibrated: It changed at 1 MB."
    assert not any("wrong unit" in note for note in told)


def test_importing_again_replaces_both_files(capsys, tmp_path, nets) -> None:
    imported(capsys, own(tmp_path / "a.csv"), nets)
    more = rows("all_gather", times(3, 0.75, 20.0))
    assert imported(capsys, own(tmp_path / "a.csv", *more), nets)[0] == 0
    known = read_network(nets / "ours.toml").known
    assert known is not None and len(known.curves) == 2
    assert len(list(nets.iterdir())) == 2


def test_repeats_in_two_files_are_one_curve(capsys, tmp_path, nets) -> None:
    """The second file says nothing of GPU and version; it is of the same cluster."""
    first = own(tmp_path / "a.csv")
    second = own(tmp_path / "b.csv", head="")
    assert imported(capsys, first, nets, second)[0] == 0
    known = read_network(nets / "ours.toml").known
    assert known is not None and len(known.curves) == 1


def test_the_order_of_files_changes_nothing(capsys, tmp_path, nets) -> None:
    """By law: curves with NCCL's own protocol and held ones, in either order, are one network."""
    head = "# gpu: A100\n# library: nccl\n# version: 2.18.3\n"
    first = own(tmp_path / "a.csv", head=head)
    second = own(tmp_path / "b.csv", head=f"{head}# protocol: ll\n")
    third = own(tmp_path / "c.csv", head=f"{head}# protocol: simple\n")
    written = []
    for files in ((first, second, third), (third, second, first)):
        assert imported(capsys, files[0], nets, *files[1:])[0] == 0
        written.append({path.name: path.read_text() for path in nets.iterdir()})
    assert written[0] == written[1]
    assert set(read_network(nets / "ours.toml").links["inter"].protocols) == {"ll", "simple"}


def test_calibrate_and_validate_do_not_reach_up_to_reports() -> None:
    """By law: what computes imports nothing of what prints."""
    package = Path(perfsim.__file__).parent
    files = [*package.glob("calibrate/**/*.py"), *package.glob("validate/**/*.py")]
    assert len(files) > 30
    for file in files:
        assert "perfsim.report" not in file.read_text(), file.name


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
        (("--nics-per-node", "0"), 2, "--nics-per-node: 0 is not allowed: it must be 1 or more."),
        (("--transport", " "), 2, "--transport is empty"),
        (("--ranks", "8"), 3, "rank"),
        (
            ("--collective", "all_reduse"),
            2,
            "--collective: no 'all_reduse'; did you mean 'all_reduce'?",
        ),
        (
            ("--gpus-per-node", "0"),
            2,
            "--gpus-per-node: 0 is not allowed: it must be 1 to 999,999,999.",
        ),
        (("--profiles", "/nowhere"), 3, "/nowhere"),
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


def test_what_calibration_noticed_goes_with_its_curves(tmp_path: Path) -> None:
    noticed = Noticed("stalls", "3 calls stalled.")
    points = times(6, 1.5, 20.0)
    sizes, seconds = tuple(map(float, points)), tuple(one * 1e-6 for one in points.values())
    curve = CollectiveCurve("all_reduce", 4, 4, 1, sizes, seconds, "measured", "a run", gpu="cpu")
    first = make_network([curve], "first", folder=tmp_path, noticed=[noticed])
    assert read_network(first.network).noticed == (noticed,)
    second = import_files([first.curves], "second", folder=tmp_path)
    assert second.noticed == read_network(second.network).noticed == (noticed,)
    assert noticed.text in second.report
    first.network.unlink()
    assert import_files([first.curves], "third", folder=tmp_path).noticed == ()
