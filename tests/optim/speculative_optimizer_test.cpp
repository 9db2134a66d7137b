#include "hybrid_trainer/optim/speculative_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "tests/optim/late_parameters.h"

namespace hybrid_trainer {
namespace {

using testing::config_of;
using testing::distance;
using testing::Exact;
using testing::Late;
using testing::numbers;
using testing::rate_of_step;

struct Case {
  std::string optimizer, device_side;
  std::int64_t lag;
};
void PrintTo(const Case& given, std::ostream* out) {
  *out << given.optimizer << ' ' << given.device_side << ' ' << given.lag;
}
std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  return concat(info.param.optimizer, "_", info.param.device_side, "_", info.param.lag);
}
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& optimizer : predictable_optimizer_names()) {
    for (const char* side : {"anticipated", "sketch", "none"}) {
      for (const std::int64_t lag : {1, 2, 4}) all.push_back({optimizer, side, lag});
    }
  }
  return all;
}

class SpeculativeUpdates : public ::testing::TestWithParam<Case> {
 protected:
  OptimizerConfig config() const { return config_of(GetParam().optimizer); }
  SpeculationSettings settings() const {
    return {.lag = GetParam().lag, .device_side = GetParam().device_side};
  }
};
INSTANTIATE_TEST_SUITE_P(All, SpeculativeUpdates, ::testing::ValuesIn(cases()), name_of_case);

TEST_P(SpeculativeUpdates, KeepsExactWeightsAndStateBitwise) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Late late(config(), settings(), nullptr, dtype);
    Exact exact(config(), dtype);
    for (int phase = 0; phase < 2; ++phase) {
      for (int i = 0; i < 3; ++i) late.step_now();
      for (int i = 0; i < 9; ++i) late.step_late();
      late.drain();
    }
    for (int i = 0; i < 24; ++i) exact.step();
    EXPECT_EQ(late.masters(), exact.masters());
    auto states = exact.state();
    auto got = late.state();
    std::sort(states.begin(), states.end());
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, states);
    EXPECT_EQ(late.optimizer_.steps_taken(), 24);
    if (dtype == DType::kF32) {
      EXPECT_EQ(late.live(), late.masters());
    }
  }
}

TEST_P(SpeculativeUpdates, StateInFileMatchesHost) {
  const Stream file(
      make_file_pool({}, std::filesystem::temp_directory_path().string(), "memory.folder"));
  Late on_host(config(), settings(), nullptr), in_file(config(), settings(), &file);
  for (Late* late : {&on_host, &in_file}) {
    for (int i = 0; i < 2; ++i) late->step_now();
    for (int i = 0; i < 6; ++i) late->step_late();
  }
  EXPECT_EQ(on_host.live(), in_file.live());
  EXPECT_EQ(on_host.masters(), in_file.masters());
  EXPECT_GT(file.pool()->use().live_total, 0u);
}

/// Compares the next step's weights with the exact optimizer's, L steps earlier.
TEST_P(SpeculativeUpdates, PredictionIsCloserThanDelayedWeights) {
  Late late(config(), settings(), nullptr);
  Exact now(config()), before(config());
  const std::int64_t lag = GetParam().lag;
  for (std::int64_t i = 0; i < 20; ++i) {
    i < 10 ? late.step_now() : static_cast<void>(late.step_late());
    now.step();
    if (i >= lag) before.step();
  }
  const double off = distance(late.live(), now.masters());
  const double late_by = distance(before.masters(), now.masters());
  if (GetParam().device_side == "none") {
    EXPECT_EQ(late.live(), before.masters());
  } else {
    EXPECT_LT(off, 0.75 * late_by);
    if (GetParam().optimizer != "lion" || GetParam().device_side == "sketch") {
      EXPECT_GT(off, 0);
    }
  }
}

TEST_P(SpeculativeUpdates, MeasuresPredictionError) {
  Late late(config(), settings(), nullptr);
  Exact now(config()), before(config());
  const std::int64_t lag = GetParam().lag;
  std::vector<double> wanted;
  for (std::int64_t i = 0; i < 12; ++i) {
    now.step();
    if (i >= lag) before.step();
    if (i < 4) {
      late.step_now();
      continue;
    }
    const ArrivedUpdate arrived = late.step_late();
    const std::int64_t late_steps = i - 4;
    ASSERT_EQ(arrived.prediction_error.has_value(), late_steps >= lag) << i;
    if (arrived.prediction_error) {
      EXPECT_NEAR(*arrived.prediction_error, wanted[static_cast<std::size_t>(late_steps - lag)],
                  1e-3 * wanted[static_cast<std::size_t>(late_steps - lag)] + 1e-4);
    }
    // During the first L steps, the prediction covers fewer than L updates.
    const double moved = late_steps + 1 >= lag ? distance(before.masters(), now.masters()) : 0;
    Exact start(config());
    for (std::int64_t k = 0; k < 4; ++k) start.step();
    wanted.push_back(distance(late.live(), now.masters()) /
                     (moved > 0 ? moved : distance(start.masters(), now.masters())));
  }
}

