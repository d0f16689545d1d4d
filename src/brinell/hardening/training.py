"""The training itself: epochs over pictures, in an order and under changes that are drawn anew for each.

Stopped after any epoch and begun again, it ends with the same bits, on the same machine: all that is random is a function
of the seed and the epoch.
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
from brinell.hardening.changes import Augmentation
from brinell.hardening.checkpoints import Epoch, Standing, load_kept, load_last, save_kept, save_last
from brinell.hardening.material import Pictures
from brinell.hardening.options import TrainingOptions
from brinell.hardening.recipes import NORMS, Network, trains
from brinell.models.modules import DTYPES, tf32
from brinell.runs.store import Store

VALIDATION = 256  # images a batch
EVERY = 20.0  # seconds after which an epoch says how it goes


def evenly(numbers: Tensor, batch: int) -> list[Tensor]:
    """Batches of about `batch` numbers each, all of one size but for one number.

    A few left over would make a small batch: its noisy step, and what batch norms count over it, undo much of an epoch.
    """
    count = max(1, math.ceil(len(numbers) / batch))
    if batch > 1 and len(numbers) // count < 2:  # a batch norm can't count over one
        count = max(1, count - 1)
    return list(torch.tensor_split(numbers, count))


@dataclass(frozen=True)
class Training:
    """All that training needs."""

    network: Network
    pictures: Pictures
    validation: Pictures
    augmentation: Augmentation
    options: TrainingOptions
    seed: int

    def order(self, epoch: int) -> list[Tensor]:
        """The epoch's batches: numbers of pictures, each picture once."""
        numbers = torch.tensor(permutation(len(self.pictures), key(self.seed, "order", epoch)), dtype=torch.int64)
        return evenly(numbers, self.options.batch)

    def fed(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The epoch's batches: numbers, inputs as they are stored, and as the network sees them, on the device."""
        for rows, inputs in one_ahead(lambda rows: (rows, self.pictures.inputs(rows)), self.order(epoch)):
            yield rows, inputs, self.changed(rows, inputs, str(epoch))

    def changed(self, rows: Tensor, inputs: Tensor, when: str, *, always: bool = False) -> Tensor:
        """Canvases of which the clean ones met changes."""
        clean = self.pictures.clean[rows].nonzero()[:, 0]
        if len(clean) == len(rows):
            return self.augmentation(inputs, self.pictures.ids[rows], when, always=always)
        there = clean.to(inputs.device)
        made = self.augmentation(inputs[there], self.pictures.ids[rows[clean]], when, always=always)
        return inputs.index_copy(0, there, made)


def train(training: Training, store: Store, reporter: Reporter) -> Standing:
    """Train to the end, from where it stood, and leave the network with the weights that are kept."""
    network, options = training.network, training.options
    weights = [value for value in network.module.parameters() if value.requires_grad]
    optimiser, device = _optimiser(weights, options), training.pictures.device
    scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "fp16")
    chooses = options.keep == "best" or options.floor is not None
    standing = load_last(store, network.module, optimiser, scaler)
    with _deterministic():
        if standing is None:
            standing = Standing([Epoch(0, None, None, *_validated(training))])
            reporter.say(_told(standing.epochs[0], options.epochs))
            if chooses:
                save_kept(store, network.module)
        while not standing.done and len(standing.epochs) <= options.epochs:
            _epoch(training, optimiser, scaler, standing, reporter)
            _decide(standing, options)
            if chooses and standing.kept == standing.epochs[-1].epoch:
                save_kept(store, network.module)
            save_last(store, network.module, optimiser, scaler, standing)
        if chooses:
            load_kept(store, network.module)
    network.module.eval()
    return standing


def _epoch(
    training: Training,
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    standing: Standing,
    reporter: Reporter,
) -> None:
    """One epoch, which is added to those that stand."""
    number, options, began = len(standing.epochs), training.options, time.monotonic()
    advance = reporter.stage(f"epoch {number} of {options.epochs}", len(training.pictures), "images")
    device = training.pictures.device
    loss_sum, right = torch.zeros((), device=device), torch.zeros((), device=device)
    batches, seen, last = len(training.order(number)), 0, began
    _training_mode(training.network.module, options)
    with _seeded(key(training.seed, "dropout", number), device):
        for place, (rows, inputs, images) in enumerate(training.fed(number)):
            for group in optimiser.param_groups:
                group["lr"] = rate_at(options, number - 1 + place / batches)
            labels = training.pictures.labels[rows].to(device, non_blocking=True)
            optimiser.zero_grad(set_to_none=True)
            with tf32(options.precision == "tf32"):
                with _mixed(options, device):
                    loss, scores = _loss(training, rows, inputs, images, labels, number)
                scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimiser)
            scaler.update()
            loss_sum += loss.detach() * len(rows)
            right += (scores.detach().argmax(1) == labels).sum()
            advance(len(rows))
            seen += len(rows)
            if time.monotonic() - last > EVERY:  # looking at figures makes an accelerator wait, so it is done rarely
                last = time.monotonic()
                reporter.say(
                    f"epoch {number}: loss {float(loss_sum) / seen:.4f}, accuracy {float(right) / seen:.1%} so far"
                )
    count = len(training.pictures)
    loss_mean, accuracy = float(loss_sum) / count, float(right) / count
    if not math.isfinite(loss_mean):
        raise RunError(
            f"the loss is no number any more in epoch {number}; lower training.rate, or use precision fp32 or bf16"
        )
    told = Epoch(number, loss_mean, accuracy, *_validated(training), round(time.monotonic() - began, 2))
    standing.epochs.append(told)
    reporter.say(_told(told, options.epochs))


