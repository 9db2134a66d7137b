#include "hybrid_trainer/core/shape.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

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
