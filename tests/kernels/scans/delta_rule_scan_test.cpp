#include "hybrid_trainer/kernels/scans.h"

#include <limits>

#include "src/core/machine.h"
#include "tests/kernels/scans/delta_rule_case.h"

namespace hybrid_trainer::kernels {
namespace {

const std::vector<DeltaCase>& delta_cases() {
  static const std::vector<DeltaCase> cases{
      {.batch = 1, .length = 1},
      {.batch = 2, .length = 2, .first_state = false},
      {.length = 63, .document = 20},
      {.length = 64, .spec = {2, 2, 32, 16}},
      {.length = 65, .spec = {2, 4, 17, 33}, .document = 30, .place = 7},
      {.batch = 1, .length = 200, .spec = {1, 3, 128, 128}, .first_state = false},
      {.length = 200, .spec = {1, 2, 24, 40}, .document = 64, .log_rate = 2},
      {.batch = 1, .length = 200, .spec = {1, 1, 64, 32}, .log_rate = -9},
      {.length = 130, .spec = {1, 1, 64, 32}, .log_rate = -6, .mean = 2},
      {.batch = 1, .length = 1000, .spec = {1, 2, 32, 16}}};
  return cases;
}

void expect_same_gradients(const DeltaRuleGradients& one, const DeltaRuleGradients& other) {
  for (const auto part :
       {&DeltaRuleGradients::qkv, &DeltaRuleGradients::gates, &DeltaRuleGradients::log_rate,
        &DeltaRuleGradients::step_bias, &DeltaRuleGradients::first_state}) {
    if (one.*part && other.*part) expect_same_bits(one.*part, other.*part);
  }
}

TEST(DeltaRuleOracle, GradientsMatchFiniteDifferences) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.batch = 1, .length = 5, .spec = {1, 2, 3, 2}, .document = 3, .place = 1};
  const DeltaUpstream up(scan, stream);
  const Values dy = values_of(up.dy), dlast = values_of(up.dlast);
  DeltaOracle oracle(scan, scan.input(stream));
  oracle.run_backward(dy, dlast);
  const auto objective = [&] {
    oracle.run();
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * oracle.y[i];
    for (std::size_t i = 0; i < dlast.size(); ++i) sum += dlast[i] * oracle.last[i];
    return sum;
  };
  const auto expect_derivative = [&](Values& values, const Values& derivative) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double kept = values[i];
      values[i] = kept + kStep;
      const double above = objective();
      values[i] = kept - kStep;
      const double below = objective();
      values[i] = kept;
      EXPECT_NEAR(derivative[i], (above - below) / (2 * kStep), 1e-8);
    }
  };
  expect_derivative(oracle.qkv, oracle.dqkv);
  expect_derivative(oracle.gates, oracle.dgates);
  expect_derivative(oracle.log_rate, oracle.dlog_rate);
  expect_derivative(oracle.step_bias, oracle.dstep_bias);
  expect_derivative(oracle.first, oracle.dfirst);
}

TEST(DeltaRuleScan, ForwardMatchesDoubleRecurrence) {
  const Stream stream = cpu_stream();
  for (const DeltaCase& scan : delta_cases()) {
    const DeltaRuleInput input = scan.input(stream);
    expect_oracle(scan, input, run_forward(scan, input, stream), 2e-6);
  }
}

TEST(DeltaRuleScan, GradientsMatchDoubleRecurrence) {
  const Stream stream = cpu_stream();
  for (const DeltaCase& scan : delta_cases()) {
    const DeltaRuleInput input = scan.input(stream);
    const DeltaUpstream up(scan, stream);
    expect_oracle(scan, input, up, run_backward(scan, input, up, stream), 1e-6);
  }
}

TEST(DeltaRuleScan, StaysAccurateOver4096Tokens) {
  const Stream stream = cpu_stream();
  for (const double log_rate : {-1.0, -8.0}) {
    const DeltaCase scan{.batch = 1, .length = 4096, .spec = {1, 1, 16, 16}, .log_rate = log_rate};
    const DeltaRuleInput input = scan.input(stream);
    const DeltaUpstream up(scan, stream);
    expect_oracle(scan, input, run_forward(scan, input, stream), 2e-6);
    expect_oracle(scan, input, up, run_backward(scan, input, up, stream), 1e-6);
  }
}

