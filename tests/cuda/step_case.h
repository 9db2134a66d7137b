#pragma once

// Helpers for tests at the sizes of a real step. Tensors are made and compared on the device if
// possible, and a few rows of a result are recomputed in double precision.

#include <set>

#include "hybrid_trainer/kernels/elementwise.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {

inline constexpr DType kStepType = DType::kBF16;

class StepCase : public ::testing::Test {
 protected:
  /// Random numbers in (-size, size).
  Tensor noise(const Shape& shape, DType dtype, std::uint64_t seed, double size = 1) const {
    constexpr std::int64_t kTile = 262'147;  // a prime, so that no two rows are equal
    const Stream host = cpu_stream();
    Values values(static_cast<std::size_t>(std::min(kTile, shape.elements())));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto unit = static_cast<double>(to_unit_float(random_word({seed}, i)));
      values[i] = size * (2 * unit - 1);
    }
    const auto count = static_cast<std::int64_t>(values.size());
    const Tensor tile = copy_to(tensor_of(values, {count}, DType::kF32, host), stream_);
    const Tensor made = Tensor::empty(shape, dtype, MemoryKind::kActivations, stream_);
    const Tensor flat = made.view({made.elements()});
    for (std::int64_t begin = 0; begin < flat.elements(); begin += count) {
      const std::int64_t end = std::min(flat.elements(), begin + count);
      cast(flat.rows(begin, end), tile.rows(0, end - begin), stream_);
    }
    return made;
  }

  /// The outputs on the host. Calls `run` several times and expects bit-identical results.
  Tensors same_each_time(const Tensors& outputs, const std::function<void()>& run) const {
    Tensors first;
    in_several_orders([&] {
      run();
      Tensors found;
      for (const Tensor& output : outputs) found.push_back(wait_for_host(output, stream_));
      for (std::size_t i = 0; i < first.size(); ++i) expect_same_bits(found[i], first[i]);
      if (first.empty()) first = found;
    });
    return first;
  }

  Tensor on_host(const Tensor& tensor) const { return wait_for_host(tensor, stream_); }

  const StepSizes sizes_ = step_sizes();
  const Stream stream_ = cuda_stream();
};

/// A few of `count` indices: the first, the last and some that late blocks compute.
inline std::set<std::int64_t> some_of(std::int64_t count) {
  return {0, 1, count / 3, count / 2 + count / 7, count - 1};
}

inline Values row_of(const Tensor& matrix, std::int64_t row) {
  return values_of(matrix.rows(row, row + 1));
}

}  // namespace hybrid_trainer::kernels
