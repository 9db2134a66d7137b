#include "src/optim/experiments/selective_updates.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/optim/late_parameters.h"

namespace hybrid_trainer {
namespace {

using testing::config_of;
using testing::distance;
using testing::Exact;
using testing::Late;
using testing::numbers;

SpeculationSettings selective(std::int64_t lag) { return {.lag = lag, .device_side = "selective"}; }

/// A weight of one row and ten columns, one of which is selected, and a gradient of ones with one
/// larger column. Lion without decay moves each element by the rate.
class OneRow {
 public:
  explicit OneRow(std::int64_t lag)
      : lag_(lag),
        host_(MemoryPool::create("host")),
        device_(MemoryPool::create("device")),
        weight_("w", {1, 10}, Role::kMatrix, device_),
        owner_(make_speculative_optimizer(config(), {&weight_}, selective(lag), device_,
                                          host_.pool(), host_)) {
    sink_.allocate({&weight_}, device_);
  }
  std::vector<float> step(std::size_t largest, bool finite = true) {
    const std::vector<float> rates(static_cast<std::size_t>(lag_), 1.0f);
    optimizer_.begin_lag(rates, device_);
    begin_gradients({&weight_}, sink_, 1);
    {
      const GradientContribution to(weight_, device_);
      std::fill_n(to.gradient().data<float>(), 10, 1.0f);
      to.gradient().data<float>()[largest] = finite ? 5.0f : std::nanf("");
    }
    optimizer_.wait_for_delayed_step({finite, 1, 1, rates}, device_);
    return numbers(weight_.acquire_master(device_));
  }
  std::vector<float> drained() {
    optimizer_.wait_for_exact_weights(device_);
    return numbers(weight_.master_in_place());
  }