/// Results are rounded to 8 bits, sums are not.
TEST(DeltaRuleScan, MatchesReferenceInBf16) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{
      .length = 70, .spec = {2, 4, 32, 24}, .dtype = DType::kBF16, .document = 40, .place = 10};
  const DeltaRuleInput input = scan.input(stream);
  const DeltaUpstream up(scan, stream);
  expect_oracle(scan, input, run_forward(scan, input, stream), 0.004);
  expect_oracle(scan, input, up, run_backward(scan, input, up, stream), 0.004);
}

TEST(DeltaRuleScan, ThreadCountDoesNotChangeBits) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.length = 130, .spec = {2, 4, 16, 24}, .document = 50};
  const DeltaRuleInput input = scan.input(stream);
  const DeltaUpstream up(scan, stream);
  const DeltaResult first = run_forward(scan, input, stream);
  const DeltaRuleGradients first_gradients = run_backward(scan, input, up, stream);
  const int before = threads();
  for (const int count : {before, 1}) {
    set_threads(count);
    const DeltaResult again = run_forward(scan, input, stream);
    expect_same_bits(again.y, first.y);
    expect_same_bits(again.last, first.last);
    expect_same_gradients(run_backward(scan, input, up, stream), first_gradients);
  }
  set_threads(before);
}

/// Tokens [begin, end) of an array (B, T, columns).
Tensor tokens_of(const Tensor& whole, std::int64_t begin, std::int64_t end, const Stream& stream) {
  const std::int64_t columns = whole.size(2);
  Values values;
  const Values all = values_of(whole);
  for (std::int64_t b = 0; b < whole.size(0); ++b) {
    const auto row = all.begin() + b * whole.size(1) * columns;
    values.insert(values.end(), row + begin * columns, row + end * columns);
  }
  return tensor_of(values, {whole.size(0), end - begin, columns}, whole.dtype(), stream);
}

/// A sequence in two segments: passes the state forward and its gradient back.
TEST(DeltaRuleScan, SegmentsMatchWholeSequence) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.length = 200, .spec = {1, 2, 16, 24}};
  const DeltaRuleInput input = scan.input(stream);
  const DeltaUpstream up(scan, stream);
  const DeltaResult whole = run_forward(scan, input, stream);
  const DeltaRuleGradients wanted = run_backward(scan, input, up, stream);
  constexpr std::int64_t kCut = 128;
  DeltaCase early = scan, late = scan;
  early.length = kCut;
  late.length -= kCut;
  DeltaRuleInput early_input = input, late_input = input;
  early_input.qkv = tokens_of(input.qkv, 0, kCut, stream);
  early_input.gates = tokens_of(input.gates, 0, kCut, stream);
  late_input.qkv = tokens_of(input.qkv, kCut, scan.length, stream);
  late_input.gates = tokens_of(input.gates, kCut, scan.length, stream);
  const DeltaResult early_result = run_forward(early, early_input, stream);
  late_input.first_state = early_result.last;
  const DeltaResult late_result = run_forward(late, late_input, stream);
  expect_same_bits(early_result.y, tokens_of(whole.y, 0, kCut, stream));
  expect_same_bits(late_result.y, tokens_of(whole.y, kCut, scan.length, stream));
  expect_same_bits(late_result.last, whole.last);

  DeltaUpstream late_up = up, early_up = up;
  late_up.dy = tokens_of(up.dy, kCut, scan.length, stream);
  early_up.dy = tokens_of(up.dy, 0, kCut, stream);
  const DeltaRuleGradients late_gradients = run_backward(late, late_input, late_up, stream);
  early_up.dlast = late_gradients.first_state;
  DeltaRuleGradients gradients = late_gradients;
  gradients.qkv = Tensor::empty_like(early_input.qkv, MemoryKind::kActivations, stream);
  gradients.gates = clone(early_input.gates, stream);
  gradients.first_state = Tensor::empty_like(input.first_state, MemoryKind::kActivations, stream);
  gradients.mode = GradientMode::kAccumulate;
  delta_rule_scan_backward(gradients, early_up.dy, early_up.dlast, early_input, scan.spec, stream);
  expect_same_bits(gradients.qkv, tokens_of(wanted.qkv, 0, kCut, stream));
  expect_same_bits(late_gradients.qkv, tokens_of(wanted.qkv, kCut, scan.length, stream));
  expect_same_bits(gradients.gates, tokens_of(wanted.gates, 0, kCut, stream));
  expect_same_bits(gradients.first_state, wanted.first_state);
  expect_near(values_of(gradients.log_rate), values_of(wanted.log_rate), 1e-6, "dlog_rate");
  expect_near(values_of(gradients.step_bias), values_of(wanted.step_bias), 1e-6, "dstep_bias");
}

