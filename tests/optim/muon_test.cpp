#include "src/optim/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "src/core/machine.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::master_of;
using testing::numbers;
using testing::ParameterSet;

std::vector<Parameter*> matrices(ParameterSet& parameters) {
  return {&parameters[0], &parameters[2], &parameters[4]};
}

class MuonOnMatrices : public ::testing::Test {
 protected:
  Stream stream_{MemoryPool::create("device")};
  ParameterSet parameters_{stream_};
};

TEST_F(MuonOnMatrices, UpdateIsOrthogonalizedNesterovMomentum) {
  OptimizerConfig config;
  Muon muon(config, matrices(parameters_), stream_, stream_);
  Parameter& tall = parameters_[2];
  const std::size_t count = static_cast<std::size_t>(tall.elements());
  Orthogonalizer orthogonalizer(tall.elements(), 8, stream_);
  std::vector<double> m(count, 0.0);
  for (std::uint64_t t = 1; t <= 4; ++t) {
    const auto before = numbers(master_of(tall));
    parameters_.set_gradients(t);
    muon.step(0.02f, 0.5f, stream_);
    const auto g = numbers(tall.gradient());
    const Tensor u = orthogonalizer.input(tall.shape()[0], tall.shape()[1]);
    for (std::size_t j = 0; j < count; ++j) {
      m[j] = 0.95 * m[j] + 0.5 * g[j];
      u.data<float>()[j] = static_cast<float>(0.5 * g[j] + 0.95 * m[j]);
    }
    const auto update = numbers(orthogonalizer.orthogonal(u, DType::kF32, stream_));
    const auto after = numbers(master_of(tall));
    for (std::size_t j = 0; j < count; ++j) {
      const double moved = 0.02 * (0.2 * std::sqrt(24.0) * update[j] + 0.1 * before[j]);
      EXPECT_NEAR(after[j], before[j] - moved, 1e-6);
    }
  }
}

/// Reference: complete orthogonalization in steps 1, 4 and 7, separately scaled blocks between.
TEST_F(MuonOnMatrices, OrthogonalizesBlocksBetweenFullSteps) {
  OptimizerConfig config;
  config.orthogonalization_period = 3;
  config.orthogonalization_blocks = 4;
  Muon muon(config, matrices(parameters_), stream_, stream_);
  const double tolerance = instruction_set() == InstructionSet::kAvx512 ? 1e-6 : 3e-6;
  std::map<const Parameter*, std::vector<double>> m;
  for (std::uint64_t t = 1; t <= 8; ++t) {
    std::map<const Parameter*, std::vector<float>> before;
    for (const Parameter* matrix : matrices(parameters_))
      before[matrix] = numbers(master_of(*matrix));
    parameters_.set_gradients(t);
    muon.step(0.02f, 0.5f, stream_);
    for (const Parameter* matrix : matrices(parameters_)) {
      const auto g = numbers(matrix->gradient()), after = numbers(master_of(*matrix));
      const std::int64_t rows = matrix->shape()[0], columns = matrix->shape()[1];
      // A quarter of the shorter side, rounded up, for (6, 20), (24, 8) and (9, 9).
      const std::int64_t quarter = rows == 9 ? 3 : 2, together = t % 3 == 1 ? rows : quarter;
      std::vector<double>& momentum = m[matrix];
      momentum.resize(g.size(), 0.0);
      for (std::size_t j = 0; j < g.size(); ++j) momentum[j] = 0.95 * momentum[j] + 0.5 * g[j];
      for (std::int64_t begin = 0; begin < rows; begin += together) {
        Orthogonalizer orthogonalizer(together * columns, std::min(together, columns), stream_);
        const Tensor u = orthogonalizer.input(together, columns);
        const auto first = static_cast<std::size_t>(begin * columns);
        for (std::size_t j = 0; j < static_cast<std::size_t>(u.elements()); ++j) {
          u.data<float>()[j] = static_cast<float>(0.5 * g[first + j] + 0.95 * momentum[first + j]);
        }
        const auto update = numbers(orthogonalizer.orthogonal(u, DType::kF32, stream_));
        const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(together, columns)));
        for (std::size_t j = 0; j < update.size(); ++j) {
          const double old = before[matrix][first + j];
          EXPECT_NEAR(after[first + j], old - 0.02 * (scale * update[j] + 0.1 * old), tolerance)
              << matrix->name() << " in step " << t;
        }
      }
    }
  }
}

