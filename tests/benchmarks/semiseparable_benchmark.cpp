// Times matrices T + U·Vᵀ, HODLR matrices and resolvents. Prints shares of the copy rate too.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/hodlr.h"
#include "hybrid_trainer/kernels/semiseparable.h"
#include "hybrid_trainer/kernels/structured.h"
#include "kernels/backend/machine.h"
#include "src/core/machine.h"

namespace {

using namespace hybrid_trainer;
using namespace hybrid_trainer::kernels;

Tensor random(const Shape& shape, DType dtype, const Stream& stream) {
  const Tensor tensor = Tensor::empty(shape, dtype, MemoryKind::kActivations, stream);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const float value = random_normal({1, 0, 0}, static_cast<std::uint64_t>(i % 65536));
    if (dtype == DType::kF32) tensor.data<float>()[i] = value;
    if (dtype == DType::kBF16) tensor.data<BFloat16>()[i] = to_bfloat16(value);
  }
  return tensor;
}

/// The shortest of several runs.
double seconds_of(const std::function<void()>& work, int runs = 15) {
  double best = INFINITY;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void time_products(const Stream& stream) {
  const std::int64_t size = 2048, rank = default_rank(size), rows = 24'576;
  const double copies = measure_copy_rate(stream);
  std::printf("copy %.1f GB/s, %d threads\n", copies / 1e9, threads());
  const Semiseparable plain{.diagonal = random({size}, DType::kF32, stream),
                            .above = random({size - 1}, DType::kF32, stream),
                            .below = random({size - 1}, DType::kF32, stream),
                            .u = random({rank, size}, DType::kF32, stream),
                            .v = random({rank, size}, DType::kF32, stream)};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor x = random({rows, size}, dtype, stream),
                 y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    for (const FactorType type : {FactorType::kF32, FactorType::kBF16, FactorType::kI8}) {
      const Semiseparable h = with_factors(plain, type, stream);
      const double seconds =
          seconds_of([&] { semiseparable_forward(y, x, h, Transpose::kNo, stream); });
      const double bytes = 2.0 * static_cast<double>(x.bytes());
      std::printf(
          "T + U·Vᵀ N=%d r=%d rows %s factors %s: %zu bytes, %.1f GB/s, %.2f of the copy rate\n",
          static_cast<int>(size), static_cast<int>(rank), name_of(dtype), name_of(h.u.dtype()),
          semiseparable_bytes(h), bytes / seconds / 1e9, bytes / seconds / copies);
    }
  }
}

void time_hodlr() {
  const std::int64_t size = 16'384;
  const MatrixEntry entry = [](std::int64_t i, std::int64_t j) {
    const double distance = std::fabs(static_cast<double>(i - j)) / 16'384;
    return (i == j ? 2.0 : 0.0) + 0.003 / (1 + 20 * distance);
  };
  std::vector<double> x(size, 1.0), y(size);
  const double made = seconds_of([&] { const Hodlr matrix(size, entry); }, 3);
  const Hodlr matrix(size, entry);
  const double multiplied = seconds_of([&] { matrix.multiply(y, x, Transpose::kNo); });
  const double factored = seconds_of([&] { const HodlrSolver solver(matrix); }, 3);
  const HodlrSolver solver(matrix);
  const double solved = seconds_of([&] { solver.solve(x); });
  std::printf(
      "HODLR N=%d: %.2f %% of the dense bytes, rank %d; made in %.0f ms, product %.1f ms, factored "
      "in "
      "%.0f ms, solved in %.1f ms\n",
      static_cast<int>(size),
      100.0 * static_cast<double>(matrix.bytes()) / static_cast<double>(matrix.dense_bytes()),
      static_cast<int>(matrix.largest_rank()), made * 1e3, multiplied * 1e3, factored * 1e3,
      solved * 1e3);
}

void time_resolvents(const Stream& stream) {
  for (const Shape& shape : {Shape{16, 256, 8}, Shape{2, 1024, 8}, Shape{1, 100'000, 1}}) {
    const Tensor v = random(shape, DType::kF32, stream),
                 g = random({shape[0], shape[1], 2 * shape[2]}, DType::kF32, stream),
                 dv = Tensor::empty_like(v, MemoryKind::kActivations, stream);
    const double forward = seconds_of([&] { resolvent_forward(g, {.values = v}, {}, stream); }),
                 backward = seconds_of(
                     [&] { resolvent_backward({.values = dv}, g, {.values = v}, {}, stream); });
    std::printf("resolvent %s: forward %.3f ms, backward %.3f ms\n", shape.text().c_str(),
                forward * 1e3, backward * 1e3);
  }
}

}  // namespace

int main() {
  const Stream stream(MemoryPool::create("benchmark"));
  time_products(stream);
  time_hodlr();
  time_resolvents(stream);
}
