"""Models: classifiers and detectors from torch, ONNX files, model zoos and services behind HTTP."""
