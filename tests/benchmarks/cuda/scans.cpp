// Kernels of state-space and delta-rule layers at GPT-2's width: Mamba-2 with twice as many
// channels, in heads of 64 with a state of 128, and delta-rule heads of 128 keys and values.
#include "hybrid_trainer/kernels/scans.h"
#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {
namespace {

using namespace kernels;

constexpr std::int64_t kConvolutionTaps = 4, kScanChunk = 64;
constexpr std::int64_t kFullChannels = 512;  // below it one small head, for an emulated device

/// Operations of a scan with this number of state elements in all heads and `outputs` channels per
/// head: products with the state and among the tokens of a chunk.
Work scanning(const Sizes& sizes, double state, double outputs, double products,
              std::initializer_list<Tensor> tensors, std::function<void()> run) {
  Work work = moving(tensors, std::move(run));
  work.amount = static_cast<double>(sizes.rows()) * products * (4 * state + kScanChunk * outputs);
  return work;
}

void time_convolution(KernelTimer& timer, DType dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t b = timer.sizes().batch, t = timer.sizes().length, c = timer.sizes().channels;
  const Tensor weight = timer.random({2 * c, kConvolutionTaps}, DType::kF32),
               dweight = timer.random({2 * c, kConvolutionTaps}, DType::kF32);
  timer.time({"causal_convolution_forward", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({b, t, 2 * c}, dtype), y = timer.random({b, t, 2 * c}, dtype);
    return moving({x, y}, [=, &stream] {
      causal_convolution_forward(y, x, 0, weight, {}, {}, {}, {}, stream);
    });
  });
  timer.time({"causal_convolution_backward", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({b, t, 2 * c}, dtype), dx = timer.random({b, t, 2 * c}, dtype),
                 dy = timer.random({b, t, 2 * c}, dtype);
    return moving({x, dx, dy}, [=, &stream] {
      causal_convolution_backward(dx, dweight, {}, GradientMode::kOverwrite, {}, dy, x, 0, weight,
                                  {}, {}, {}, {}, stream);
    });
  });
}

void time_gated_norm(KernelTimer& timer, DType dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t n = timer.sizes().rows(), c = 2 * timer.sizes().channels;
  const Tensor weight = timer.random({c}, DType::kF32), dweight = timer.random({c}, DType::kF32);
  timer.time({"gated_norm_forward", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({n, c}, dtype), gate = timer.random({n, c}, dtype),
                 y = timer.random({n, c}, dtype);
    return moving({x, gate, y},
                  [=, &stream] { gated_norm_forward(y, x, gate, 0, weight, {}, stream); });
  });
  timer.time({"gated_norm_backward", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = timer.random({n, c}, dtype), gate = timer.random({n, c}, dtype),
                 dx = timer.random({n, c}, dtype), dgate = timer.random({n, c}, dtype),
                 dy = timer.random({n, c}, dtype);
    return moving({x, gate, dx, dgate, dy}, [=, &stream] {
      gated_norm_backward(dx, dgate, dweight, GradientMode::kOverwrite, dy, x, gate, 0, weight, {},
                          stream);
    });
  });
}

void time_state_space(KernelTimer& timer, DType dtype) {
  const Sizes& sizes = timer.sizes();
  const Stream& stream = timer.stream();
  const std::int64_t b = sizes.batch, t = sizes.length;
  const bool full = sizes.channels >= kFullChannels;
  StateSpaceSpec spec;
  spec.head_size = full ? 64 : 8;
  spec.heads = full ? 2 * sizes.channels / spec.head_size : 1;
  spec.state_size = full ? 128 : 8;
  const auto channels = static_cast<double>(spec.values());
  const double state = channels * static_cast<double>(spec.state_size);
  const StateSpaceDecay decay{timer.random({spec.heads}, DType::kF32),
                              timer.random({spec.heads}, DType::kF32)};
  const auto time = [&](const char* name, double products, const auto& call) {
    timer.time({name, dtype, Limit::kProduct, 0}, [&] {
      const Tensor values = timer.random({b, t, spec.columns()}, dtype),
                   steps = timer.random({b, t, spec.heads}, dtype),
                   y = timer.random({b, t, spec.values()}, dtype);
      return scanning(sizes, state, channels, products, {values, y},
                      call(StateSpaceInput{values, steps, {}, {}, {}}, y));
    });
  };
  time("state_space_scan_forward", 1, [&](const StateSpaceInput& input, const Tensor& y) {
    return [=, &stream] { state_space_scan_forward(y, {}, input, decay, spec, stream); };
  });
  time("state_space_scan_backward", 2.5, [&](const StateSpaceInput& input, const Tensor& dy) {
    const Tensor dvalues = timer.random(input.values.shape(), dtype);
    return [=, &stream] {
      state_space_scan_backward({dvalues, {}, {}, {}, {}, {}}, dy, {}, input, decay, spec, stream);
    };
  });
}

void time_delta_rule(KernelTimer& timer, DType dtype) {
  const Sizes& sizes = timer.sizes();
  const Stream& stream = timer.stream();
  const std::int64_t b = sizes.batch, t = sizes.length;
  const bool full = sizes.channels >= kFullChannels;
  DeltaRuleSpec spec;
  spec.key_size = spec.value_size = full ? 128 : 8;
  spec.key_heads = spec.value_heads = full ? sizes.channels / spec.key_size : 1;
  const auto channels = static_cast<double>(spec.values());
  const double state = channels * static_cast<double>(spec.key_size);
  const Tensor rates = timer.random({spec.value_heads}, DType::kF32);
  const auto time = [&](const char* name, double products, const auto& call) {
    timer.time({name, dtype, Limit::kProduct, 0}, [&] {
      const Tensor qkv = timer.random({b, t, spec.columns()}, dtype),
                   gates = timer.random({b, t, 2 * spec.value_heads}, dtype),
                   y = timer.random({b, t, spec.values()}, dtype);
      return scanning(sizes, state, channels, products, {qkv, y},
                      call(DeltaRuleInput{qkv, gates, rates, rates, {}, {}}, y));
    });
  };
  time("delta_rule_scan_forward", 1.5, [&](const DeltaRuleInput& input, const Tensor& y) {
    return [=, &stream] { delta_rule_scan_forward(y, {}, input, spec, stream); };
  });
  time("delta_rule_scan_backward", 5, [&](const DeltaRuleInput& input, const Tensor& dy) {
    const Tensor dqkv = timer.random(input.qkv.shape(), dtype),
                 dgates = timer.random(input.gates.shape(), dtype);
    return [=, &stream] {
      delta_rule_scan_backward({dqkv, dgates, {}, {}, {}}, dy, {}, input, spec, stream);
    };
  });
}

}  // namespace

void time_scans(KernelTimer& timer, DType dtype) {
  time_convolution(timer, dtype);
  time_gated_norm(timer, dtype);
  time_state_space(timer, dtype);
  time_delta_rule(timer, dtype);
}

}  // namespace hybrid_trainer::benchmarks
