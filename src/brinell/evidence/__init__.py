"""Test records to be filed: a plan that was written before the run, its result, and hashes of all that it rests on."""
