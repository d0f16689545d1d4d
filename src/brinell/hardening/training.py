"""Training: epochs over images, in an order and with changes that are drawn anew for each epoch.

All draws are functions of the seed and the epoch: interrupted after any epoch and resumed, training ends with the same bits
on the same machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

from brinell.draws import key, permutation
from brinell.engine.progress import Reporter
from brinell.engine.shards import one_ahead
from brinell.errors import RunError
from brinell.hardening.augment import Augmentation
from brinell.hardening.checkpoints import Epoch, TrainingState, load_kept, load_last, save_kept, save_last
from brinell.hardening.images import ModelInputs
from brinell.hardening.options import TrainingOptions
from brinell.hardening.recipes import NORMS, Network, trains
from brinell.models.modules import DTYPES
from brinell.models.tf32 import tf32
from brinell.runs.store import Store

VALIDATION = 256  # batch size
EVERY = 20.0  # seconds between reports within an epoch
Batch = tuple[Tensor, Tensor, Tensor]  # numbers of images, stored inputs, and inputs with random changes


def split_evenly(numbers: Tensor, batch: int) -> list[Tensor]:
    """Return batches of about `batch` numbers, whose sizes differ by at most one.

    A small last batch would undo much of an epoch, by its noisy step and its effect on batch norms.
    """
    count = max(1, math.ceil(len(numbers) / batch))
    if batch > 1 and len(numbers) // count < 2:  # a batch norm needs two images
        count = max(1, count - 1)
    return list(torch.tensor_split(numbers, count))


@dataclass(frozen=True)
class Training:
    """Everything that training needs."""

    network: Network
    images: ModelInputs
    validation: ModelInputs
    augmentation: Augmentation
    options: TrainingOptions
    seed: int

    def order(self, epoch: int) -> list[Tensor]:
        """Return the batches of an epoch: numbers of images, each image once."""
        numbers = torch.tensor(permutation(len(self.images), key(self.seed, "order", epoch)), dtype=torch.int64)
        return split_evenly(numbers, self.options.batch)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch: numbers, stored inputs, and inputs with random changes, on the device."""
        for rows, inputs in one_ahead(lambda rows: (rows, self.images.select(rows)), self.order(epoch)):
            yield rows, inputs, self.augment(rows, inputs, str(epoch))

    def augment(self, rows: Tensor, inputs: Tensor, when: str, *, always: bool = False) -> Tensor:
        """Return inputs, with random changes of the clean ones."""
        clean = self.images.clean[rows].nonzero()[:, 0]
        if len(clean) == len(rows):
            return self.augmentation(inputs, self.images.ids[rows], when, always=always)
        there = clean.to(inputs.device)
        made = self.augmentation(inputs[there], self.images.ids[rows[clean]], when, always=always)
        return inputs.index_copy(0, there, made)


def train(training: Training, store: Store, reporter: Reporter) -> TrainingState:
    """Train from the last checkpoint to the end, and leave the network with the weights to keep."""
    network, options = training.network, training.options
    optimiser, scaler = make_optimiser(training)
    chooses = options.keep == "best" or options.floor is not None
    state = load_last(store, network.module, optimiser, scaler)
    with deterministic():
        if state is None:
            state = TrainingState([Epoch(0, None, None, *_validate(training))])
            reporter.say(_describe(state.epochs[0], options.epochs))
            if chooses:
                save_kept(store, network.module)
        while not state.done and len(state.epochs) <= options.epochs:
            _train_epoch(training, optimiser, scaler, state, reporter)
            _decide(state, options)
            if chooses and state.kept == state.epochs[-1].epoch:
                save_kept(store, network.module)
            save_last(store, network.module, optimiser, scaler, state)
        if chooses:
            load_kept(store, network.module)
    network.module.eval()
    return state


