#!/usr/bin/env python3
"""Writes convolution_golden.txt: PyTorch's results and gradients of twelve convolutions.
tests/kernels/convolution/convolution_test.cpp checks its reference with them. Needs torch.
usage: make_convolution_golden.py > convolution_golden.txt

A case is a line "case RANK", the sizes of x (B, D1..Dn, C), kernel, stride, padding, dilation, outputs and groups,
then y, dx, dweight and dbias. All are channels last, and a weight's taps come before its channels."""
import torch

CASES = [  # x, kernel, stride, padding, dilation, outputs, groups
    ((2, 7, 3), (3,), (1,), (1,), (1,), 4, 1),
    ((1, 9, 4), (3,), (2,), (0,), (2,), 2, 2),
    ((1, 5, 3), (2,), (4,), (1,), (1,), 3, 3),
    ((1, 6, 5, 2), (3, 3), (1, 1), (1, 1), (1, 1), 3, 1),
    ((2, 5, 4, 4), (2, 3), (2, 1), (1, 2), (1, 1), 4, 2),
    ((1, 7, 6, 3), (3, 2), (3, 2), (2, 0), (2, 1), 2, 1),
    ((1, 4, 4, 5), (1, 1), (1, 1), (0, 0), (1, 1), 3, 1),
    ((1, 4, 6, 4), (2, 2), (2, 2), (0, 0), (1, 1), 4, 4),
    ((1, 3, 4, 5, 2), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 2, 1),
    ((1, 4, 5, 4, 3), (3, 3, 3), (1, 2, 2), (1, 1, 1), (1, 1, 1), 2, 1),
    ((1, 4, 4, 4, 2), (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), 4, 2),
    ((1, 5, 4, 6, 2), (2, 1, 3), (3, 2, 1), (1, 0, 2), (2, 1, 2), 2, 1),
]
CONVOLUTIONS = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}


def counted(shape, factor):
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float64) * factor + 11) % 41 - 20).div(16).reshape(shape)


def channels_first(tensor):
    return tensor.movedim(-1, 1)


for x_shape, kernel, stride, padding, dilation, outputs, groups in CASES:
    rank = len(kernel)
    x = counted(x_shape, 37).requires_grad_()
    weight = counted((outputs, *kernel, x_shape[-1] // groups), 29).requires_grad_()
    bias = counted((outputs,), 5).requires_grad_()
    y = CONVOLUTIONS[rank](channels_first(x), channels_first(weight), bias, stride, padding, dilation, groups).movedim(1, -1)
    y.backward(counted(tuple(y.shape), 23))
    print("case", rank)
    print(*x_shape, *kernel, *stride, *padding, *dilation, outputs, groups)
    for tensor in (y.detach(), x.grad, weight.grad, bias.grad):
        print(*(f"{value:.7g}" for value in tensor.contiguous().flatten().tolist()))
