#include "hybrid_trainer/core/tensor.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

namespace hybrid_trainer {

Shape::Shape(std::initializer_list<std::int64_t> dimensions) {
  for (std::int64_t dimension : dimensions) append(dimension);
}

void Shape::append(std::int64_t dimension) {
  if (rank_ == kMaxRank) throw ShapeMismatch("a shape has at most 4 dimensions");
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

Tensor Tensor::empty(const Shape& shape, DType dtype, MemoryKind kind, const Stream& stream) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  tensor.buffer_ = std::make_shared<Buffer>(stream.pool()->allocate(bytes, kind));
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, MemoryKind kind, const Stream& stream) {
  Tensor tensor = empty(shape, dtype, kind, stream);
  fill_zero(tensor, stream);
  return tensor;
}

Tensor Tensor::view(const Shape& shape) const {
  if (shape.elements() != elements()) {
    throw ShapeMismatch(
        concat("a tensor of shape ", shape_.text(), " cannot be seen as ", shape.text()));
  }
  Tensor other = *this;
  other.shape_ = shape;
  return other;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  if (shape_.rank() == 0 || begin < 0 || begin > end || end > shape_[0]) {
    throw ShapeMismatch(
        concat("rows ", begin, " to ", end, " are not within a tensor of shape ", shape_.text()));
  }
  Tensor other = *this;
  other.shape_ = Shape{end - begin};
  std::int64_t row_elements = 1;
  for (int i = 1; i < shape_.rank(); ++i) {
    other.shape_.append(shape_[i]);
    row_elements *= shape_[i];
  }
  other.offset_bytes_ += static_cast<std::size_t>(begin * row_elements) * size_of(dtype_);
  return other;
}

void Tensor::throw_wrong_dtype(DType asked) const {
  throw Error(ExitCode::kInternal, concat("a tensor of dtype ", name_of(dtype_), " and shape ",
                                          shape_.text(), " was read as ", name_of(asked)));
}

namespace {

/// Calls fn(offset, bytes) for one contiguous share per thread.
template <class Fn>
void in_shares(std::size_t bytes, const Fn& fn) {
  constexpr std::size_t kWorthThreads = 1 << 20;
#pragma omp parallel if (bytes >= kWorthThreads)
  {
    const std::size_t count = static_cast<std::size_t>(omp_get_num_threads());
    const std::size_t share = (bytes / count + 63) / 64 * 64;
    const std::size_t begin =
        std::min(bytes, share * static_cast<std::size_t>(omp_get_thread_num()));
    const std::size_t end =
        omp_get_thread_num() + 1 == omp_get_num_threads() ? bytes : std::min(bytes, begin + share);
    if (end > begin) fn(begin, end - begin);
  }
}

}  // namespace

void copy(const Tensor& destination, const Tensor& source, const Stream&) {
  if (destination.shape() != source.shape() || destination.dtype() != source.dtype()) {
    throw ShapeMismatch(concat("copy: destination is ", destination.shape().text(), " ",
                               name_of(destination.dtype()), ", source ", source.shape().text(),
                               " ", name_of(source.dtype())));
  }
  char* to = static_cast<char*>(destination.raw());
  const char* from = static_cast<const char*>(source.raw());
  in_shares(source.bytes(),
            [&](std::size_t at, std::size_t bytes) { std::memcpy(to + at, from + at, bytes); });
}

void fill_zero(const Tensor& tensor, const Stream&) {
  char* to = static_cast<char*>(tensor.raw());
  in_shares(tensor.bytes(),
            [&](std::size_t at, std::size_t bytes) { std::memset(to + at, 0, bytes); });
}

}  // namespace hybrid_trainer