def _train_epoch(
    training: Training,
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    state: TrainingState,
    reporter: Reporter,
) -> None:
    """Train one epoch and add it to the state."""
    number, options, began = len(state.epochs), training.options, time.monotonic()
    advance = reporter.stage(f"epoch {number} of {options.epochs}", len(training.images), "images")
    device = training.images.device
    loss_sum, right = torch.zeros((), device=device), torch.zeros((), device=device)
    batches, seen, last = len(training.order(number)), 0, began
    set_training_mode(training.network.module, options)
    with seeded(key(training.seed, "dropout", number), device):
        for index, (rows, inputs, images) in enumerate(training.batches(number)):
            for group in optimiser.param_groups:
                group["lr"] = rate_at(options, number - 1 + index / batches)
            loss, correct = take_step(training, (rows, inputs, images), optimiser, scaler, number)
            loss_sum += loss * len(rows)
            right += correct
            advance(len(rows))
            seen += len(rows)
            if time.monotonic() - last > EVERY:  # rarely: reading the loss makes an accelerator wait
                last = time.monotonic()
                reporter.say(
                    f"epoch {number}: loss {float(loss_sum) / seen:.4f}, accuracy {float(right) / seen:.1%} so far"
                )
    count = len(training.images)
    loss_mean, accuracy = float(loss_sum) / count, float(right) / count
    if not math.isfinite(loss_mean):
        raise RunError(
            f"the loss is not finite in epoch {number}; lower training.rate, or set training.precision to fp32 or bf16"
        )
    epoch = Epoch(number, loss_mean, accuracy, *_validate(training), round(time.monotonic() - began, 2))
    state.epochs.append(epoch)
    reporter.say(_describe(epoch, options.epochs))


def take_step(
    training: Training, batch: Batch, optimiser: torch.optim.Optimizer, scaler: torch.amp.GradScaler, epoch: int
) -> tuple[Tensor, Tensor]:
    """Train on a batch; return its loss and the number of images that were right."""
    (rows, inputs, images), options, device = batch, training.options, training.images.device
    labels = training.images.labels[rows].to(device, non_blocking=True)
    optimiser.zero_grad(set_to_none=True)
    with tf32(options.precision == "tf32"):
        with _autocast(options, device):
            loss, scores = _loss(training, rows, inputs, images, labels, epoch)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    scaler.step(optimiser)
    scaler.update()
    return loss.detach(), (scores.detach().argmax(1) == labels).sum()


def _loss(
    training: Training, rows: Tensor, inputs: Tensor, images: Tensor, labels: Tensor, epoch: int
) -> tuple[Tensor, Tensor]:
    """Return the loss of a batch, and its logits."""
    weight = training.augmentation.options.consistency
    if not weight:
        scores = training.network.scores(images).to(torch.float32)
        return cross_entropy(scores, labels), scores
    changed = [training.augment(rows, inputs, f"{epoch}/{way}", always=True) for way in ("first", "second")]
    every = training.network.scores(torch.cat([inputs, *changed])).to(torch.float32)
    logs = every.log_softmax(1).view(3, len(rows), -1)
    middle = torch.logsumexp(logs, 0) - math.log(3)
    apart = torch.stack([kl_div(middle, one, reduction="batchmean", log_target=True) for one in logs]).mean()
    return cross_entropy(every[: len(rows)], labels) + weight * apart, every[: len(rows)]


def _decide(state: TrainingState, options: TrainingOptions) -> None:
    """Decide which epoch to keep, and whether training is done."""
    first, last = state.epochs[0], state.epochs[-1]
    if options.floor is not None and first.clean is not None and last.clean is not None:
        lowest = first.clean - options.floor / 100
        if last.clean < lowest - 1e-9:
            state.done = True
            state.reason = (
                f"clean accuracy dropped below the floor in epoch {last.epoch} ({last.clean:.1%} < {lowest:.1%}); "
                f"epoch {state.kept} is kept"
            )
            return
    best = state.epochs[state.kept]
    if options.keep == "last" or _quality(last) > _quality(best):
        state.kept = last.epoch
    state.done = last.epoch >= options.epochs


def _quality(epoch: Epoch) -> float:
    """Return what is maximised: accuracy on changed validation images, or else on clean ones."""
    return next((value for value in (epoch.changed, epoch.clean) if value is not None), float(epoch.epoch))


