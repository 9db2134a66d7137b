#pragma once

#include <initializer_list>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// A kernel's argument under the name that its documentation uses.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

/// Throws ShapeMismatch "KERNEL: NAME is (8, 64), want (8, 32)".
void check_shape(const char* kernel, const NamedTensor& argument, const Shape& wanted);
/// Like check_shape, but accepts an undefined tensor.
void check_optional_shape(const char* kernel, const NamedTensor& argument, const Shape& wanted);
/// Throws ShapeMismatch if the rank differs.
void check_rank(const char* kernel, const NamedTensor& argument, int wanted);
/// Throws Error if the dtype differs.
void check_dtype(const char* kernel, const NamedTensor& argument, DType wanted);
/// Throws Error if the dtype is neither f32 nor bf16.
void check_real(const char* kernel, const NamedTensor& argument);
/// Throws ShapeMismatch or Error if one differs from the first in shape or dtype.
void check_alike(const char* kernel, std::initializer_list<NamedTensor> arguments);

}  // namespace hybrid_trainer::kernels
