"""Add a field of a scenario to this checkout: one entry of the list, one factor in the physics.

``contention`` slows the backward pass down where communication runs beside it, as another process
on the same GPUs would. Flag, TOML key, ``--vary``, JSON, CSV, completion and documentation follow
from the entry; to take the field away again, undo both changes.
"""

import re
from pathlib import Path

ENTRY = """    contention: Annotated[
        float,
        ScenarioField(
            "How many times slower a process of others makes the backward pass (template): 1.5.",
            read_by=("schedule",),
            metavar="FACTOR",
            min=1,
            max=10,
        ),
    ] = 1.0
"""
LIST_END = "\n\n# Checks of single fields"

if __name__ == "__main__":
    listed = Path("perfsim/scenario.py")
    text = listed.read_text(encoding="utf-8")
    if ENTRY not in text:
        entries, end, rest = text.partition(LIST_END)
        listed.write_text(f"{entries}{ENTRY}{end}{rest}", encoding="utf-8")
        for path in Path("perfsim/schedule").glob("*.py"):
            physics = path.read_text(encoding="utf-8")
            read = r"\b(\w*scenario)\.overlap_slowdown\b"
            path.write_text(
                re.sub(read, r"\1.overlap_slowdown * \1.contention", physics), encoding="utf-8"
            )