TEST_F(MuonOnMatrices, BlocksMatchFullUpdateSizeAndMemory) {
  OptimizerConfig config;
  config.weight_decay = 0;
  config.orthogonalization_period = 4;
  Muon muon(config, matrices(parameters_), stream_, stream_);
  for (std::uint64_t t = 1; t <= 9; ++t) {
    const auto before = parameters_.copies();
    parameters_.set_gradients(t);
    const std::size_t taken = stream_.pool()->use().fresh_total;
    muon.step(1, 1, stream_);
    if (t > 2) {  // one of each kind
      EXPECT_EQ(stream_.pool()->use().fresh_total, taken) << t;
    }
    for (const std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{4}}) {
      const auto now = numbers(master_of(parameters_[i])), then = numbers(before[i]);
      double sum = 0;
      for (std::size_t j = 0; j < now.size(); ++j) sum += std::pow(now[j] - then[j], 2);
      EXPECT_NEAR(std::sqrt(sum / static_cast<double>(now.size())), 0.2, 0.05) << t;
    }
  }
}

/// The gradient of an expert without tokens is exactly 0.
TEST_F(MuonOnMatrices, MatrixWithoutGradientOnlyDecays) {
  OptimizerConfig config;
  Muon muon(config, matrices(parameters_), stream_, stream_);
  Parameter& tall = parameters_[2];
  parameters_.set_gradients(1);
  muon.step(0.02f, 1, stream_);
  auto wanted = numbers(master_of(tall));
  for (int step = 0; step < 3; ++step) {
    fill_zero(tall.gradient(), stream_);
    muon.step(0.02f, 1, stream_);
    for (float& value : wanted) value *= 1 - 0.02f * 0.1f;
  }
  const auto after = numbers(master_of(tall));
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_FLOAT_EQ(after[i], wanted[i]);
}

/// The schedule of complete steps depends only on the steps taken, and may change in training.
TEST_F(MuonOnMatrices, PeriodFollowsStepsTaken) {
  OptimizerConfig config;
  config.orthogonalization_period = 3;
  ParameterSet twins(stream_);
  Muon muon(config, matrices(parameters_), stream_, stream_),
      twin({}, matrices(twins), stream_, stream_);
  for (std::uint64_t t = 1; t <= 5; ++t) {
    parameters_.set_gradients(1);
    twins.set_gradients(1);
    twin.set_orthogonalization_period(t % 3 == 1 ? 1 : 1 << 20);
    twin.set_steps_taken(7);  // the next step is the second one of its period
    muon.step(0.02f, 1, stream_);
    twin.step(0.02f, 1, stream_);
    for (const std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{4}})
      EXPECT_TRUE(testing::same_bits(master_of(parameters_[i]), master_of(twins[i]))) << t;
  }
}

TEST_F(MuonOnMatrices, OrthogonalizesInPhasePrecision) {
  ParameterSet twins(stream_);
  Muon muon({}, matrices(parameters_), stream_, stream_),
      twin({}, matrices(twins), stream_, stream_);
  Parameter& tall = parameters_[2];
  tall.compute_in(DType::kBF16, stream_);
  parameters_.set_gradients(1);
  twins.set_gradients(1);
  muon.step(0.02f, 1, stream_);
  twin.step(0.02f, 1, stream_);
  EXPECT_EQ(testing::same_bits(master_of(tall), master_of(twins[2])), !multiplies_bfloat16());
  const auto rounded = numbers(master_of(tall)), exact = numbers(master_of(twins[2]));
  for (std::size_t j = 0; j < exact.size(); ++j) EXPECT_NEAR(rounded[j], exact[j], 1e-3);
}

TEST_F(MuonOnMatrices, UpdateSizeMatchesAdamW) {
  OptimizerConfig config;
  config.weight_decay = 0;
  Muon muon(config, matrices(parameters_), stream_, stream_);
  const auto before = parameters_.copies();
  parameters_.set_gradients(1);
  muon.step(1, 1, stream_);
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{4}}) {
    const auto now = numbers(master_of(parameters_[i])), then = numbers(before[i]);
    double sum = 0;
    for (std::size_t j = 0; j < now.size(); ++j) sum += std::pow(now[j] - then[j], 2);
    EXPECT_NEAR(std::sqrt(sum / static_cast<double>(now.size())), 0.2, 0.05);
  }
}

TEST(Muon, RejectsTensorOfThreeDimensions) {
  const Stream stream(MemoryPool::create("device"));
  Parameter cube("cube", {2, 3, 4}, Role::kMatrix, stream);
  EXPECT_THROW(Muon(OptimizerConfig{}, {&cube}, stream, stream), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer
