"""Imported once by the process that all commands are forks of."""

from __future__ import annotations

from chaos.commands import load_everything

load_everything()