TEST(DeltaRuleScan, WritesOnlyRequestedOutputs) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.length = 70};
  const DeltaRuleInput input = scan.input(stream);
  const DeltaUpstream up(scan, stream);
  const DeltaRuleGradients all = run_backward(scan, input, up, stream);
  for (const auto part :
       {&DeltaRuleGradients::qkv, &DeltaRuleGradients::gates, &DeltaRuleGradients::log_rate,
        &DeltaRuleGradients::step_bias, &DeltaRuleGradients::first_state}) {
    DeltaRuleGradients one;
    one.*part = clone(all.*part, stream);
    if (part != &DeltaRuleGradients::gates) fill_zero(one.*part, stream);
    delta_rule_scan_backward(one, up.dy, up.dlast, input, scan.spec, stream);
    expect_same_gradients(one, all);
  }
  const DeltaResult result = run_forward(scan, input, stream);
  const Tensor y = Tensor::empty_like(result.y, MemoryKind::kActivations, stream);
  delta_rule_scan_forward(y, Tensor(), input, scan.spec, stream);
  expect_same_bits(y, result.y);
}

/// An undefined first state or gradient of the last state counts as zeros.
TEST(DeltaRuleScan, TreatsUndefinedStateAsZeros) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.length = 70};
  DeltaRuleInput input = scan.input(stream);
  fill_zero(input.first_state, stream);
  DeltaUpstream up(scan, stream);
  fill_zero(up.dlast, stream);
  const DeltaResult result = run_forward(scan, input, stream);
  const DeltaRuleGradients gradients = run_backward(scan, input, up, stream);
  up.dlast = Tensor();
  input.first_state = Tensor();
  expect_same_bits(run_forward(scan, input, stream).y, result.y);
  expect_same_gradients(run_backward(scan, input, up, stream), gradients);
}

/// The state restarts if e^g is 0 in f32. Neighboring tokens keep their precision.
TEST(DeltaRuleScan, OverflowingDecayResetsState) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.length = 80, .spec = {1, 2, 16, 8}};
  const DeltaRuleInput input = scan.input(stream);
  const std::int64_t columns = input.gates.size(2);
  for (const std::int64_t t : {0, 9, 30, 31, 70}) {
    for (std::int64_t h = 0; h < 2; ++h) {
      float& a = input.gates.data<float>()[(t + 1) * columns - 2 + h];
      a = t == 9 ? std::numeric_limits<float>::infinity() : t == 30 ? 3e38f : 1e5f;
    }
  }
  input.gates.data<float>()[50 * columns - 2] = 300;  // about e^-50, nearly 0
  const DeltaUpstream up(scan, stream);
  const DeltaResult result = run_forward(scan, input, stream);
  const DeltaRuleGradients gradients = run_backward(scan, input, up, stream);
  for (std::int64_t h = 0; h < 2; ++h)  // the oracle does not support infinity
    input.gates.data<float>()[10 * columns - 2 + h] = 3e38f;
  expect_oracle(scan, input, result, 2e-6);
  const Tensor& gates = gradients.gates;
  for (std::int64_t h = 0; h < 2; ++h) EXPECT_EQ(gates.data<float>()[10 * columns - 2 + h], 0);
  expect_oracle(scan, input, up, gradients, 1e-6);
  input.log_rate.data<float>()[0] = 200;  // e^200 overflows to infinity
  const DeltaRuleGradients of_infinite = run_backward(scan, input, up, stream);
  EXPECT_TRUE(std::isfinite(run_forward(scan, input, stream).y.data<float>()[0]));
  EXPECT_TRUE(std::isfinite(of_infinite.qkv.data<float>()[0]));
  EXPECT_EQ(of_infinite.gates.data<float>()[columns - 2], 0);
  EXPECT_EQ(of_infinite.log_rate.data<float>()[0], 0);
}

