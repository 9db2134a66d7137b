#pragma once

#include "hybrid_trainer/core/dtype.h"

namespace hybrid_trainer {

/// The numbers that linear maps multiply. Sums are f32 in all of them.
enum class ProductForm {
  kAsStored,  // those of the activations' dtype
  kFp16,      // operands and results rounded to IEEE half
  kFp8,       // operands rounded: E4M3 in forward, E5M2 for gradients
};

/// How a phase computes.
struct Precision {
  DType dtype = DType::kF32;  // of activations and of the copies of weights: f32 or bf16
  ProductForm products = ProductForm::kAsStored;
  bool operator==(const Precision&) const = default;
};

}  // namespace hybrid_trainer
