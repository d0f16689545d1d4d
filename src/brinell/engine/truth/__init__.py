"""The ground truth of images: labels, objects and masks."""
