"""Zero-shot classifiers: two towers, whose text tower turns prompts into a linear head once."""
