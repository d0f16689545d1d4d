"""Models that return a vector for each image: as classifiers with a gallery, or compared with the clean image alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from brinell.classes import Classes
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, ModelError
from brinell.models.code import code_digest
from brinell.models.device import select_device
from brinell.models.embedding import Embedder, UnitVectors, embed_gallery, make_head, read_gallery, to_vectors
from brinell.models.exports import weights_fingerprint
from brinell.models.model import Description, Forward, Internals, Model
from brinell.models.modules import fastest_forward, int8_forward, make_facts, torch_forward
from brinell.models.options import select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.models.probe import probe_images, run_first
from brinell.models.quantise import FP8_FACTS, INT8_FACTS, fp8_module
from brinell.models.runtimes import EXPORTED

ONLY = "clean image"  # the class of all images, without a gallery


def embedder_from_module(module: nn.Module, options: ModelOptions, execution: Execution, known: Preprocess) -> Model:
    """Make an embedder from a torch module that takes normalised images and returns a vector for each."""
    description = _describe(options, known)
    device, code = select_device(execution), code_digest(module)
    if options.quantise == "int8":
        unit = UnitVectors(module, description.name)
        forward, fingerprint = int8_forward(unit, description, options, execution)
        facts = make_facts(description, execution, INT8_FACTS, code)
        return make_embedder(forward, description, options, device=device, fingerprint=fingerprint, facts=facts)
    quantised = options.quantise == "fp8"
    module = fp8_module(module) if quantised else module
    fingerprint = weights_fingerprint(module)
    vectors = UnitVectors(module, description.name).eval().requires_grad_(False).to(device, torch.float32)
    running = fastest_forward(vectors, description, fingerprint, execution)
    facts = make_facts(description, execution, running.facts | (FP8_FACTS if quantised else {}), code)
    model = make_embedder(running.forward, description, options, device=device, fingerprint=fingerprint, facts=facts)
    model = replace(model, speed=running.speed, takes=running.takes)
    assert model.embedder is not None
    if model.embedder.head is None:
        return model
    chain = nn.Sequential(vectors, model.embedder.head)
    differentiable = torch_forward(chain, execution) if running.runtime not in EXPORTED else chain
    return replace(model, differentiable=differentiable, internals=Internals(module, differentiable))


def make_embedder(
    run: Forward,
    description: Description,
    options: ModelOptions,
    *,
    device: torch.device,
    fingerprint: str,
    facts: Mapping[str, str],
) -> Model:
    """Make an embedder from a function that returns a vector for each image, and the gallery that the options name."""
    preprocess, name = description.preprocess, description.name

    def embed(images: torch.Tensor) -> torch.Tensor:
        return to_vectors(run(images), name)

    first = run_first(embed, description, probe_images(preprocess).to(device))
    if bool(first.isnan().any()):
        raise ModelError(f"embedder {name} returns NaN for plain images; try --precision fp32, or check its weights")
    embedder, classes = Embedder(embed), Classes((ONLY,))
    if options.gallery is not None:
        gallery = read_gallery(options.gallery)
        vectors = embed_gallery(gallery, embed, preprocess, device)
        embedder = Embedder(embed, make_head(gallery, vectors, options.match or "nearest").to(device))
        classes = Classes(gallery.names)
        content = f"{options.match}{gallery.owners}".encode() + vectors.half().numpy().tobytes()
        fingerprint = hashlib.blake2b(fingerprint.encode() + content, digest_size=8).hexdigest()
        facts = {
            **facts,
            "gallery": f"{len(gallery.files)} images of {len(gallery.names)} classes, {options.match or 'nearest'}",
        }
    head = embedder.head
    return Model(
        name=name,
        forward=(lambda images: head(embed(images)))
        if head is not None
        else (lambda images: embedder.scores(embed(images))),
        preprocess=preprocess,
        device=device,
        fingerprint=fingerprint,
        outputs=len(classes),
        probabilities=head is None,
        classes=classes,
        facts=facts,
        embedder=embedder,
    )


def _describe(options: ModelOptions, known: Preprocess) -> Description:
    check_embedder(options)
    return Description(options.label, options.source, select_preprocess(options, known))


def check_embedder(options: ModelOptions) -> None:
    """Raise for options that embedders don't have."""
    options.is_detector()
    if options.classes is not None:
        raise ConfigError("classes is no option of embedders; their classes are those of ?gallery=FOLDER")
    if options.match is not None and options.gallery is None:
        raise ConfigError("match is an option of galleries; add ?gallery=FOLDER with a folder of images for each class")