TEST(DeltaRuleScan, SupportsTinyKeysAndQueries) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.batch = 1, .length = 20, .spec = {1, 1, 16, 8}};
  const DeltaRuleInput input = scan.input(stream);
  for (std::int64_t i = 0; i < 20 * scan.spec.columns(); ++i)
    input.qkv.data<float>()[i] *= i < 200 ? 0.0f : 1e-4f;
  const DeltaUpstream up(scan, stream);
  expect_oracle(scan, input, run_forward(scan, input, stream), 2e-6);
  expect_oracle(scan, input, up, run_backward(scan, input, up, stream), 1e-6);
}

TEST(DeltaRuleScan, NaNPropagatesToLaterTokens) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.batch = 1, .length = 130, .spec = {1, 1, 16, 8}};
  const DeltaRuleInput input = scan.input(stream);
  input.qkv.data<float>()[70 * scan.spec.columns() + 35] = std::nanf("");
  const DeltaResult result = run_forward(scan, input, stream);
  for (std::int64_t t = 0; t < 64; ++t)
    EXPECT_TRUE(std::isfinite(result.y.data<float>()[t * 8 + 3]));
  for (std::int64_t t = 70; t < 130; ++t)
    EXPECT_TRUE(std::isnan(result.y.data<float>()[t * 8 + 3]));
  EXPECT_TRUE(std::isnan(result.last.data<float>()[3]));
}

/// One token of each of several texts, in larger caches.
struct DeltaStep {
  Tensor y, state;
};
DeltaStep run_step(const DeltaCase& scan, const DeltaRuleInput& input, std::int64_t t,
                   const Values& texts, const Tensor& state, const Stream& stream) {
  const auto rows = static_cast<std::int64_t>(texts.size());
  const Tensor qkv = tokens_of(input.qkv, t, t + 1, stream).view({rows, input.qkv.size(2)}),
               gates = tokens_of(input.gates, t, t + 1, stream).view({rows, input.gates.size(2)}),
               y = Tensor::empty({rows, scan.spec.values()}, scan.dtype, MemoryKind::kActivations,
                                 stream);
  delta_rule_scan_step(y, state, qkv, gates, input.log_rate, input.step_bias,
                       tensor_of(texts, {rows}, DType::kI32, stream), scan.spec, stream);
  return {y, state};
}

TEST(DeltaRuleScan, StepsMatchWholeSequence) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const DeltaCase scan{.batch = 2, .length = 70, .spec = {2, 4, 16, 24}, .dtype = dtype};
    const DeltaRuleInput input = scan.input(stream);
    const DeltaResult whole = run_forward(scan, input, stream);
    const Tensor state = random_tensor({3, 4, 16, 24}, DType::kF32, 12, stream);
    const std::int64_t size = state.elements() / 3;
    const Values texts{2, 0};
    for (std::int64_t b = 0; b < 2; ++b)
      std::copy_n(input.first_state.data<float>() + b * size, size,
                  state.data<float>() +
                      static_cast<std::int64_t>(texts[static_cast<std::size_t>(b)]) * size);
    const Values before = values_of(state);
    const Values wanted = values_of(whole.y);
    const auto width = static_cast<std::size_t>(scan.spec.values());
    for (std::int64_t t = 0; t < scan.length; ++t) {
      Values of_token;
      for (std::int64_t b = 0; b < 2; ++b) {
        const auto row = wanted.begin() + (b * scan.length + t) * scan.spec.values();
        of_token.insert(of_token.end(), row, row + static_cast<std::int64_t>(width));
      }
      expect_near(values_of(run_step(scan, input, t, texts, state, stream).y), of_token,
                  dtype == DType::kF32 ? 4e-6 : 0.008, concat("token ", t));
    }
    const Values after = values_of(state), last = values_of(whole.last);
    expect_near(Values(after.begin() + 2 * size, after.end()),
                Values(last.begin(), last.begin() + size), 2e-6, "state of text 2");
    EXPECT_TRUE(std::equal(after.begin() + size, after.begin() + 2 * size, before.begin() + size));
  }
}

