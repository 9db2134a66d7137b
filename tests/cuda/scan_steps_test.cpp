// Requirements of generation on the steps of convolutions and scans: they can be recorded, and a
// text's bits do not depend on the other texts.

#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/scans.h"
#include "src/core/recording.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

const StateSpaceSpec kSteppedStateSpace{.heads = 4, .head_size = 3, .groups = 2, .state_size = 5};
const DeltaRuleSpec kSteppedDeltaRule{
    .key_heads = 1, .value_heads = 2, .key_size = 6, .value_size = 5};

/// One step of two of three texts. Tensors: y, the states of the texts, inputs with one row per
/// text, the indices of the texts, and shared tensors.
struct ScanStep {
  const char* kernel;
  std::int64_t columns;
  Shape state;
  std::vector<std::int64_t> inputs;  // columns of a row
  std::vector<Shape> shared;
  std::function<void(const Tensors&, const Stream&)> call;

  std::size_t texts() const { return 2 + inputs.size(); }
  Tensors tensors(const Stream& host) const {
    std::uint64_t seed = 1;
    const auto random = [&](const Shape& shape, DType dtype) {
      return random_tensor(shape, dtype, seed++, host);
    };
    Tensors all{random({2, columns}, DType::kBF16),
                random(state, state.rank() == 3 ? DType::kBF16 : DType::kF32)};
    for (const std::int64_t width : inputs) all.push_back(random({2, width}, DType::kBF16));
    all.push_back(tensor_of({2, 0}, {2}, DType::kI32, host));
    for (const Shape& shape : shared) all.push_back(random(shape, DType::kF32));
    return all;
  }
};

const std::vector<ScanStep> kScanSteps{
    {"causal_convolution_step",
     8,
     {3, 3, 8},
     {16},
     {{8, 4}, {8}},
     [](const Tensors& t, const Stream& s) {
       causal_convolution_step(t[0], t[1], t[2], 8, t[4], t[5], t[3], {}, s);
     }},
    {"state_space_scan_step",
     kSteppedStateSpace.values(),
     {3, 4, 3, 5},
     {kSteppedStateSpace.columns(), 6},
     {{4}, {4}, {4}},
     [](const Tensors& t, const Stream& s) {
       state_space_scan_step(t[0], t[1], t[2], t[3], t[5], {t[6], t[7]}, t[4], kSteppedStateSpace,
                             s);
     }},
    {"delta_rule_scan_step",
     kSteppedDeltaRule.values(),
     {3, 2, 6, 5},
     {kSteppedDeltaRule.columns(), 4},
     {{2}, {2}},
     [](const Tensors& t, const Stream& s) {
       delta_rule_scan_step(t[0], t[1], t[2], t[3], t[5], t[6], t[4], kSteppedDeltaRule, s);
     }},
};

TEST(CudaScanSteps, ReplayMatchesLaunchBitForBit) {
  const Stream host = cpu_stream(), stream = cuda_stream();
  for (const ScanStep& step : kScanSteps) {
    SCOPED_TRACE(step.kernel);
    const Tensors direct = copies_to(step.tensors(host), stream),
                  replayed = copies_to(step.tensors(host), stream);
    const Recording recording(stream, [&](const Stream& s) { step.call(replayed, s); });
    for (int i = 0; i < 2; ++i) {
      step.call(direct, stream);
      recording.replay(stream);
    }
    for (const std::size_t i : {0, 1})
      expect_same_bits(wait_for_host(replayed[i], stream), wait_for_host(direct[i], stream));
  }
}

TEST(CudaScanSteps, TextBitsDoNotDependOnOtherTexts) {
  const Stream host = cpu_stream(), stream = cuda_stream();
  for (const ScanStep& step : kScanSteps) {
    SCOPED_TRACE(step.kernel);
    const Tensors both = copies_to(step.tensors(host), stream);
    Tensors alone = copies_to(step.tensors(host), stream);
    for (std::size_t i = 0; i <= step.texts(); ++i) {
      if (i != 1) alone[i] = alone[i].rows(1, 2);
    }
    step.call(both, stream);
    step.call(alone, stream);
    expect_same_bits(wait_for_host(alone[0], stream), wait_for_host(both[0].rows(1, 2), stream));
    expect_same_bits(wait_for_host(alone[1].rows(0, 1), stream),
                     wait_for_host(both[1].rows(0, 1), stream));
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