def _loss(
    training: Training, rows: Tensor, inputs: Tensor, images: Tensor, labels: Tensor, epoch: int
) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and the scores that it is of."""
    weight = training.augmentation.options.consistency
    if not weight:
        scores = training.network.scores(images).to(torch.float32)
        return cross_entropy(scores, labels), scores
    versions = [training.changed(rows, inputs, f"{epoch}/{way}", always=True) for way in ("first", "second")]
    every = training.network.scores(torch.cat([inputs, *versions])).to(torch.float32)
    logs = every.log_softmax(1).view(3, len(rows), -1)
    middle = torch.logsumexp(logs, 0) - math.log(3)
    apart = torch.stack([kl_div(middle, one, reduction="batchmean", log_target=True) for one in logs]).mean()
    return cross_entropy(every[: len(rows)], labels) + weight * apart, every[: len(rows)]


def _decide(standing: Standing, options: TrainingOptions) -> None:
    """Which epoch is kept, and whether training is over."""
    first, last = standing.epochs[0], standing.epochs[-1]
    if options.floor is not None and first.clean is not None and last.clean is not None:
        lowest = first.clean - options.floor / 100
        if last.clean < lowest - 1e-9:
            standing.done = True
            standing.reason = (
                f"clean accuracy fell below its floor in epoch {last.epoch} ({last.clean:.1%}, the floor is {lowest:.1%}); "
                f"epoch {standing.kept} is kept"
            )
            return
    best = standing.epochs[standing.kept]
    if options.keep == "last" or _quality(last) > _quality(best):
        standing.kept = last.epoch
    standing.done = last.epoch >= options.epochs


def _quality(epoch: Epoch) -> float:
    """What is best: the accuracy on changed validation images, on clean ones where none are changed."""
    return next((value for value in (epoch.changed, epoch.clean) if value is not None), float(epoch.epoch))


def _validated(training: Training) -> tuple[float | None, float | None]:
    """The accuracy on clean validation images, and on changed ones: failures, and clean ones that all met changes."""
    pictures = training.validation
    clean, failing = pictures.clean.nonzero()[:, 0], (~pictures.clean).nonzero()[:, 0]
    right = _right(training, clean, None)
    changed = [_right(training, failing, None)]
    if training.augmentation.changes:
        changed.append(_right(training, clean, "validation"))
    both = torch.cat(changed)
    return (float(right.mean()) if len(right) else None), (float(both.mean()) if len(both) else None)


def _right(training: Training, rows: Tensor, when: str | None) -> Tensor:
    """Whether validation images are answered rightly, 0 or 1 each."""
    pictures, network = training.validation, training.network
    network.module.eval()
    found = [torch.zeros(0)]
    with torch.no_grad(), tf32(training.options.precision == "tf32"), _mixed(training.options, pictures.device):
        for part in torch.split(rows, VALIDATION):
            if not len(part):
                continue
            images = pictures.inputs(part)
            if when is not None:
                images = training.augmentation(images, pictures.ids[part], when, always=True)
            found.append((network.scores(images).argmax(1).cpu() == pictures.labels[part]).to(torch.float32))
    return torch.cat(found)


def rate_at(options: TrainingOptions, epochs: float) -> float:
    """The learning rate after so many epochs."""
    if options.schedule == "cosine":
        return options.rate * (1 + math.cos(math.pi * epochs / options.epochs)) / 2
    if options.schedule == "halve":
        return float(options.rate * 0.5 ** (int(epochs) // options.halve))
    return options.rate


def _optimiser(weights: list[nn.Parameter], options: TrainingOptions) -> torch.optim.Optimizer:
    if options.optimiser == "sgd":
        return torch.optim.SGD(weights, options.rate, options.momentum, weight_decay=options.weight_decay)
    kind = torch.optim.AdamW if options.optimiser == "adamw" else torch.optim.Adam
    return kind(weights, options.rate, (options.momentum, 0.999), weight_decay=options.weight_decay)


def _training_mode(module: nn.Module, options: TrainingOptions) -> None:
    """Training mode, except for batch norms that don't train."""
    module.train()
    for part in module.modules():
        if isinstance(part, NORMS) and (options.batch_norm == "frozen" or not trains(part)):
            part.eval()


def _mixed(options: TrainingOptions, device: torch.device) -> torch.autocast:
    """Half precision where that was asked for; weights stay whole."""
    dtype = DTYPES[options.precision]
    return torch.autocast(device.type, dtype if dtype != torch.float32 else None, enabled=dtype != torch.float32)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let what a network draws itself, such as dropout, depend on the seed alone."""
    with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"):
        torch.manual_seed(seed)  # noqa: TID251  # nobody can hand dropout its draws
        yield


@contextmanager
def _deterministic() -> Iterator[None]:
    """Have cuDNN take the ways that give the same bits again."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


def _told(epoch: Epoch, epochs: int) -> str:
    """An epoch in a line."""
    parts = [] if epoch.loss is None else [f"loss {epoch.loss:.4f}", f"accuracy {epoch.accuracy:.1%}"]
    parts += [
        f"{what} {value:.1%}"
        for what, value in (("clean validation", epoch.clean), ("changed validation", epoch.changed))
        if value is not None
    ]
    where = f"epoch {epoch.epoch} of {epochs}" if epoch.epoch else "before training"
    return f"{where}: {', '.join(parts) or 'no validation images'}" + (f" ({epoch.seconds:.1f} s)" if epoch.seconds else "")
