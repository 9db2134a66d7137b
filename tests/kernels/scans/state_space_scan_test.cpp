#include "hybrid_trainer/kernels/scans.h"

#include "src/core/machine.h"
#include "tests/kernels/scans/state_space_case.h"

namespace hybrid_trainer::kernels {
namespace {

using Options = ScanCase::Options;

StateSpaceSpec spec_of(std::int64_t heads, std::int64_t head_size, std::int64_t groups,
                       std::int64_t state_size) {
  StateSpaceSpec spec;
  spec.heads = heads;
  spec.head_size = head_size;
  spec.groups = groups;
  spec.state_size = state_size;
  return spec;
}

void expect_outputs(const ScanCase& c, const ScanOracle& oracle, double tolerance,
                    const Stream& stream) {
  c.forward(stream);
  expect_near_largest(c.y, oracle.y, tolerance, "y");
  expect_near_largest(c.last_state, oracle.last_state, std::min(tolerance, 2e-6), "last state");
}

void expect_value_gradients(const ScanCase& c, const Tensor& dvalues, const Values& wanted,
                            double tolerance, const Stream& stream) {
  const std::int64_t width = c.spec.columns(), x = c.spec.values(), rows = c.batch * c.time,
                     keys = x + c.spec.groups * c.spec.state_size;
  const Values all = values_of(dvalues);
  for (const auto& [what, begin, end] :
       {std::tuple{"dx", std::int64_t{0}, x}, {"dB", x, keys}, {"dC", keys, width}}) {
    expect_near_largest(
        tensor_of(scan_columns(all, width, begin, end), {rows, end - begin}, DType::kF32, stream),
        scan_columns(wanted, width, begin, end), tolerance, what);
  }
}

void expect_gradients(const ScanCase& c, const ScanOracle& oracle, double tolerance,
                      const Stream& stream) {
  const StateSpaceGradients got = c.backward(stream);
  const ScanGradients& wanted = oracle.gradients;
  expect_value_gradients(c, got.values, wanted.values, tolerance, stream);
  expect_near_largest(got.first_state, wanted.first_state, 1e-6, "dfirst_state");
  if (got.skip) expect_near_largest(got.skip, wanted.skip, 1e-6, "dskip");
  if (!got.steps) return;
  expect_near_largest(got.steps, wanted.steps, tolerance, "dsteps");
  expect_near_largest(got.log_rate, wanted.log_rate, 2e-6, "dlog_rate", wanted.log_rate_size);
  expect_near_largest(got.step_bias, wanted.step_bias, 2e-6, "dstep_bias", wanted.step_bias_size);
}

TEST(StateSpaceScan, MatchesRecurrenceAtAnyLength) {
  const Stream stream = cpu_stream();
  for (const std::int64_t time : {1, 2, 63, 64, 65, 200}) {
    for (const auto& spec : {spec_of(2, 32, 1, 16), spec_of(4, 5, 2, 11), spec_of(2, 64, 1, 128)}) {
      SCOPED_TRACE(concat(time, " tokens, ", spec.heads, " heads"));
      const ScanCase c(spec, {2, time}, DType::kF32, stream);
      const ScanOracle oracle(c);
      expect_outputs(c, oracle, 2e-6, stream);
      expect_gradients(c, oracle, 1e-6, stream);
    }
  }
}

/// Documents, states, limits and order, each separately and all together.
std::vector<std::pair<StateSpaceSpec, Options>> all_options() {
  const StateSpaceSpec plain = spec_of(4, 32, 2, 16);
  StateSpaceSpec reversed = plain, shifted = plain, limited = plain, all = spec_of(6, 9, 3, 20);
  reversed.reversed = all.reversed = true;
  shifted.shifted = all.shifted = true;
  limited.least_step = all.least_step = 0.03f;
  limited.most_step = all.most_step = 0.08f;
  Options options{.batch = 2, .time = 150}, bare = options, states = options, documents = options,
                                            both = options;
  bare.decays = bare.skips = false;
  states.states = both.states = true;
  documents.documents = both.documents = true;
  return {{plain, bare},      {plain, states}, {plain, documents}, {reversed, documents},
          {reversed, states}, {shifted, both}, {limited, states},  {all, both},
          {shifted, bare},    {all, states}};
}

TEST(StateSpaceScan, MatchesRecurrenceWithAllOptions) {
  const Stream stream = cpu_stream();
  std::size_t index = 0;
  for (const auto& [spec, options] : all_options()) {
    SCOPED_TRACE(concat("case ", index++));
    const ScanCase c(spec, options, DType::kF32, stream);
    const ScanOracle oracle(c);
    expect_outputs(c, oracle, 2e-6, stream);
    expect_gradients(c, oracle, 1e-6, stream);
  }
}

TEST(StateSpaceScan, MatchesRecurrenceOverLongSequences) {
  const Stream stream = cpu_stream();
  for (const std::int64_t time : {1000, 4096}) {
    const ScanCase c(spec_of(2, 32, 1, 16), {.time = time}, DType::kF32, stream);
    const ScanOracle oracle(c);
    expect_outputs(c, oracle, 2e-6, stream);
    expect_gradients(c, oracle, 1e-6, stream);
  }
}

TEST(StateSpaceScan, MatchesRecurrenceInBf16) {
  const Stream stream = cpu_stream();
  for (const bool documents : {false, true}) {
    const ScanCase c(spec_of(4, 32, 2, 16),
                     {.batch = 2, .time = 130, .states = true, .documents = documents},
                     DType::kBF16, stream);
    const ScanOracle oracle(c);
    expect_outputs(c, oracle, 4e-3, stream);
    expect_gradients(c, oracle, 4e-3, stream);
  }
}

/// The oracle's gradients are the derivatives of its own sums.
TEST(StateSpaceScan, OracleMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  for (const bool shifted : {false, true}) {
    StateSpaceSpec spec = spec_of(2, 3, 1, 2);
    spec.shifted = shifted;
    const ScanCase c(spec, {.time = 5, .states = true}, DType::kF32, stream);
    const ScanGradients wanted = ScanOracle(c).gradients;
    Values weights = values_of(c.dy);
    for (const double value : values_of(c.dlast_state)) weights.push_back(value);
    const auto outputs = [&] {
      const ScanOracle oracle(c);
      Values result = oracle.y;
      result.insert(result.end(), oracle.last_state.begin(), oracle.last_state.end());
      return result;
    };
    const auto expect = [&](const Tensor& x, const Values& gradient, std::size_t from) {
      const Values differences = finite_differences(x, weights, 1e-3, outputs);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        EXPECT_TRUE(i % 5 < from || std::abs(gradient[i] - differences[i]) < 1e-6)
            << i << ": " << gradient[i] << ", want " << differences[i];
    };
    expect(c.input.values, wanted.values, 0);
    expect(c.input.steps, wanted.steps, 3);
    expect(c.input.skip, wanted.skip, 0);
    expect(c.decay.log_rate, wanted.log_rate, 0);
    expect(c.decay.step_bias, wanted.step_bias, 0);
    expect(c.input.first_state, wanted.first_state, 0);
  }
}

TEST(StateSpaceScan, KeepsOtherColumnsAndAccumulatesGradients) {
  const Stream stream = cpu_stream();
  const ScanCase c(spec_of(4, 8, 2, 16), {.batch = 3, .time = 70}, DType::kF32, stream);
  const StateSpaceGradients first = c.backward(stream);
  for (std::int64_t i = 0; i < first.steps.elements(); ++i)
    ASSERT_TRUE(i % 7 >= 3 || first.steps.data<float>()[i] == c.input.steps.data<float>()[i]) << i;
  StateSpaceGradients more = c.gradients(stream);
  more.mode = GradientMode::kAccumulate;
  state_space_scan_backward(more, c.dy, c.dlast_state, c.input, c.decay, c.spec, stream);
  expect_same_bits(more.values, first.values);
  const auto expect_sum = [&](const Tensor& sum, const Tensor& before, const Tensor& added) {
    Values wanted = values_of(before);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += values_of(added)[i];
    expect_close(sum, wanted, 1e-6);
  };
  expect_sum(more.skip, c.input.skip, first.skip);
  expect_sum(more.log_rate, c.decay.log_rate, first.log_rate);
  expect_sum(more.step_bias, c.decay.step_bias, first.step_bias);
  state_space_scan_backward({}, c.dy, c.dlast_state, c.input, c.decay, c.spec, stream);  // none
}

TEST(StateSpaceScan, SegmentsMatchWholeSequence) {
  const Stream stream = cpu_stream();
  const StateSpaceSpec spec = spec_of(2, 32, 1, 16);
  const ScanCase whole(spec, {.time = 192, .states = true}, DType::kF32, stream);
  whole.forward(stream);
  const StateSpaceGradients wanted = whole.backward(stream);
  ScanCase first = whole, second = whole;
  const auto rows = [](const Tensor& x, std::int64_t begin, std::int64_t end) {
    return x.view({x.size(1), x.size(2)}).rows(begin, end).view({1, end - begin, x.size(2)});
  };
  const auto cut = [&](ScanCase& c, std::int64_t begin, std::int64_t end) {
    c.time = end - begin;
    c.input.values = clone(rows(whole.input.values, begin, end), stream);
    c.input.steps = clone(rows(whole.input.steps, begin, end), stream);
    c.dy = clone(rows(whole.dy, begin, end), stream);
    c.y = Tensor::empty_like(c.dy, MemoryKind::kActivations, stream);
    c.last_state = clone(whole.last_state, stream);
  };
  cut(first, 0, 100), cut(second, 100, 192);
  first.forward(stream);
  second.input.first_state = first.last_state;
  second.forward(stream);
  expect_near_largest(second.y, values_of(rows(whole.y, 100, 192)), 1e-6, "y");
  expect_near_largest(second.last_state, values_of(whole.last_state), 1e-6, "last state");
  const StateSpaceGradients later = second.backward(stream);
  first.dlast_state = later.first_state;
  const StateSpaceGradients earlier = first.backward(stream);
  expect_near_largest(earlier.values, values_of(rows(wanted.values, 0, 100)), 1e-6, "dvalues");
  expect_near_largest(later.values, values_of(rows(wanted.values, 100, 192)), 1e-6, "dvalues");
  expect_near_largest(earlier.first_state, values_of(wanted.first_state), 1e-6, "dfirst_state");
}

TEST(StateSpaceScan, StepsMatchChunksForAnyBatch) {
  const Stream stream = cpu_stream();
  for (const bool shifted : {false, true}) {
    StateSpaceSpec spec = spec_of(4, 9, 2, 20);
    spec.shifted = shifted;
    spec.most_step = 0.1f;
    const ScanCase c(spec, {.batch = 2, .time = 70, .states = true}, DType::kF32, stream);
    c.forward(stream);
    const Tensor state = clone(c.input.first_state, stream), alone = clone(state, stream);
    const Tensor texts = tensor_of({1, 0}, {2}, DType::kI32, stream),
                 text = tensor_of({1}, {1}, DType::kI32, stream);
    Values wanted, got;
    const auto row = [&](const Tensor& x, std::int64_t b, std::int64_t t) {
      return x.view({2 * 70, x.size(2)}).rows(b * 70 + t, b * 70 + t + 1);
    };
    const auto both = [&](const Tensor& x, std::int64_t t) {
      Values values = values_of(row(x, 1, t));
      for (const double value : values_of(row(x, 0, t))) values.push_back(value);
      return tensor_of(values, {2, x.size(2)}, DType::kF32, stream);
    };
    for (std::int64_t t = 0; t < 70; ++t) {
      const Tensor y = both(c.y, t), one = clone(row(c.y, 1, t), stream);
      for (const double value : values_of(y)) wanted.push_back(value);
      state_space_scan_step(y, state, both(c.input.values, t), both(c.input.steps, t), c.input.skip,
                            c.decay, texts, spec, stream);
      state_space_scan_step(one, alone, row(c.input.values, 1, t), row(c.input.steps, 1, t),
                            c.input.skip, c.decay, text, spec, stream);
      expect_same_bits(y.rows(0, 1), one);
      for (const double value : values_of(y)) got.push_back(value);
    }
    const auto count = static_cast<std::int64_t>(got.size());
    expect_near_largest(tensor_of(got, {count}, DType::kF32, stream), wanted, 1e-6, "y");
    expect_near_largest(state, values_of(c.last_state), 1e-6, "state");
  }
}

/// A group that is several tasks if there are several threads.
TEST(StateSpaceScan, RepeatsBitForBit) {
  const Stream stream = cpu_stream();
  const int all = threads();
  for (const int count : {1, all}) {
    set_threads(count);
    const ScanCase c(spec_of(24, 32, 1, 16), {.time = 130}, DType::kF32, stream);
    const ScanOracle oracle(c);
    expect_outputs(c, oracle, 2e-6, stream);
    expect_gradients(c, oracle, 1e-6, stream);
    const Tensor y = clone(c.y, stream);
    const StateSpaceGradients first = c.backward(stream), second = c.backward(stream);
    c.forward(stream);
    expect_same_bits(y, c.y);
    expect_same_bits(first.values, second.values);
    expect_same_bits(first.steps, second.steps);
    expect_same_bits(first.log_rate, second.log_rate);
  }
  set_threads(all);
}

/// e^89 overflows a float: the state vanishes without a NaN.
TEST(StateSpaceScan, OverflowingRateClearsState) {
  const Stream stream = cpu_stream();
  const ScanCase c(spec_of(2, 4, 1, 8), {.time = 70, .states = true}, DType::kF32, stream);
  for (const float log_rate : {89.0f, 20.0f}) {
    for (std::int64_t h = 0; h < 2; ++h) c.decay.log_rate.data<float>()[h] = log_rate;
    const ScanOracle oracle(c);
    expect_outputs(c, oracle, 2e-6, stream);
    const StateSpaceGradients got = c.backward(stream);
    for (const Tensor& gradient : {got.values, got.steps, got.log_rate, got.step_bias})
      for (const double value : values_of(gradient)) ASSERT_TRUE(std::isfinite(value));
    if (log_rate < 80) expect_gradients(c, oracle, 1e-6, stream);
    for (const double value : values_of(got.log_rate)) EXPECT_EQ(value, 0);
    const Tensor state = clone(c.input.first_state, stream);
    const Tensor y = Tensor::empty({1, 8}, DType::kF32, MemoryKind::kActivations, stream);
    const auto first = [](const Tensor& x) { return x.view({70, x.size(2)}).rows(0, 1); };
    state_space_scan_step(y, state, first(c.input.values), first(c.input.steps), c.input.skip,
                          c.decay, tensor_of({0}, {1}, DType::kI32, stream), c.spec, stream);
    expect_near_largest(y, values_of(first(c.y)), 1e-6, "y of a step");
  }
}

/// A step so large that it erases the state must not reduce the precision of later tokens.
TEST(StateSpaceScan, LargeStepKeepsPrecisionOfLaterTokens) {
  const Stream stream = cpu_stream();
  const ScanCase c(spec_of(1, 4, 1, 8), {.time = 64}, DType::kF32, stream);
  for (std::int64_t t = 0; t < 64; ++t)
    c.input.steps.data<float>()[t * 4 + 3] = t == 3 ? 1e5f : -2.0f;
  std::fill_n(c.input.values.data<float>() + 3 * c.spec.columns(), 4, 0.0f);  // adds nothing
  const ScanOracle oracle(c);
  expect_outputs(c, oracle, 2e-6, stream);
  expect_gradients(c, oracle, 1e-6, stream);
}

TEST(StateSpaceScan, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const ScanCase c(spec_of(4, 3, 2, 5), {.time = 4, .states = true}, DType::kF32, stream);
  const auto forward = [&](const auto& change) {
    ScanCase other = c;
    change(other);
    other.forward(stream);
  };
  EXPECT_NO_THROW(forward([](ScanCase&) {}));
  EXPECT_THROW(forward([](ScanCase& o) { o.spec.groups = 3; }), ShapeMismatch);
  EXPECT_THROW(forward([](ScanCase& o) { o.spec.state_size = 4; }), ShapeMismatch);
  EXPECT_THROW(forward([](ScanCase& o) { o.spec.most_step = -1; }), ShapeMismatch);
  EXPECT_THROW(forward([](ScanCase& o) { o.input.first_state = o.input.skip; }), ShapeMismatch);
  EXPECT_THROW(forward([](ScanCase& o) { o.input.steps = Tensor(); }), Error);
  EXPECT_THROW(forward([](ScanCase& o) { o.decay.log_rate = o.y; }), ShapeMismatch);
  EXPECT_THROW(forward([](ScanCase& o) { o.y = o.input.values; }), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
