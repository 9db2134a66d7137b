// Row kernels of models with RMSNorm, rotary positions and gated feed-forward, at GPT-2's sizes.
#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {
namespace {

using namespace kernels;

constexpr RmsNormSpec kSpec{1e-5f};
constexpr std::int64_t kHeadSize = 64;

void time_rms_norm(KernelTimer& timer, DType dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t n = timer.sizes().rows(), c = timer.sizes().channels;
  const auto make = [&](bool backward) {
    const Tensor x = timer.random({n, c}, dtype), y = timer.random({n, c}, dtype);
    const Tensor weight = timer.random({c}, DType::kF32), rstd = timer.random({n}, DType::kF32);
    const auto forward = [=, &stream] { rms_norm_forward(y, rstd, x, weight, kSpec, stream); };
    if (!backward) return moving({x, rstd, y}, forward);
    forward();
    const Tensor dx = timer.random({n, c}, dtype), dweight = timer.random({c}, DType::kF32);
    return moving({x, y, rstd, dx, dx}, [=, &stream] {
      rms_norm_backward(dx, GradientMode::kAccumulate, dweight, GradientMode::kOverwrite, y, x,
                        rstd, weight, kSpec, stream);
    });
  };
  timer.time({"rms_norm_forward", dtype, Limit::kCopy, 0}, [&] { return make(false); });
  timer.time({"rms_norm_backward", dtype, Limit::kCopy, 0}, [&] { return make(true); });
}

/// Normalizes queries and keys and rotates them, which changes two thirds of qkv in place.
void time_heads(KernelTimer& timer, DType dtype) {
  const Sizes& sizes = timer.sizes();
  const Stream& stream = timer.stream();
  const std::int64_t b = sizes.batch, t = sizes.length, c = sizes.channels;
  const std::int64_t heads = 2 * c / kHeadSize;
  const double changed = 2.0 / 3;
  const auto time = [&](const char* name, double passes, const auto& make) {
    timer.time({name, dtype, Limit::kCopy, 0}, [&] {
      const Tensor qkv = timer.random({b, t, 3 * c}, dtype);
      return Work{passes * changed * bytes_of({qkv}), qkv.bytes(), make(qkv)};
    });
  };
  const Tensor weight = timer.random({kHeadSize}, DType::kF32),
               table = timer.random({t, kHeadSize}, DType::kF32),
               positions = timer.places(3 * t / 10);
  time("rms_norm_heads_forward", 2, [&](const Tensor& qkv) {
    return [=, &stream] { rms_norm_heads_forward(qkv, {0, heads}, weight, kSpec, stream); };
  });
  time("rms_norm_heads_backward", 3, [&](const Tensor& x) {
    const Tensor dx = timer.random(x.shape(), dtype),
                 dweight = timer.random({kHeadSize}, DType::kF32);
    return [=, &stream] {
      rms_norm_heads_backward(dx, dweight, GradientMode::kOverwrite, x, {0, heads}, weight, kSpec,
                              stream);
    };
  });
  for (const bool packed : {false, true}) {
    time(packed ? "rotate, packed documents" : "rotate", 2, [&](const Tensor& qkv) {
      return [=, &stream] {
        rotate(qkv, heads, table, 0, packed ? positions : Tensor(), Rotation::kForward, stream);
      };
    });
  }
}

/// SwiGLU with an intermediate size of 8/3 C.
void time_gates(KernelTimer& timer, DType dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t n = timer.sizes().rows(), f = 8 * timer.sizes().channels / 3 / 64 * 64;
  timer.time({"gated_forward", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({n, 2 * f}, dtype), y = timer.random({n, f}, dtype);
    return moving({x, y}, [=, &stream] { gated_forward(y, x, Gate::kSilu, stream); });
  });
  timer.time({"gated_backward", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({n, 2 * f}, dtype), dy = timer.random({n, f}, dtype),
                 dx = timer.random({n, 2 * f}, dtype);
    return moving({x, dy, dx}, [=, &stream] { gated_backward(dx, dy, x, Gate::kSilu, stream); });
  });
}

}  // namespace

void time_decoder_rows(KernelTimer& timer, DType dtype) {
  time_rms_norm(timer, dtype);
  time_heads(timer, dtype);
  time_gates(timer, dtype);
}

}  // namespace hybrid_trainer::benchmarks
