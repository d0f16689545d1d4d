"""Fine-tune models on failures and random changes (`brinell harden`)."""
