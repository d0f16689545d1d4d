"""What counts as broken. Importing this package registers every criterion."""

from brinell.criteria import classification, detection  # noqa: F401
