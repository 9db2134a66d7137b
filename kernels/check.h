#pragma once

#include <initializer_list>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// An argument of a kernel under the name that its documentation gives it.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

/// Throws ShapeMismatch "KERNEL: NAME is (8, 64), want (8, 32)".
void check_shape(const char* kernel, const NamedTensor& argument, const Shape& wanted);
/// As check_shape, and nothing for an undefined tensor.
void check_optional_shape(const char* kernel, const NamedTensor& argument, const Shape& wanted);
/// Throws ShapeMismatch where the rank differs.
void check_rank(const char* kernel, const NamedTensor& argument, int wanted);
/// Throws Error where the dtype differs.
void check_dtype(const char* kernel, const NamedTensor& argument, DType wanted);
/// Throws Error where the dtype is not f32 or bf16.
void check_real(const char* kernel, const NamedTensor& argument);
/// Throws ShapeMismatch or Error where one differs from the first in shape or dtype.
void check_alike(const char* kernel, std::initializer_list<NamedTensor> arguments);

}  // namespace hybrid_trainer::kernels
