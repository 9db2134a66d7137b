#include "hybrid_trainer/kernels/machine_rates.h"

#include <algorithm>
#include <chrono>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/cpu/machine_rates.h"

namespace hybrid_trainer::kernels {
namespace {

using Clock = std::chrono::steady_clock;

/// Shortest of several runs in seconds, after one that warms up.
template <class Work>
double best_seconds(const Stream& stream, int runs, const Work& work) {
  work();
  double best = 1e30;
  for (int run = 0; run < runs; ++run) {
    stream.synchronize();
    const auto start = Clock::now();
    work();
    stream.synchronize();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

/// Numbers in (-1, 1) without a pattern: products of zeros would draw less power and could clock
/// higher.
Tensor noise(const Shape& shape, DType dtype, const Stream& stream) {
  const Tensor tensor = Tensor::empty(shape, DType::kF32, MemoryKind::kWorkspace, stream);
  float* const out = tensor.data<float>();
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    out[i] = 2 * to_unit_float(static_cast<std::uint32_t>(i) * 2654435761u) - 1;
  }
  if (dtype == DType::kF32) return tensor;
  const Tensor rounded = Tensor::empty(shape, dtype, MemoryKind::kWorkspace, stream);
  cast(rounded, tensor, stream);
  return rounded;
}

struct ProductCase {
  std::int64_t m, n, k;
  Transpose transpose_b;
};

}  // namespace

double measure_product_rate(DType inputs, const Stream& stream) {
  constexpr ProductCase kCases[] = {{1024, 2304, 768, Transpose::kYes},
                                    {1024, 768, 768, Transpose::kNo},
                                    {1024, 3072, 768, Transpose::kNo},
                                    {1024, 768, 3072, Transpose::kYes}};
  double best = 0;
  for (const auto& [m, n, k, transpose_b] : kCases) {
    const bool transposed = transpose_b == Transpose::kYes;
    const Tensor a = noise({m, k}, inputs, stream);
    const Tensor b = noise(transposed ? Shape{n, k} : Shape{k, n}, inputs, stream);
    const Tensor c = Tensor::empty({m, n}, inputs, MemoryKind::kWorkspace, stream);
    const double seconds = best_seconds(stream, 12, [&] {
      matmul(c, a, Transpose::kNo, b, transpose_b, GradientMode::kOverwrite, stream);
    });
    best = std::max(best, 2.0 * static_cast<double>(m * n) * static_cast<double>(k) / seconds);
  }
  return best;
}

double measure_copy_rate(const Stream& stream) {
  constexpr std::int64_t kElements = std::int64_t{48} << 20;
  const Tensor from = Tensor::zeros({kElements}, DType::kF32, MemoryKind::kWorkspace, stream);
  const Tensor to = Tensor::empty_like(from, MemoryKind::kWorkspace, stream);
  const double seconds = best_seconds(stream, 5, [&] { cast(to, from, stream); });
  return 2.0 * static_cast<double>(from.bytes()) / seconds;
}

double measure_read_rate(const Stream& stream) {
  constexpr std::int64_t kElements = std::int64_t{64} << 20;
  const Tensor from = Tensor::zeros({kElements}, DType::kF32, MemoryKind::kWorkspace, stream);
  std::uint32_t bits = 0;
  const double seconds = best_seconds(stream, 5, [&] {
    bits |= visit_backend(stream, [&](auto backend) { return wait_for_all_bits(backend, from); });
  });
  require(bits == 0, "measure_read_rate: zeros were read as something else");
  return static_cast<double>(from.bytes()) / seconds;
}

}  // namespace hybrid_trainer::kernels
