#!/usr/bin/env python3
"""Writes spatial_golden.txt: PyTorch's results and gradients of poolings, upsamplings, group norms and activations.
tests/kernels/convolution/spatial_golden_test.cpp checks the kernels with them. Needs torch.
usage: make_spatial_golden.py > spatial_golden.txt

A case is a line "KIND RANK", the sizes of x (B, D1..Dn, C) and numbers for each dimension or of the kind, then y and
the gradients, all channels last."""
import torch
from torch.nn import functional


def counted(shape, factor):
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float64) * factor + 11) % 41 - 20).div(16).reshape(shape)


def write(kind, x_shape, numbers, forward, parameters=()):
    x = counted(x_shape, 37).requires_grad_()
    weights = [counted((x_shape[-1],), factor).requires_grad_() for factor in parameters]
    y = forward(x.movedim(-1, 1), *weights).movedim(1, -1)
    y.backward(counted(tuple(y.shape), 23))
    print(kind, len(x_shape) - 2)
    print(*x_shape, *numbers)
    for tensor in (y.detach(), x.grad, *(weight.grad for weight in weights)):
        print(*(f"{value:.7g}" for value in tensor.contiguous().flatten().tolist()))


MEANS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
MAXIMA = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
WINDOWS = [  # x, kernel, stride, padding
    ((2, 9, 3), (3,), (2,), (1,)),
    ((1, 6, 5, 2), (3, 2), (2, 2), (1, 1)),
    ((1, 4, 5, 6, 2), (2, 3, 2), (2, 1, 3), (1, 1, 0)),
]
for x_shape, kernel, stride, padding in WINDOWS:
    rank = len(kernel)
    for inside in (True, False):
        write("mean" if inside else "mean_of_places", x_shape, (*kernel, *stride, *padding),
              lambda x: MEANS[rank](x, kernel, stride, padding, count_include_pad=inside))  # fmt: skip
    write("max", x_shape, (*kernel, *stride, *padding), lambda x: MAXIMA[rank](x, kernel, stride, padding))
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
for x_shape, factors in (((2, 4, 3), (3,)), ((1, 3, 4, 2), (2, 3)), ((1, 2, 3, 2, 2), (2, 1, 4))):
    size = [factor * size for factor, size in zip(factors, x_shape[1:])]
    write("nearest", x_shape, factors, lambda x: functional.interpolate(x, size=size, mode="nearest"))
    write("linear", x_shape, factors,
          lambda x: functional.interpolate(x, size=size, mode=LINEAR[len(factors)], align_corners=False))  # fmt: skip
for x_shape, groups in (((2, 7, 6), 3), ((1, 3, 4, 8), 2)):
    write("group_norm", x_shape, (groups,), lambda x, weight, bias: functional.group_norm(x, groups, weight, bias, 1e-5), (29, 5))
for kind in ("relu", "silu", "gelu"):
    write(kind, (2, 11, 3), (), lambda x: getattr(functional, kind)(x))
