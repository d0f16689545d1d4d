"""Whether matrix products and convolutions on a GPU may use TF32."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch


class _Tf32:
    """Allows or forbids TF32, which torch uses for convolutions by default, so that fp32 means fp32.

    The setting is global, so it is restored when the last thread leaves.
    """

    def __init__(self) -> None:
        self.inside = 0
        self.before = (False, False)
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def __call__(self, allowed: bool) -> Iterator[None]:
        cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
        with self.lock:
            if self.inside == 0:
                self.before = cudnn.allow_tf32, matmul.allow_tf32
            self.inside += 1
            cudnn.allow_tf32 = matmul.allow_tf32 = allowed
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if self.inside == 0:
                    cudnn.allow_tf32, matmul.allow_tf32 = self.before


tf32 = _Tf32()
