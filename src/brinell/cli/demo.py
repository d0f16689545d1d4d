"""The demo: every lens on a few photographs, in one run and one report."""

from __future__ import annotations

from brinell.cli.execute import execute
from brinell.run_config import load_config


def run_demo(folder: str) -> None:
    """Run the demo into a folder."""
    execute(load_config({**CONFIG, "out": folder}))


CONFIG = {
    "models": ["efficientnet_lite0", "efficientnet_lite1"],
    "data": {"source": "demo-photos"},
    "lens": {"name": "profile"},
}
