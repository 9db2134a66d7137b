#include "hybrid_trainer/kernels/scans.h"

#include <limits>

#include "tests/cuda/cuda_case.h"
#include "tests/kernels/scans/delta_rule_case.h"

namespace hybrid_trainer::kernels {
namespace {

DeltaRuleSpec delta_spec(std::int64_t key_heads, std::int64_t value_heads, std::int64_t key_size,
                         std::int64_t value_size) {
  return {.key_heads = key_heads,
          .value_heads = value_heads,
          .key_size = key_size,
          .value_size = value_size};
}

/// Full, partial and one-token chunks; full, partial and several tiles of keys and values.
const std::vector<DeltaCase> kDeltaCases{
    {.length = 130, .spec = delta_spec(1, 2, 8, 12)},
    {.length = 1, .spec = delta_spec(2, 2, 3, 5)},
    {.batch = 1, .length = 64, .spec = delta_spec(1, 2, 66, 70), .first_state = false},
    {.length = 75, .spec = delta_spec(2, 4, 5, 6), .document = 21, .place = 4},
    {.batch = 1, .length = 70, .spec = delta_spec(1, 1, 6, 40), .log_rate = 6},
    {.batch = 1,
     .length = 80,
     .spec = delta_spec(1, 2, 72, 20),
     .dtype = DType::kBF16,
     .document = 50},
    {.length = 20, .spec = delta_spec(1, 2, 5, 35), .dtype = DType::kBF16},
};

std::string text_of(const DeltaCase& one) {
  return concat("T ", one.length, ", V ", one.spec.value_heads, " of ", one.spec.value_size, ", K ",
                one.spec.key_heads, " of ", one.spec.key_size, " ", name_of(one.dtype));
}

/// {qkv, gates, log_rate, step_bias, first_state, positions}.
Tensors delta_tensors(const DeltaCase& one, const Stream& host) {
  const DeltaRuleInput input = one.input(host);
  return {input.qkv,       input.gates,       input.log_rate,
          input.step_bias, input.first_state, input.positions};
}

DeltaRuleInput delta_input(const Tensors& t) { return {t[0], t[1], t[2], t[3], t[4], t[5]}; }

double delta_tolerance(DType dtype) { return dtype == DType::kF32 ? 3e-5 : 3e-2; }

TEST(CudaDeltaRuleScan, ForwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DeltaCase& one : kDeltaCases) {
    Tensors tensors = delta_tensors(one, host);
    tensors.push_back(random_tensor(one.output_shape(), one.dtype, 7, host));
    tensors.push_back(random_tensor(one.state_shape(), DType::kF32, 8, host));
    expect_like_cpu(tensors, delta_tolerance(one.dtype), text_of(one),
                    [&](const Tensors& t, const Stream& s) {
                      delta_rule_scan_forward(t[6], t[7], delta_input(t), one.spec, s);
                    });
  }
}

TEST(CudaDeltaRuleScan, BackwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DeltaCase& one : kDeltaCases) {
    Tensors tensors = delta_tensors(one, host);
    tensors.push_back(random_tensor(one.output_shape(), one.dtype, 7, host));
    tensors.push_back(one.first_state ? random_tensor(one.state_shape(), DType::kF32, 8, host)
                                      : Tensor{});
    for (std::size_t i = 0; i < 5; ++i) {
      tensors.push_back(tensors[i]
                            ? random_tensor(tensors[i].shape(), tensors[i].dtype(), 20 + i, host)
                            : Tensor{});
    }
    const GradientMode mode =
        one.length == 130 ? GradientMode::kAccumulate : GradientMode::kOverwrite;
    expect_like_cpu(tensors, delta_tolerance(one.dtype), text_of(one),
                    [&](const Tensors& t, const Stream& s) {
                      delta_rule_scan_backward({t[8], t[9], t[10], t[11], t[12], mode}, t[6], t[7],
                                               delta_input(t), one.spec, s);
                    });
  }
}

/// −e^200 overflows a float; multiplied by a step of 0 the result must be 0, not NaN.
TEST(CudaDeltaRuleScan, OverflowingRateStaysFinite) {
  const Stream host = cpu_stream();
  const DeltaCase one{.batch = 1, .length = 70, .spec = delta_spec(1, 2, 8, 12), .log_rate = 200};
  Tensors tensors = delta_tensors(one, host);
  const std::int64_t columns = tensors[1].size(2);
  tensors.push_back(random_tensor(one.output_shape(), one.dtype, 7, host));
  tensors.push_back(random_tensor(one.state_shape(), DType::kF32, 8, host));
  for (std::size_t i = 0; i < 5; ++i)
    tensors.push_back(random_tensor(tensors[i].shape(), tensors[i].dtype(), 20 + i, host));
  const auto run = [&](const Tensors& t, const Stream& s) {
    delta_rule_scan_backward({t[8], t[9], t[10], t[11], t[12]}, t[6], t[7], delta_input(t),
                             one.spec, s);
    delta_rule_scan_forward(t[6], t[7], delta_input(t), one.spec, s);
  };
  expect_like_cpu(tensors, delta_tolerance(one.dtype), text_of(one), run);
  for (std::int64_t t = 0; t < one.length; ++t)
    if (t % 3 != 0) tensors[1].data<float>()[(t + 1) * columns - 2] = -200;
  expect_finite_on_cuda(tensors, run);
  tensors[2].data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(first_on_cuda(tensors, 6, run))) << "of y";
}

TEST(CudaDeltaRuleScan, StepMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const DeltaRuleSpec spec = delta_spec(2, 4, 9, 35);
    expect_like_cpu(
        {random_tensor({2, spec.values()}, dtype, 1, host),
         random_tensor({3, 4, 9, 35}, DType::kF32, 2, host),
         random_tensor({2, spec.columns()}, dtype, 3, host), random_tensor({2, 11}, dtype, 4, host),
         random_tensor({4}, DType::kF32, 5, host), random_tensor({4}, DType::kF32, 6, host),
         tensor_of({2, 0}, {2}, DType::kI32, host)},
        delta_tolerance(dtype), name_of(dtype), [&](const Tensors& t, const Stream& s) {
          delta_rule_scan_step(t[0], t[1], t[2], t[3], t[4], t[5], t[6], spec, s);
        });
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
