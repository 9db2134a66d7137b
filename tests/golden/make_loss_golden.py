#!/usr/bin/env python3
"""Writes loss_golden.txt: PyTorch's losses, and the gradients of a quarter of their sums.
tests/kernels/losses/loss_golden_test.cpp checks the kernels with them. Needs torch.
usage: make_loss_golden.py > loss_golden.txt

A case is a line "KIND ROWS COLUMNS NUMBERS...", then each row's loss (each number's for regressions) and the
gradient."""
import torch
from torch.nn import functional


def counted(shape, factor):
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float64) * factor + 11) % 41 - 20).div(8).reshape(shape)


def labels(rows, classes, ignored):
    return torch.tensor([-1 if row % ignored == 1 else row * 7 % classes for row in range(rows)])


def write(kind, x, numbers, losses):
    (losses.sum() / 4).backward()
    print(kind, *x.shape, *numbers)
    for tensor in (losses.detach(), x.grad):
        print(*(f"{value:.8g}" for value in tensor.flatten().tolist()))


for rows, columns, smoothing in ((5, 7, 0.1), (4, 3, 0.5), (6, 2, 0.0), (3, 41, 0.05)):
    x = counted((rows, columns), 37).requires_grad_()
    targets = labels(rows, columns, 3)
    write("cross_entropy", x, (smoothing,),
          functional.cross_entropy(x, targets, ignore_index=-1, label_smoothing=smoothing, reduction="none"))  # fmt: skip
for delta in (0.5, 1.0, 3.0):
    x = counted((5, 6), 37).requires_grad_()
    write("huber", x, (delta,), functional.huber_loss(x, counted((5, 6), 23), delta=delta, reduction="none"))
x = counted((5, 6), 37).requires_grad_()
write("squared", x, (1.0,), functional.mse_loss(x, counted((5, 6), 23), reduction="none"))
for rows, classes, positive, box, of_class, beta in ((6, 3, 2.5, 0.5, 1.5, 1.0), (5, 1, 1.0, 2.0, 1.0, 0.25), (4, 2, 3.0, 0.0, 0.0, 2.0)):
    x = counted((rows, 5 + classes), 37).requires_grad_()
    wanted = labels(rows, classes, 2)
    there = wanted >= 0
    losses = functional.binary_cross_entropy_with_logits(
        x[:, 0], there.double(), pos_weight=torch.tensor(positive, dtype=torch.float64), reduction="none")  # fmt: skip
    boxes = functional.smooth_l1_loss(x[:, 1:5], counted((rows, 4), 23), beta=beta, reduction="none").sum(1)
    classified = functional.cross_entropy(x[:, 5:], wanted, ignore_index=-1, reduction="none")
    write("grid", x, (positive, box, of_class, beta), losses + there * (box * boxes) + of_class * classified)
