"""What counts as broken."""

from brinell.criteria.classification import CRITERIA, Criterion, Verdict, find_criterion, verdict

__all__ = ["CRITERIA", "Criterion", "Verdict", "find_criterion", "verdict"]
