#include "hybrid_trainer/kernels/state_space_scan.h"

#include "hybrid_trainer/core/processor.h"
#include "kernels/state_space_case.h"

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
        tensor_of(columns_of(all, width, begin, end), {rows, end - begin}, DType::kF32, stream),
        columns_of(wanted, width, begin, end), tolerance, what);
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
  expect_near_largest(got.log_rate, wanted.log_rate, 1e-6, "dlog_rate");
  expect_near_largest(got.step_bias, wanted.step_bias, 1e-6, "dstep_bias");
}

TEST(StateSpaceScan, MatchesTheRecurrenceAtAnyLength) {
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

}  // namespace
}  // namespace hybrid_trainer::kernels
