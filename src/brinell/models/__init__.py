"""What is asked: classifiers and detectors from torch, ONNX and the model zoos."""
