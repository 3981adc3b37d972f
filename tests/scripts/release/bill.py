"""The bill of materials: what perfsim runs on and carries within it, with licences, as CycloneDX.

``python tests/scripts/release/bill.py PYTHON`` lists the packages of an environment that holds
perfsim with the extras that ship (``.[calibrate,report,pandas,app,dask,parquet,png]``, with
PyTorch's CPU build) and writes ``sbom.cdx.json`` beside it. It needs cyclonedx-bom (extra
`release`). ``tests/product/test_release.py`` holds the file against pyproject.toml and what ships.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
BILL = Path(__file__).with_name("sbom.cdx.json")

NOT_OF_USE = ("test", "dev", "release")
"""Extras for those who work on perfsim."""

KEPT = ("type", "name", "version", "purl", "bom-ref", "licenses")
"""What is kept of a package; addresses of its makers and of registries are not."""

LICENCES = {"kaleido": "MIT", "logistro": "MIT", "partd": "BSD-3-Clause"}
"""Licences of packages whose metadata names none: as their source states them."""

VENDORED = {
    "perfsim/report/html/assets/plotly/plotly-basic.min.js": ("plotly.js-basic-dist-min", "MIT"),
}
"""Files of others within the package, by path: their npm package and licence (see NOTICE).

All other style sheets and scripts are perfsim's own; no font ships.
"""


def requirements() -> dict[str, list[str]]:
    """Return the packages that perfsim asks for, each with the parts that ask: base, or extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    parts = {"base": project["dependencies"]}
    parts |= {
        extra: wanted
        for extra, wanted in project["optional-dependencies"].items()
        if extra not in NOT_OF_USE
    }
    found: dict[str, list[str]] = {}
    for part, wanted in parts.items():
        for one in wanted:
            name = normal(re.split(r"[\[<>=!~; ]", one)[0])
            if name != "perfsim":
                found.setdefault(name, []).append(part)
    return found


def normal(name: str) -> str:
    """Return a package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def carried() -> list[dict[str, Any]]:
    """Return the files of others within the package, with their hash and version."""
    found = []
    for path, (name, licence) in VENDORED.items():
        content = (ROOT / path).read_bytes()
        told = re.search(rb"v(\d+\.\d+\.\d+)", content[:400])
        assert told is not None, f"{path} does not say its version"
        version = told[1].decode()
        found.append(
            {
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:npm/{name}@{version}",
                "bom-ref": path,
                "licenses": [{"license": {"id": licence}}],
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
                "properties": [{"name": "perfsim:part", "value": path}],
            }
        )
    return found


def bill(python: str) -> dict[str, Any]:
    """Return the bill of an environment's packages and of the files of others."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bill.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "cyclonedx_py", "environment", python, "--short-PURLs"),
                *("--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"),
                *("--output-format", "JSON", "--output-file", str(out)),
            ],
            check=True,
        )
        made = json.loads(out.read_text())
    asked = requirements()
    components = []
    for one in made["components"]:
        name = normal(one["name"])
        if name in ("perfsim", "pip", "setuptools") and name not in asked:
            continue
        kept = {key: one[key] for key in KEPT if key in one}
        if name in LICENCES and "licenses" not in kept:
            kept["licenses"] = [{"license": {"id": LICENCES[name]}}]
        parts = asked.get(name, ["needed by others"])
        kept["properties"] = [{"name": "perfsim:part", "value": part} for part in parts]
        components.append(kept)
    known = {one["bom-ref"] for one in components}
    return {
        "$schema": made["$schema"],
        "bomFormat": made["bomFormat"],
        "specVersion": made["specVersion"],
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "perfsim",
                "bom-ref": "perfsim",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components + carried(),
        "dependencies": [
            {
                "ref": "perfsim",
                "dependsOn": sorted(
                    one["bom-ref"] for one in components if normal(one["name"]) in asked
                )
                + sorted(VENDORED),
            },
            *(
                {
                    "ref": one["ref"],
                    "dependsOn": [to for to in one.get("dependsOn", []) if to in known],
                }
                for one in made["dependencies"]
                if one["ref"] in known
            ),
        ],
    }


def main() -> None:
    """Write the bill, once CycloneDX's schema allows it."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = json.dumps(bill(sys.argv[1]), indent=1, ensure_ascii=False) + "\n"
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        sys.exit(f"not CycloneDX: {wrong}")
    BILL.write_text(text)


if __name__ == "__main__":
    main()