TEST(DeltaRuleScan, StepRowBitsDoNotDependOnOtherRows) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.batch = 3, .length = 1, .spec = {1, 2, 17, 33}};
  const DeltaRuleInput input = scan.input(stream);
  const Tensor state = clone(input.first_state, stream);
  const DeltaStep all = run_step(scan, input, 0, {2, 0, 1}, state, stream);
  const DeltaCase alone{.batch = 1, .length = 1, .spec = scan.spec};
  DeltaRuleInput row = input;
  const std::int64_t columns = input.qkv.size(2), gates = input.gates.size(2);
  row.qkv = Tensor::empty({1, 1, columns}, DType::kF32, MemoryKind::kActivations, stream);
  row.gates = Tensor::empty({1, 1, gates}, DType::kF32, MemoryKind::kActivations, stream);
  std::copy_n(input.qkv.data<float>() + 2 * columns, columns, row.qkv.data<float>());
  std::copy_n(input.gates.data<float>() + 2 * gates, gates, row.gates.data<float>());
  const DeltaStep one = run_step(alone, row, 0, {1}, clone(input.first_state, stream), stream);
  EXPECT_EQ(std::memcmp(one.y.raw(), all.y.data<float>() + 2 * scan.spec.values(), one.y.bytes()),
            0);
  const std::int64_t size = state.elements() / 3;
  EXPECT_EQ(std::memcmp(one.state.data<float>() + size, all.state.data<float>() + size,
                        static_cast<std::size_t>(size) * sizeof(float)),
            0);
}

TEST(DeltaRuleScan, RefusesMismatchedShapes) {
  const Stream stream = cpu_stream();
  const DeltaCase scan{.length = 3};
  const DeltaRuleInput input = scan.input(stream);
  const auto refuses = [&](const DeltaRuleInput& wrong, DeltaRuleSpec spec) {
    const Tensor y =
        Tensor::empty(scan.output_shape(), scan.dtype, MemoryKind::kActivations, stream);
    EXPECT_THROW(delta_rule_scan_forward(y, Tensor(), wrong, spec, stream), ShapeMismatch);
  };
  refuses(input, {2, 3, 16, 24});
  refuses(input, {1, 2, 0, 24});
  refuses(input, {1, 2, 16, 25});
  DeltaRuleInput wrong = input;
  wrong.gates = random_tensor({2, 3, 3}, DType::kF32, 1, stream);
  refuses(wrong, scan.spec);
  wrong = input;
  wrong.log_rate = random_tensor({1}, DType::kF32, 1, stream);
  refuses(wrong, scan.spec);
  wrong = input;
  wrong.first_state = random_tensor({1, 2, 16, 24}, DType::kF32, 1, stream);
  refuses(wrong, scan.spec);
  wrong = input;
  wrong.positions = random_ids({2, 4}, 3, 1, stream);
  refuses(wrong, scan.spec);
  const DeltaUpstream up(scan, stream);
  DeltaRuleGradients gradients;
  gradients.step_bias = random_tensor({3}, DType::kF32, 1, stream);
  EXPECT_THROW(delta_rule_scan_backward(gradients, up.dy, up.dlast, input, scan.spec, stream),
               ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
