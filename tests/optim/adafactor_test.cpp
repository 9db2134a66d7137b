#include "src/optim/adafactor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::master_of;
using testing::numbers;
using testing::ParameterSet;

/// Algorithms 4 and 5 of Shazeer & Stern in double, with a given rate and decoupled decay.
struct FactoredReference {
  explicit FactoredReference(const Parameter& parameter)
      : is_vector(parameter.role() == Role::kVector),
        columns(static_cast<std::size_t>(parameter.shape()[parameter.shape().rank() - 1])) {
    for (const float one : numbers(master_of(parameter))) w.push_back(one);
    v.resize(w.size());
    row.resize(w.size() / columns);
    column.resize(columns);
  }
  double moment(std::size_t i) const {
    if (is_vector) return v[i];
    double sum = 0;
    for (const double one : row) sum += one;
    return row[i / columns] * column[i % columns] / sum;
  }
  void step(const std::vector<float>& gradient, int t) {
    const double beta = 1 - std::pow(t, -0.8), epsilon = 1e-30;
    std::vector<double> u, row_sums(row.size()), column_sums(columns);
    for (std::size_t i = 0; i < w.size(); ++i) {
      u.push_back(0.5 * static_cast<double>(gradient[i]));
      const double square = u[i] * u[i] + epsilon;
      v[i] = beta * v[i] + (1 - beta) * square;
      row_sums[i / columns] += square;
      column_sums[i % columns] += square;
    }
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = beta * row[i] + (1 - beta) * row_sums[i];
    for (std::size_t i = 0; i < columns; ++i)
      column[i] = beta * column[i] + (1 - beta) * column_sums[i];
    double squares = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      u[i] /= std::sqrt(moment(i));
      squares += u[i] * u[i];
    }
    const double size = std::sqrt(squares / static_cast<double>(w.size()));
    clipped += size > 1;
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] -= 0.02 * (u[i] / std::max(1.0, size) + (is_vector ? 0 : 0.1) * w[i]);
  }
  bool is_vector;
  std::size_t columns;
  std::vector<double> w, v, row, column;
  int clipped = 0;
};

TEST(Adafactor, MatchesPublishedRuleInDouble) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  OptimizerConfig config;
  Adafactor optimizer(config, parameters.pointers(), stream, stream);
  std::vector<FactoredReference> references;
  for (std::size_t i = 0; i < parameters.size(); ++i) references.emplace_back(parameters[i]);
  for (int t = 1; t <= 10; ++t) {
    parameters.set_gradients(static_cast<std::uint64_t>(t));
    optimizer.step(0.02f, 0.5f, stream);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      references[i].step(numbers(parameters[i].gradient()), t);
  }
  int clipped = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    clipped += references[i].clipped;
    const auto w = numbers(master_of(parameters[i]));
    for (std::size_t j = 0; j < w.size(); ++j) EXPECT_NEAR(w[j], references[i].w[j], 3e-6);
  }
  EXPECT_GT(clipped, 10);
  EXPECT_LT(clipped, 50);  // of 60
}

/// Rows without gradients, such as unused tokens, have a second moment of 1e-30.
TEST(Adafactor, LeavesRowsWithoutGradientsUnchanged) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  OptimizerConfig config;
  config.weight_decay = 0;
  Adafactor optimizer(config, {&parameters[1]}, stream, stream);
  const auto before = numbers(master_of(parameters[1]));
  for (std::uint64_t t = 1; t <= 3; ++t) {
    parameters.set_gradients(t);
    fill_zero(parameters[1].gradient().rows(2, 4), stream);
    optimizer.step(0.02f, 1, stream);
  }
  const auto after = numbers(master_of(parameters[1]));
  for (std::size_t i = 0; i < after.size(); ++i) {
    ASSERT_TRUE(std::isfinite(after[i]));
    EXPECT_EQ(after[i] == before[i], i >= 16 && i < 32) << i;
  }
}

}  // namespace
}  // namespace hybrid_trainer
