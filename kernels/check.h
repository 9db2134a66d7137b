#pragma once

#include <initializer_list>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// What the checks of a kernel's arguments are about.
struct KernelCall {
  const char* kernel;
  const Stream& stream;
  Device device = stream.device();
};

/// A kernel's argument under the name that its documentation uses.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

// Each but check_rank also throws Error, "KERNEL: NAME is on cpu, the stream on cuda:0", where a
// defined tensor is not on the stream's device; a simulated device takes a real one's tensors too.
// So of each tensor the shape or the dtype is checked.

/// Throws ShapeMismatch "KERNEL: NAME is (8, 64), want (8, 32)".
void check_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted);
/// Throws ShapeMismatch or Error if shape or dtype differs.
void check_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted,
                 DType dtype);
/// Like check_shape, but accepts an undefined tensor.
void check_optional_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted);
/// Throws ShapeMismatch if the rank differs.
void check_rank(const KernelCall& call, const NamedTensor& argument, int wanted);
/// Throws Error if the dtype differs.
void check_dtype(const KernelCall& call, const NamedTensor& argument, DType wanted);
/// Throws Error if the dtype is neither f32 nor bf16.
void check_real(const KernelCall& call, const NamedTensor& argument);
/// Throws ShapeMismatch or Error if the rank differs, or the dtype is neither f32 nor bf16.
void check_real(const KernelCall& call, const NamedTensor& argument, int rank);
/// Throws ShapeMismatch or Error if one differs from the first in shape or dtype.
void check_alike(const KernelCall& call, std::initializer_list<NamedTensor> arguments);
/// Like check_alike, for f32 or bf16 alone.
void check_alike_real(const KernelCall& call, std::initializer_list<NamedTensor> arguments);

/// Checks what an optimizer writes to and its gradient: f32, of one shape; the compute copy is bf16, or
/// undefined.
void check_update(const KernelCall& call, const NamedTensor& w, const NamedTensor& g,
                  const NamedTensor& compute_copy);

}  // namespace hybrid_trainer::kernels
