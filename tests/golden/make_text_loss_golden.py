#!/usr/bin/env python3
"""Writes text_loss_golden.txt: losses of sentence-transformers and PyTorch, and their gradients.
tests/kernels/texts/text_golden_test.cpp checks the kernels with them. Needs torch and sentence-transformers.
usage: make_text_loss_golden.py > text_loss_golden.txt

A case is a line "KIND EXAMPLES TEXTS COLUMNS SCALE", then the loss, which is the mean over examples except for cosent,
and the gradient of the input. Row e * TEXTS + r of the input is text r of example e: its embedding, or its logits."""
import torch
from sentence_transformers.sentence_transformer.losses import (
    CosineSimilarityLoss, CoSENTLoss, MultipleNegativesRankingLoss, MultipleNegativesSymmetricRankingLoss)  # fmt: skip
from torch.nn import functional


def counted(rows, columns, factor):
    count = torch.arange(rows * columns, dtype=torch.float64)
    return ((count * factor + 11) % 41 - 20).div(8).reshape(rows, columns)


def write(kind, examples, texts, columns, scale, loss_of):
    x = counted(examples * texts, columns, 37).requires_grad_()
    loss = loss_of([x[role::texts] for role in range(texts)])
    loss.backward()
    print(kind, examples, texts, columns, scale)
    print(f"{loss.item():.8g}")
    print(*(f"{value:.8g}" for value in x.grad.flatten().tolist()))


def embedded(loss, labels=None):
    return lambda embeddings: loss.compute_loss_from_embeddings(embeddings, labels)


model = torch.nn.Identity()
scores = torch.tensor([e * 7 % 5 / 4 for e in range(6)], dtype=torch.float64)  # with a tie
for texts, scale in ((2, 20.0), (3, 20.0), (4, 1.0)):
    write("contrastive", 5, texts, 4, scale, embedded(MultipleNegativesRankingLoss(model, scale=scale)))
for texts in (2, 3):
    write("symmetric", 5, texts, 4, 20.0, embedded(MultipleNegativesSymmetricRankingLoss(model, scale=20.0)))
for scale in (20.0, 2.0):
    write("cosent", 6, 2, 4, scale, embedded(CoSENTLoss(model, scale=scale), scores))
write("cosine", 6, 2, 4, 1.0, embedded(CosineSimilarityLoss(model), scores))
write("reward", 6, 2, 1, 1.0, lambda scores: -functional.logsigmoid(scores[0] - scores[1]).mean())
for columns in (1, 3):
    labels = counted(6, columns, 23).abs().div(2.5)
    write("binary", 6, 1, columns, 1.0, lambda x, of=labels: functional.binary_cross_entropy_with_logits(x[0], of))
    write("squared", 6, 1, columns, 1.0, lambda x, of=labels: functional.mse_loss(x[0], of))
