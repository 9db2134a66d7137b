#include <array>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/updates/optimizer_update.h"
#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {
namespace {

using namespace kernels;

constexpr AdamWSettings kSettings{.learning_rate = 1e-4f, .weight_decay = 0.1f};

std::size_t whole_bytes(std::initializer_list<Tensor> tensors) {
  return static_cast<std::size_t>(bytes_of(tensors));
}

void time_adamw(KernelTimer& timer, DType working_dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t n = timer.sizes().parameters;
  const bool bf16 = working_dtype == DType::kBF16;
  timer.time({bf16 ? "adamw_updates with bf16 copy" : "adamw_updates", DType::kF32, Limit::kCopy,
              bf16 ? 1.0 : 0.0},
             [&] {
               const Tensor w = timer.random({n}, DType::kF32), m = timer.random({n}, DType::kF32),
                            v = Tensor::zeros({n}, DType::kF32, MemoryKind::kWorkspace, stream),
                            g = timer.random({n}, DType::kF32);
               const Tensor compute_copy = bf16 ? timer.random({n}, DType::kBF16) : Tensor{};
               return Work{bytes_of({w, w, m, m, v, v, g, compute_copy}), whole_bytes({w, m, v, g}),
                           [=, &stream] {
                             adamw_updates({{w, m, v, g, compute_copy, kSettings}}, stream);
                           }};
             });
}

}  // namespace

void time_updates(KernelTimer& timer) {
  const Stream& stream = timer.stream();
  const std::int64_t n = timer.sizes().parameters;
  time_adamw(timer, DType::kBF16);
  time_adamw(timer, DType::kF32);
  timer.time({"adamw_direction", DType::kF32, Limit::kCopy, 0}, [&] {
    const Tensor direction = timer.random({n}, DType::kF32), m = timer.random({n}, DType::kF32),
                 v = Tensor::zeros({n}, DType::kF32, MemoryKind::kWorkspace, stream);
    return Work{bytes_of({direction, m, v}), whole_bytes({direction, m, v}),
                [=, &stream] { adamw_direction(direction, m, v, kSettings, stream); }};
  });
  timer.time({"sum_of_squares", DType::kF32, Limit::kRead, 1}, [&] {
    const Tensor g = timer.random({n}, DType::kF32), result = empty_result(stream);
    return Work{bytes_of({g}), g.bytes(),
                [=, &stream] { sum_of_squares(result, std::array<Tensor, 1>{g}, stream); }};
  });
  timer.time({"dot", DType::kF32, Limit::kRead, 0}, [&] {
    const Tensor x = timer.random({n}, DType::kF32), y = timer.random({n}, DType::kF32),
                 result = empty_result(stream);
    return Work{bytes_of({x, y}), whole_bytes({x, y}), [=, &stream] {
                  dot(result, std::array<Tensor, 1>{x}, std::array<Tensor, 1>{y}, Tensor(), stream);
                }};
  });
  timer.time({"axpy", DType::kF32, Limit::kCopy, 0}, [&] {
    const Tensor y = timer.random({n}, DType::kF32), from = timer.random({n}, DType::kF32),
                 direction = timer.random({n}, DType::kF32);
    return Work{bytes_of({y, from, direction}), whole_bytes({y, from, direction}),
                [=, &stream] { axpy(y, from, 0.5f, direction, stream); }};
  });
  for (const auto& [name, from, to] : {std::tuple{"cast f32 to bf16", DType::kF32, DType::kBF16},
                                       std::tuple{"cast bf16 to f32", DType::kBF16, DType::kF32}}) {
    timer.time({name, to, Limit::kCopy, 0}, [&, from = from, to = to] {
      const Tensor x = timer.random({n}, from), y = timer.random({n}, to);
      return Work{bytes_of({x, y}), whole_bytes({x, y}), [=, &stream] { cast(y, x, stream); }};
    });
  }
}

}  // namespace hybrid_trainer::benchmarks
