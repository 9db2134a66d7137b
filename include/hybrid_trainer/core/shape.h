#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace hybrid_trainer {

/// Up to five dimensions, such as those of a batch of videos, row-major, held without heap memory.
class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dimensions);
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dimensions_[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const;
  bool operator==(const Shape&) const = default;
  std::string text() const;  // "(8, 64)"
  void append(std::int64_t dimension);

 private:
  std::array<std::int64_t, kMaxRank> dimensions_{};
  int rank_ = 0;
};

}  // namespace hybrid_trainer
