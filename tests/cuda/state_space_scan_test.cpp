#include "hybrid_trainer/kernels/scans.h"

#include <limits>

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Two sequences of T tokens; if packed, of documents of 45, the first begun 20 tokens before.
struct StateSpaceScanCase {
  std::int64_t length;
  StateSpaceSpec spec;
  bool decays = true, has_states = true, packed = false;
  DType dtype = DType::kF32;

  std::string text() const {
    return concat("T ", length, ", H ", spec.heads, " of ", spec.head_size, ", G ", spec.groups,
                  " of ", spec.state_size, spec.reversed ? ", reversed" : "",
                  spec.shifted ? ", shifted" : "", packed ? ", packed " : " ", name_of(dtype));
  }
  Shape states() const { return {kBatch, spec.heads, spec.head_size, spec.state_size}; }
  Tensor real(std::int64_t columns, std::uint64_t seed, const Stream& host, double size = 1) const {
    return random_tensor({kBatch, length, columns}, dtype, seed, host, size);
  }
  Tensor positions(const Stream& host) const {
    if (!packed) return {};
    Values places;
    for (std::int64_t i = 0; i < kBatch * length; ++i)
      places.push_back(static_cast<double>((i % length + 20) % 45));
    return tensor_of(places, {kBatch, length}, DType::kI32, host);
  }
  /// {values, steps, skip, first_state, positions, log_rate, step_bias}.
  Tensors inputs(const Stream& host) const {
    const auto of_heads = [&](std::uint64_t seed) {
      return random_tensor({spec.heads}, DType::kF32, seed, host, 0.5);
    };
    return {real(spec.columns(), 1, host, 0.5),
            decays ? real(spec.heads + 3, 2, host) : Tensor{},
            decays ? of_heads(3) : Tensor{},
            has_states ? random_tensor(states(), DType::kF32, 4, host) : Tensor{},
            positions(host),
            decays ? of_heads(5) : Tensor{},
            decays ? of_heads(6) : Tensor{}};
  }
  static StateSpaceInput input(const Tensors& t) { return {t[0], t[1], t[2], t[3], t[4]}; }
  static StateSpaceDecay decay(const Tensors& t) { return {t[5], t[6]}; }
  static constexpr std::int64_t kBatch = 2;
};

StateSpaceSpec state_space_spec(std::int64_t heads, std::int64_t head_size, std::int64_t groups,
                                std::int64_t state_size) {
  return {.heads = heads, .head_size = head_size, .groups = groups, .state_size = state_size};
}

/// Full, partial and one-token chunks; full, partial and several tiles of heads and states.
std::vector<StateSpaceScanCase> state_space_cases() {
  StateSpaceSpec reversed = state_space_spec(2, 5, 1, 7), shifted = state_space_spec(4, 3, 2, 9);
  reversed.reversed = true;
  reversed.least_step = 0.2f;
  reversed.most_step = 1.5f;
  shifted.shifted = true;
  StateSpaceSpec both = reversed;
  both.shifted = true;
  return {
      {.length = 130, .spec = state_space_spec(4, 8, 2, 8)},
      {.length = 1, .spec = state_space_spec(2, 3, 2, 5)},
      {.length = 64, .spec = state_space_spec(1, 66, 1, 65), .has_states = false},
      {.length = 97, .spec = state_space_spec(2, 4, 1, 6), .packed = true},
      {.length = 70, .spec = state_space_spec(3, 4, 1, 6), .decays = false},
      {.length = 100, .spec = reversed, .packed = true},
      {.length = 67, .spec = shifted},
      {.length = 90, .spec = both, .has_states = false, .packed = true},
      {.length = 80, .spec = state_space_spec(2, 20, 1, 72), .packed = true, .dtype = DType::kBF16},
      {.length = 50, .spec = state_space_spec(2, 71, 2, 15), .dtype = DType::kBF16}};
}

double state_space_tolerance(DType dtype) { return dtype == DType::kF32 ? 3e-5 : 4e-2; }