 private:
  static OptimizerConfig config() {
    OptimizerConfig config = config_of("lion");
    config.weight_decay = 0;
    return config;
  }
  std::int64_t lag_;
  Stream host_, device_;
  Parameter weight_;
  ResidentGradients sink_;
  std::unique_ptr<SpeculativeOptimizer> owner_;
  SpeculativeOptimizer& optimizer_ = *owner_;
};

/// All ten columns: `rest`, except those in `apart`.
std::vector<float> row_of(float rest, const std::map<std::size_t, float>& apart = {}) {
  std::vector<float> values(10, rest);
  for (const auto& [column, value] : apart) values[column] = value;
  return values;
}

TEST(SelectiveUpdates, UpdatesLargestColumnFirstAndRestByMean) {
  OneRow weight(2);
  EXPECT_EQ(weight.step(7), row_of(0, {{0, -1}}));  // zero momentum selects the first column
  EXPECT_EQ(weight.step(7), row_of(0, {{0, -2}}));
  EXPECT_EQ(weight.step(4), row_of(0, {{0, -3}}));
  // Window 0 arrives: one update of the rest. Column 7, its largest, gets both updates since.
  EXPECT_EQ(weight.step(4), row_of(-1, {{0, -2}, {7, -3}}));
  EXPECT_EQ(weight.step(2), row_of(-1, {{0, -2}, {7, -4}}));
  EXPECT_EQ(weight.step(2), row_of(-2, {{0, -3}, {7, -3}, {4, -4}}));
  EXPECT_EQ(weight.step(2), row_of(-2, {{0, -3}, {7, -3}, {4, -5}}));
  // Window 2 has two steps, in which column 4 was selected; window 3 has one, with column 2.
  EXPECT_EQ(weight.drained(), row_of(-4, {{0, -5}, {7, -5}, {4, -5}}));
}

TEST(SelectiveUpdates, WithDelayOneSelectsAgainEachStep) {
  OneRow weight(1);
  EXPECT_EQ(weight.step(7), row_of(0, {{0, -1}}));
  EXPECT_EQ(weight.step(4), row_of(-1, {{7, -2}}));
  EXPECT_EQ(weight.step(4), row_of(-2, {{4, -3}}));
  EXPECT_EQ(weight.drained(), row_of(-3));
}

TEST(SelectiveUpdates, IgnoresNonFiniteGradient) {
  OneRow weight(2);
  EXPECT_EQ(weight.step(7, false), row_of(0));
  EXPECT_EQ(weight.step(7), row_of(0, {{0, -1}}));
  EXPECT_EQ(weight.step(7, false), row_of(0, {{0, -1}}));
  EXPECT_EQ(weight.step(7, false), row_of(-1));
  EXPECT_EQ(weight.drained(), row_of(-1));
}

struct SelectiveCase {
  std::string optimizer;
  std::int64_t lag;
};
void PrintTo(const SelectiveCase& given, std::ostream* out) {
  *out << given.optimizer << given.lag;
}

class SelectiveRule : public ::testing::TestWithParam<SelectiveCase> {
 protected:
  OptimizerConfig config() const { return config_of(GetParam().optimizer); }
  SpeculationSettings settings() const { return selective(GetParam().lag); }
};
INSTANTIATE_TEST_SUITE_P(All, SelectiveRule,
                         ::testing::Values(SelectiveCase{"adamw", 1}, SelectiveCase{"adamw", 4},
                                           SelectiveCase{"muon", 1}, SelectiveCase{"muon", 3},
                                           SelectiveCase{"lion", 2}, SelectiveCase{"lion", 4}),
                         [](const auto& info) {
                           return concat(info.param.optimizer, "_", info.param.lag);
                         });

TEST_P(SelectiveRule, UpdatesVectorsImmediately) {
  Late late(config(), settings(), nullptr);
  Exact exact(config());
  const std::size_t bias = 3;
  for (int i = 0; i < 12; ++i) {
    i < 3 ? late.step_now() : static_cast<void>(late.step_late());
    exact.step();
    EXPECT_EQ(late.live()[bias], exact.masters()[bias]) << i;
  }
  late.drain();
  EXPECT_EQ(late.masters()[bias], exact.masters()[bias]);
  EXPECT_EQ(late.live(), late.masters());
  EXPECT_EQ(late.optimizer_.steps_taken(), 12);
}

/// Without averaging, and with an elementwise rule, nothing is lost.
TEST(SelectiveUpdates, WithDelayOneEndsNearExactOptimizer) {
  for (const char* name : {"adamw", "lion"}) {
    Late late(config_of(name), selective(1), nullptr);
    Late none(config_of(name), {.device_side = "none"}, nullptr);
    Exact exact(config_of(name));
    for (int i = 0; i < 9; ++i) {
      for (Late* one : {&late, &none})
        i < 2 ? one->step_now() : static_cast<void>(one->step_late());
      exact.step();
    }
    EXPECT_LT(distance(late.live(), exact.masters()), distance(none.live(), exact.masters()));
    EXPECT_GT(distance(late.live(), exact.masters()), 0);
    late.drain();
    EXPECT_LT(distance(late.masters(), exact.masters()), 1e-5) << name;
  }
}

TEST_P(SelectiveRule, ResumesBitwiseOnHostAndInFile) {
  const Stream file(
      make_file_pool({}, std::filesystem::temp_directory_path().string(), "memory.folder"));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int saved_after : {1, 2, 3, 5, 8}) {
      Late whole(config(), settings(), nullptr, dtype), first(config(), settings(), &file, dtype),
          second(config(), settings(), nullptr, dtype);
      for (Late* late : {&whole, &first}) {
        for (int i = 0; i < 3; ++i) late->step_now();
      }
      for (int i = 0; i < 12; ++i) i == 4 ? whole.step_not_finite() : void(whole.step_late());
      for (int i = 0; i < saved_after; ++i)
        i == 4 ? first.step_not_finite() : void(first.step_late());
      second.go_on_from(first);
      EXPECT_EQ(second.live(), first.live());
      for (int i = saved_after; i < 12; ++i)
        i == 4 ? second.step_not_finite() : void(second.step_late());
      EXPECT_EQ(second.live(), whole.live()) << saved_after;
      EXPECT_EQ(second.masters(), whole.masters()) << saved_after;
      for (Late* late : {&whole, &second}) late->drain();
      EXPECT_EQ(second.masters(), whole.masters()) << saved_after;
      EXPECT_EQ(second.state(), whole.state()) << saved_after;
    }
  }
}

TEST_P(SelectiveRule, LeavesWeightWithoutGradientUnchanged) {
  Late late(config(), settings(), nullptr);
  const auto before = late.masters()[2];
  for (int i = 0; i < 8; ++i) i < 2 ? late.step_now(2) : static_cast<void>(late.step_late(true, 2));
  EXPECT_EQ(late.live()[2], before);
  late.drain();
  EXPECT_EQ(late.masters()[2], before);
}

TEST(SelectiveUpdates, FreesDeviceMemoryAfterDrain) {
  Late late(config_of("adamw"), selective(2), nullptr);
  late.step_now();
  const std::size_t before = late.device_.pool()->use().live_total;
  late.step_late();
  const MemoryUse use = late.device_.pool()->use();
  const std::size_t state = use.live[static_cast<std::size_t>(MemoryKind::kOptimizerState)];
  // m and v of a tenth of each matrix's columns and of the vector, each in blocks of 64 bytes.
  std::size_t wanted = 0;
  for (const std::size_t elements : {2 * 6, 11, 24, 19, 9, 10 * 41})
    wanted += 2 * ((4 * elements + 63) / 64 * 64);
  EXPECT_EQ(state, wanted);
  late.drain();
  EXPECT_EQ(late.device_.pool()->use().live_total, before);
}

}  // namespace
}  // namespace hybrid_trainer