def _validate(training: Training) -> tuple[float | None, float | None]:
    """Return the accuracy on clean validation images, and on changed ones: failures, and clean ones with changes."""
    images = training.validation
    clean, failing = images.clean.nonzero()[:, 0], (~images.clean).nonzero()[:, 0]
    right = find_right(training, clean, None)
    changed = [find_right(training, failing, None)]
    if training.augmentation.changes:
        changed.append(find_right(training, clean, "validation"))
    both = torch.cat(changed)
    return (float(right.mean()) if len(right) else None), (float(both.mean()) if len(both) else None)


def find_right(training: Training, rows: Tensor, when: str | None) -> Tensor:
    """Return 1 for each validation image that is right, else 0."""
    validation, network = training.validation, training.network
    network.module.eval()
    found = [torch.zeros(0)]
    with torch.no_grad(), tf32(training.options.precision == "tf32"), _autocast(training.options, validation.device):
        for part in torch.split(rows, VALIDATION):
            if not len(part):
                continue
            images = validation.select(part)
            if when is not None:
                images = training.augmentation(images, validation.ids[part], when, always=True)
            found.append((network.scores(images).argmax(1).cpu() == validation.labels[part]).to(torch.float32))
    return torch.cat(found)


def rate_at(options: TrainingOptions, epochs: float) -> float:
    """Return the learning rate after a number of epochs."""
    if options.schedule == "cosine":
        return options.rate * (1 + math.cos(math.pi * epochs / options.epochs)) / 2
    if options.schedule == "halve":
        return float(options.rate * 0.5 ** (int(epochs) // options.halve))
    return options.rate


def make_optimiser(training: Training) -> tuple[torch.optim.Optimizer, torch.amp.GradScaler]:
    """Return the optimiser of the weights that train, and what scales the loss in fp16."""
    weights = [value for value in training.network.module.parameters() if value.requires_grad]
    scaler = torch.amp.GradScaler(training.images.device.type, enabled=training.options.precision == "fp16")
    return _optimiser(weights, training.options), scaler


def _optimiser(weights: list[nn.Parameter], options: TrainingOptions) -> torch.optim.Optimizer:
    if options.optimiser == "sgd":
        return torch.optim.SGD(weights, options.rate, options.momentum, weight_decay=options.weight_decay)
    kind = torch.optim.AdamW if options.optimiser == "adamw" else torch.optim.Adam
    return kind(weights, options.rate, (options.momentum, 0.999), weight_decay=options.weight_decay)


def set_training_mode(module: nn.Module, options: TrainingOptions) -> None:
    """Switch to training mode, except for batch norms that don't train."""
    module.train()
    for part in module.modules():
        if isinstance(part, NORMS) and (options.batch_norm == "frozen" or not trains(part)):
            part.eval()


def _autocast(options: TrainingOptions, device: torch.device) -> torch.autocast:
    """Return a context of mixed precision, if the options ask for it; weights stay in fp32."""
    dtype = DTYPES[options.precision]
    return torch.autocast(device.type, dtype if dtype != torch.float32 else None, enabled=dtype != torch.float32)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Make a network's own draws, such as dropout, depend on the seed alone."""
    with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"):
        torch.manual_seed(seed)  # noqa: TID251  # dropout can't be given its draws
        yield


@contextmanager
def deterministic() -> Iterator[None]:
    """Use deterministic algorithms of cuDNN."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


def _describe(epoch: Epoch, epochs: int) -> str:
    """Return an epoch in a line."""
    parts = [] if epoch.loss is None else [f"loss {epoch.loss:.4f}", f"accuracy {epoch.accuracy:.1%}"]
    parts += [
        f"{what} {value:.1%}"
        for what, value in (("clean validation", epoch.clean), ("changed validation", epoch.changed))
        if value is not None
    ]
    where = f"epoch {epoch.epoch} of {epochs}" if epoch.epoch else "before training"
    return f"{where}: {', '.join(parts) or 'no validation images'}" + (f" ({epoch.seconds:.1f} s)" if epoch.seconds else "")