TEST(CudaStateSpaceScan, ForwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const StateSpaceScanCase& one : state_space_cases()) {
    Tensors tensors = one.inputs(host);
    tensors.push_back(one.real(one.spec.values(), 7, host));
    tensors.push_back(one.has_states ? random_tensor(one.states(), DType::kF32, 8, host)
                                     : Tensor{});
    expect_like_cpu(tensors, state_space_tolerance(one.dtype), one.text(),
                    [&](const Tensors& t, const Stream& s) {
                      state_space_scan_forward(t[7], t[8], one.input(t), one.decay(t), one.spec, s);
                    });
  }
}

TEST(CudaStateSpaceScan, BackwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const StateSpaceScanCase& one : state_space_cases()) {
    Tensors tensors = one.inputs(host);
    tensors.push_back(one.real(one.spec.values(), 7, host));
    const auto gradient_of = [&](const Tensor& tensor, std::uint64_t seed) {
      return tensor ? random_tensor(tensor.shape(), tensor.dtype(), seed, host) : Tensor{};
    };
    tensors.push_back(gradient_of(tensors[3], 8));  // of the final state
    for (const std::size_t i : {0, 1, 2, 5, 6, 3})
      tensors.push_back(gradient_of(tensors[i], 20 + i));
    const GradientMode mode =
        one.length == 67 ? GradientMode::kAccumulate : GradientMode::kOverwrite;
    expect_like_cpu(tensors, state_space_tolerance(one.dtype), one.text(),
                    [&](const Tensors& t, const Stream& s) {
                      state_space_scan_backward({t[9], t[10], t[11], t[12], t[13], t[14], mode},
                                                t[7], t[8], one.input(t), one.decay(t), one.spec,
                                                s);
                    });
  }
}

/// −e^89 overflows a float; multiplied by a step of 0 the result must be 0, not NaN.
TEST(CudaStateSpaceScan, OverflowingRateStaysFinite) {
  const Stream host = cpu_stream();
  const StateSpaceScanCase one{.length = 70, .spec = state_space_spec(2, 4, 1, 8)};
  Tensors tensors = one.inputs(host);
  tensors[5].data<float>()[0] = 89;
  tensors[5].data<float>()[1] = 20;
  tensors.push_back(one.real(one.spec.values(), 7, host));
  tensors.push_back(random_tensor(one.states(), DType::kF32, 8, host));
  for (const std::size_t i : {0, 1, 2, 5, 6, 3})
    tensors.push_back(random_tensor(tensors[i].shape(), tensors[i].dtype(), 20 + i, host));
  const auto run = [&](const Tensors& t, const Stream& s) {
    state_space_scan_backward({t[9], t[10], t[11], t[12], t[13], t[14]}, t[7], t[8], one.input(t),
                              one.decay(t), one.spec, s);
    state_space_scan_forward(t[7], t[8], one.input(t), one.decay(t), one.spec, s);
  };
  expect_like_cpu(tensors, state_space_tolerance(DType::kF32), one.text(), run);
  for (std::int64_t row = 0; row < 2 * one.length; ++row)
    if (row % 3 != 0) tensors[1].data<float>()[row * 5 + 3] = -200;
  expect_finite_on_cuda(tensors, run);
  tensors[5].data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(first_on_cuda(tensors, 7, run))) << "of y";
}

TEST(CudaStateSpaceScan, StepMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const bool decays : {true, false}) {
      const StateSpaceSpec spec = state_space_spec(4, 5, 2, 70);
      const auto of_heads = [&](std::uint64_t seed) {
        return decays ? random_tensor({4}, DType::kF32, seed, host) : Tensor{};
      };
      expect_like_cpu(
          {random_tensor({2, spec.values()}, dtype, 1, host),
           random_tensor({3, 4, 5, 70}, DType::kF32, 2, host),
           random_tensor({2, spec.columns()}, dtype, 3, host),
           decays ? random_tensor({2, 6}, dtype, 4, host) : Tensor{}, of_heads(5), of_heads(6),
           of_heads(7), tensor_of({2, 0}, {2}, DType::kI32, host)},
          state_space_tolerance(dtype), name_of(dtype), [&](const Tensors& t, const Stream& s) {
            state_space_scan_step(t[0], t[1], t[2], t[3], t[4], {t[5], t[6]}, t[7], spec, s);
          });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
