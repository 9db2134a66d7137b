#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/memory/offload_strategy.h"

namespace hybrid_trainer::testing {

inline std::size_t live(const Stream& stream, MemoryKind kind) {
  return stream.pool()->use().live[static_cast<std::size_t>(kind)];
}

/// A few tensors of random bytes, like an optimizer state.
class Content {
 public:
  explicit Content(const Stream& stream) {
    for (const Shape& shape : shapes()) {
      tensors_.push_back(Tensor::empty(shape, DType::kF32, MemoryKind::kOptimizerState, stream));
      const auto words = static_cast<std::uint32_t*>(tensors_.back().raw());
      for (std::int64_t i = 0; i < tensors_.back().elements(); ++i) {
        words[i] = random_word({tensors_.size(), 0, 0}, static_cast<std::uint64_t>(i));
      }
      const char* const bytes = static_cast<const char*>(tensors_.back().raw());
      bytes_.emplace_back(bytes, tensors_.back().bytes());
      total_bytes_ += tensors_.back().bytes();
    }
  }
  static std::vector<Shape> shapes() { return {{300, 700}, {5}, {64, 64}}; }
  std::vector<OffloadSlot> slots() {
    std::vector<OffloadSlot> slots;
    for (Tensor& tensor : tensors_)
      slots.push_back({"slot " + std::to_string(slots.size()), &tensor});
    return slots;
  }
  std::vector<Tensor>& tensors() { return tensors_; }
  std::size_t total_bytes() const { return total_bytes_; }
  bool in_place() const {
    bool all = true;
    for (const Tensor& tensor : tensors_) all = all && tensor.defined();
    return all;
  }
  bool has_its_bits() const {
    bool same = in_place();
    for (std::size_t i = 0; same && i < tensors_.size(); ++i) {
      same = std::memcmp(tensors_[i].raw(), bytes_[i].data(), bytes_[i].size()) == 0;
    }
    return same;
  }
  bool is_zero() const {
    for (const Tensor& tensor : tensors_) {
      const char* const bytes = static_cast<const char*>(tensor.raw());
      for (std::size_t i = 0; i < tensor.bytes(); ++i) {
        if (bytes[i] != 0) return false;
      }
    }
    return in_place();
  }

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::string> bytes_;
  std::size_t total_bytes_ = 0;
};

}  // namespace hybrid_trainer::testing