TEST_P(SpeculativeUpdates, ResumesFromSavedStateBitwise) {
  for (const int saved_after : {1, 2, 3, 5, 8}) {
    Late whole(config(), settings(), nullptr), first(config(), settings(), nullptr),
        second(config(), settings(), nullptr);
    std::vector<std::optional<double>> errors, resumed;
    for (int i = 0; i < 3; ++i) whole.step_now();
    for (int i = 0; i < 12; ++i) {
      const auto error = whole.step_late().prediction_error;
      if (i >= saved_after) errors.push_back(error);
    }
    for (int i = 0; i < 3; ++i) first.step_now();
    for (int i = 0; i < saved_after; ++i) first.step_late();
    second.go_on_from(first);
    EXPECT_EQ(second.live(), first.live());
    for (int i = saved_after; i < 12; ++i) resumed.push_back(second.step_late().prediction_error);
    EXPECT_EQ(second.live(), whole.live()) << saved_after;
    EXPECT_EQ(second.masters(), whole.masters()) << saved_after;
    EXPECT_EQ(resumed, errors);
  }
}

TEST_P(SpeculativeUpdates, NonFiniteGradientMakesNoUpdate) {
  Late late(config(), settings(), nullptr);
  Exact exact(config());
  for (int i = 0; i < 14; ++i) {
    if (i == 3 || i == 6 || i == 7) {
      late.step_not_finite();
      ++exact.steps_;
    } else {
      i < 2 ? late.step_now() : static_cast<void>(late.step_late());
      exact.step();
    }
    for (const auto& weight : late.live()) {
      for (const float value : weight) ASSERT_TRUE(std::isfinite(value)) << i;
    }
  }
  late.drain();
  EXPECT_EQ(late.masters(), exact.masters());
  EXPECT_EQ(late.optimizer_.steps_taken(), 11);
}

/// The forecast of a step includes the momentum part of its update, which is then missing.
TEST_P(SpeculativeUpdates, NonFiniteGradientRestoresExactWeights) {
  Late late(config(), settings(), nullptr);
  Exact exact(config());
  const auto step = [&](bool finite) {
    if (!finite) {
      late.step_not_finite();
      ++exact.steps_;
      EXPECT_EQ(late.live(), exact.masters()) << late.steps_;
    } else {
      late.step_late();
      exact.step();
    }
  };
  for (const bool finite : {true, true, true, false, true, true, true, true, true, false, false})
    step(finite);
  Late anew(config(), settings(), nullptr);
  anew.go_on_from(late);
  for (int i = 0; i < 9; ++i) {
    late.step_late();
    anew.step_late();
    EXPECT_EQ(anew.live(), late.live()) << i;
  }
  late.drain();
  for (int i = 0; i < 9; ++i) exact.step();
  EXPECT_EQ(late.masters(), exact.masters());
}

TEST_P(SpeculativeUpdates, MissingGradientsMatchExactOptimizer) {
  Late late(config(), settings(), nullptr);
  Exact exact(config());
  for (int i = 0; i < 8; ++i) {
    const std::size_t without = i % 3 == 0 ? 2 : 100;
    i < 2 ? late.step_now(without) : static_cast<void>(late.step_late(true, without));
    exact.step(without);
  }
  late.drain();
  EXPECT_EQ(late.masters(), exact.masters());
}

TEST(SpeculativeOptimizer, KeepsOnlyLiveWeightsOnDevice) {
  for (const char* side : {"anticipated", "sketch", "none"}) {
    Late late(config_of("adamw"), {.device_side = side}, nullptr, DType::kBF16);
    late.step_now();
    for (int i = 0; i < 3; ++i) late.step_late();
    const MemoryUse use = late.device_.pool()->use();
    for (const MemoryKind kind : {MemoryKind::kOptimizerState, MemoryKind::kMasterWeights})
      EXPECT_EQ(use.live[static_cast<std::size_t>(kind)], 0u) << side;
  }
}

TEST(SpeculativeOptimizer, RejectsSavedTensorOfOtherShapeOrDtype) {
  Late late(config_of("adamw"), {}, nullptr);
  for (int i = 0; i < 3; ++i) late.step_late();
  State state;
  late.masters();
  late.optimizer_.save_delayed(state);
  const std::string name = "speculation.live.wide";
  const auto problem_with = [&](const Tensor& tensor) {
    State changed = state;
    changed.tensors.at(name) = tensor;
    Late other(config_of("adamw"), {}, nullptr);
    try {
      other.optimizer_.load_delayed(changed, other.rates(3), other.device_);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Shape shape = state.tensors.at(name).shape();
  const auto zeros = [&](const Shape& of, DType dtype) {
    return Tensor::zeros(of, dtype, MemoryKind::kParameters, late.host_);
  };
  EXPECT_EQ(problem_with(zeros(shape, DType::kF32)), "");
  EXPECT_NE(problem_with(zeros(shape, DType::kBF16)).find(name), std::string::npos);
  EXPECT_NE(problem_with(zeros({shape[1], shape[0]}, DType::kF32)).find(name), std::string::npos);
}

TEST(SpeculativeOptimizer, WorkerErrorIsRethrownEachTime) {
  std::size_t held = 0;
  {
    Late late(config_of("adamw"), {}, nullptr);
    late.step_now();
    late.optimizer_.begin_lag(late.rates(1), late.device_);
    late.masters();  // waits
    held = late.host_.pool()->use().live_total;
  }
  Late late(config_of("adamw"), {}, nullptr, DType::kF32, held);
  late.step_now();
  const auto before = late.masters();
  EXPECT_THROW(late.step_late(), OutOfMemory);
  // The state is invalid afterwards: it cannot continue or be saved.
  EXPECT_THROW(late.drain(), OutOfMemory);
  EXPECT_THROW(late.masters(), OutOfMemory);
  EXPECT_EQ(numbers(late.set_[0].master_in_place()), before[0]);
}

}  // namespace
}  // namespace hybrid_trainer
