#include <gtest/gtest.h>

#include <filesystem>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "tests/optim/late_parameters.h"

namespace hybrid_trainer {
namespace {

using testing::config_of;
using testing::distance;
using testing::Exact;
using testing::Late;
using testing::numbers;

constexpr std::int64_t kPiece = 100;  // divides two of the matrices

SpeculationSettings rounded(std::int64_t piece = kPiece, const char* side = "anticipated") {
  return {.device_side = side, .gradient_bits = 16, .piece_elements = piece};
}

/// The exact optimizer, given rounded gradients.
class ExactOfRounded {
 public:
  explicit ExactOfRounded(const OptimizerConfig& config)
      : optimizer_(make_optimizer(config, set_.pointers(), stream_)) {
    sink_.allocate(set_.pointers(), stream_);
    for (Parameter* parameter : set_.pointers()) parameter->compute_in(DType::kBF16, stream_);
  }
  void step() {
    rounded_.set_gradients(static_cast<std::uint64_t>(steps_));
    begin_gradients(set_.pointers(), sink_, 1);
    for (std::size_t i = 0; i < set_.size(); ++i) {
      const GradientContribution to(set_[i], stream_);
      kernels::cast(to.gradient(), rounded_[i].gradient(), stream_);
    }
    optimizer_->step(testing::rate_of_step(steps_++), testing::kScale, stream_);
  }
  std::vector<std::vector<float>> masters() {
    std::vector<std::vector<float>> all;
    for (Parameter* parameter : set_.pointers())
      all.push_back(numbers(parameter->master_in_place()));
    return all;
  }
  std::map<std::string, std::vector<float>> state() {
    std::map<std::string, std::vector<float>> all;
    optimizer_->visit_state(
        [&](const StateLabel& label, Tensor& tensor) { all[label.name] = numbers(tensor); });
    return all;
  }

 private:
  std::int64_t steps_ = 0;
  Stream stream_{MemoryPool::create("device")};
  testing::ParameterSet set_{stream_}, rounded_{stream_, 16};
  ResidentGradients sink_;
  std::unique_ptr<Optimizer> optimizer_;
};

std::map<std::string, std::vector<float>> named_state(Late& late) {
  std::map<std::string, std::vector<float>> all;
  late.optimizer_.visit_state(
      [&](const StateLabel& label, Tensor& tensor) { all[label.name] = numbers(tensor); });
  return all;
}

class RoundedUpdatesPerOptimizer : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, RoundedUpdatesPerOptimizer,
                         ::testing::Values("adamw", "muon"));

/// Also updates by pieces, whose state has the names and shapes of complete weights.
TEST_P(RoundedUpdatesPerOptimizer, KeepsExactWeightsAndStateBitwise) {
  for (const std::int64_t piece : {kPiece, std::int64_t{1} << 20}) {
    Late late(config_of(GetParam()), rounded(piece), nullptr, DType::kBF16);
    ExactOfRounded exact(config_of(GetParam()));
    for (int phase = 0; phase < 2; ++phase) {
      for (int i = 0; i < 3; ++i) late.step_now();
      for (int i = 0; i < 6; ++i) late.step_late();
      late.drain();
    }
    for (int i = 0; i < 18; ++i) exact.step();
    EXPECT_EQ(late.masters(), exact.masters());
    EXPECT_EQ(named_state(late), exact.state());
  }
}

TEST_P(RoundedUpdatesPerOptimizer, StateInFileMatchesHost) {
  const Stream file(
      make_file_pool({}, std::filesystem::temp_directory_path().string(), "memory.folder"));
  Late on_host(config_of(GetParam()), rounded(), nullptr),
      in_file(config_of(GetParam()), rounded(), &file);
  for (Late* late : {&on_host, &in_file}) {
    for (int i = 0; i < 2; ++i) late->step_now();
    for (int i = 0; i < 6; ++i) late->step_late();
  }
  EXPECT_EQ(on_host.live(), in_file.live());
  EXPECT_EQ(on_host.masters(), in_file.masters());
  EXPECT_LT(in_file.host_.pool()->use().live_total, on_host.host_.pool()->use().live_total / 4);
}

TEST_P(RoundedUpdatesPerOptimizer, ResumesFromSavedStateBitwise) {
  for (const int saved_after : {1, 2, 5}) {
    const OptimizerConfig config = config_of(GetParam());
    Late whole(config, rounded(), nullptr, DType::kBF16),
        first(config, rounded(), nullptr, DType::kBF16),
        second(config, rounded(), nullptr, DType::kBF16);
    for (int i = 0; i < 8; ++i) whole.step_late();
    for (int i = 0; i < saved_after; ++i) first.step_late();
    second.go_on_from(first);
    for (int i = saved_after; i < 8; ++i) second.step_late();
    EXPECT_EQ(second.live(), whole.live());
    EXPECT_EQ(second.masters(), whole.masters());
  }
}

/// Excludes the rounding, which is larger than an update here.
TEST_P(RoundedUpdatesPerOptimizer, MeasuresPredictionError) {
  const auto error_of = [&](const char* side) {
    Late late(config_of(GetParam()), rounded(kPiece, side), nullptr, DType::kBF16);
    for (int i = 0; i < 6; ++i) late.step_now();
    ArrivedUpdate arrived;
    for (int i = 0; i < 6; ++i) arrived = late.step_late();
    return arrived.prediction_error.value_or(-1);
  };
  EXPECT_NEAR(error_of("none"), 1, 1e-6);
  EXPECT_GT(error_of("anticipated"), 0.01);
  EXPECT_LT(error_of("anticipated"), 0.75);
}

TEST_P(RoundedUpdatesPerOptimizer, SkipsNonFiniteGradient) {
  Late skipping(config_of(GetParam()), rounded(), nullptr),
      other(config_of(GetParam()), rounded(), nullptr);
  for (int i = 0; i < 3; ++i) {
    skipping.step_late();
    other.step_late();
  }
  skipping.step_late(false);
  other.drain();
  EXPECT_EQ(skipping.live(), other.masters());
  skipping.drain();
  EXPECT_EQ(skipping.masters(), other.masters());
  EXPECT_EQ(skipping.optimizer_.steps_taken(), 3);
}

TEST(RoundedUpdates, LeavesWeightWithoutGradientUnchanged) {
  Late late(config_of("adamw"), rounded(), nullptr);
  const auto before = late.masters();
  for (int i = 0; i < 3; ++i) late.step_late(true, 5);
  late.drain();
  EXPECT_EQ(late.masters()[5], before[5]);
  EXPECT_NE(late.masters()[0], before[0]);
}

}  // namespace
}  // namespace hybrid_trainer
