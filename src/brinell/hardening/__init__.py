"""From failures to a better model."""

from brinell.hardening.harden import Hardened, harden
from brinell.hardening.options import HardenConfig, load_harden_config
from brinell.hardening.verdict import Effect, Verdict

__all__ = ["Effect", "HardenConfig", "Hardened", "Verdict", "harden", "load_harden_config"]
