#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {
namespace {

using namespace kernels;

void time_layer_norm(KernelTimer& timer, DType dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t n = timer.sizes().rows(), c = timer.sizes().channels;
  const double calls = static_cast<double>(2 * timer.sizes().layers + 1);
  const auto make = [&](bool backward) {
    const Tensor x = timer.random({n, c}, dtype), y = timer.random({n, c}, dtype);
    const Tensor weight = timer.random({c}, DType::kF32), bias = timer.random({c}, DType::kF32);
    const Tensor mean = timer.random({n}, DType::kF32), rstd = timer.random({n}, DType::kF32);
    const auto forward = [=, &stream] {
      layer_norm_forward(y, mean, rstd, x, weight, bias, 1e-5f, stream);
    };
    if (!backward) return moving({x, mean, rstd, y}, forward);
    forward();
    const Tensor dx = timer.random({n, c}, dtype), dweight = timer.random({c}, DType::kF32),
                 dbias = timer.random({c}, DType::kF32);
    return moving({x, y, mean, rstd, dx, dx}, [=, &stream] {
      layer_norm_backward(dx, GradientMode::kAccumulate, dweight, dbias, GradientMode::kOverwrite,
                          y, x, mean, rstd, weight, stream);
    });
  };
  timer.time({"layer_norm_forward", dtype, Limit::kCopy, calls}, [&] { return make(false); });
  timer.time({"layer_norm_backward", dtype, Limit::kCopy, calls}, [&] { return make(true); });
}

}  // namespace

void time_rows(KernelTimer& timer, DType dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t n = timer.sizes().rows(), c = timer.sizes().channels;
  time_layer_norm(timer, dtype);
  timer.time({"add", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({n, c}, dtype), z = timer.random({n, c}, dtype),
                 y = timer.random({n, c}, dtype);
    return moving({x, z, y}, [=, &stream] { add(y, x, z, stream); });
  });
  timer.time({"dropout", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({n, c}, dtype), y = timer.random({n, c}, dtype);
    return moving({x, y}, [=, &stream] { dropout(y, x, 0.1f, {.key = {1, 2, 3}}, stream); });
  });
  timer.time({"gelu_forward", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({n, 4 * c}, dtype), y = timer.random({n, 4 * c}, dtype);
    return moving({x, y}, [=, &stream] { gelu_forward(y, x, stream); });
  });
  timer.time({"gelu_backward", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({n, 4 * c}, dtype), dy = timer.random({n, 4 * c}, dtype),
                 dx = timer.random({n, 4 * c}, dtype);
    return moving({x, dy, dx}, [=, &stream] { gelu_backward(dx, dy, x, stream); });
  });
}

void time_embedding(KernelTimer& timer, DType dtype) {
  const Sizes& sizes = timer.sizes();
  const Stream& stream = timer.stream();
  const Shape rows{sizes.batch, sizes.length, sizes.channels};
  timer.time({"embedding_forward", dtype, Limit::kCopy, 1}, [&] {
    const Tensor table = timer.random({sizes.padded_vocabulary, sizes.channels}, dtype),
                 positions = timer.random({sizes.length, sizes.channels}, dtype),
                 y = timer.random(rows, dtype), tokens = timer.tokens({sizes.batch, sizes.length});
    return moving({y, y},
                  [=, &stream] { embedding_forward(y, tokens, table, positions, 0, stream); });
  });
  timer.time({"embedding_backward", dtype, Limit::kCopy, 1}, [&] {
    const Tensor dtable = timer.random({sizes.padded_vocabulary, sizes.channels}, DType::kF32),
                 dpositions = timer.random({sizes.length, sizes.channels}, DType::kF32),
                 dy = timer.random(rows, dtype), tokens = timer.tokens({sizes.batch, sizes.length});
    // Lower bound: dy once for each table, and the drawn rows of the token table, read and written.
    const double touched =
        std::min(1.0, static_cast<double>(sizes.rows()) / static_cast<double>(sizes.vocabulary));
    Work work = moving({dy, dy}, [=, &stream] {
      embedding_backward(dtable, GradientMode::kAccumulate, dpositions, GradientMode::kOverwrite,
                         dy, tokens, stream);
    });
    work.amount += 2 * touched * bytes_of({dtable});
    return work;
  });
}

}  // namespace hybrid_trainer::benchmarks
