"""Whether a model sees images as it was trained to: other preprocessing tried on a few images (`brinell check`)."""
