#include "hybrid_trainer/core/dtype.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kU16: return 2;
    case DType::kU8:
    case DType::kI8: return 1;
    case DType::kF64: return 8;
  }
  return 0;
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kI32: return "i32";
    case DType::kU16: return "u16";
    case DType::kU8: return "u8";
    case DType::kF64: return "f64";
    case DType::kI8: return "i8";
  }
  return "?";
}

Shape::Shape(std::initializer_list<std::int64_t> dimensions) {
  for (std::int64_t dimension : dimensions) append(dimension);
}

void Shape::append(std::int64_t dimension) {
  if (rank_ == kMaxRank)
    throw ShapeMismatch(concat("a shape has at most ", kMaxRank, " dimensions"));
  if (dimension < 0)
    throw ShapeMismatch(concat("a dimension is ", dimension, "; it must not be negative"));
  dimensions_[static_cast<std::size_t>(rank_++)] = dimension;
}

std::int64_t Shape::elements() const {
  std::int64_t count = rank_ == 0 ? 0 : 1;
  for (int i = 0; i < rank_; ++i) count *= (*this)[i];
  return count;
}

std::string Shape::text() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + ")";
}

}  // namespace hybrid_trainer
