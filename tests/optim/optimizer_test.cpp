// Contract tests of Optimizer, run for every implementation.
#include "hybrid_trainer/optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "hybrid_trainer/core/error.h"
#include "src/optim/make_optimizer.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::clone;
using testing::master_of;
using testing::numbers;
using testing::ParameterSet;

/// Name and state_bits.
using Subject = std::pair<std::string, int>;
std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const std::string& name : optimizer_names()) all.emplace_back(name, 32);
  for (const std::string& name : optimizer_names_with_8_bits()) {
    all.emplace_back(name, 16);
    all.emplace_back(name, 8);
  }
  return all;
}

class OptimizerContract : public ::testing::TestWithParam<Subject> {
 protected:
  std::unique_ptr<Optimizer> make(ParameterSet& parameters, double weight_decay = 0.1) {
    OptimizerConfig config;
    config.name = GetParam().first;
    config.state_bits = GetParam().second;
    config.weight_decay = weight_decay;
    return make_optimizer(config, parameters.pointers(), stream_);
  }
  void run(Optimizer& optimizer, ParameterSet& parameters, int steps, std::uint64_t seed) {
    for (int i = 0; i < steps; ++i) {
      parameters.set_gradients(seed + static_cast<std::uint64_t>(i));
      optimizer.step(0.01f, 0.5f, stream_);
    }
  }
  std::vector<Tensor> directions_of(Optimizer& optimizer, ParameterSet& parameters) {
    std::vector<Tensor> directions;
    for (Parameter* parameter : parameters.pointers()) {
      directions.push_back(
          Tensor::empty(parameter->shape(), DType::kF32, MemoryKind::kPredictor, stream_));
    }
    optimizer.write_momentum_directions(directions, 0.01f, stream_);
    return directions;
  }
  Stream stream_{MemoryPool::create("device")};
};

TEST_P(OptimizerContract, MovesOnlyParametersWithGradients) {
  ParameterSet parameters(stream_);
  const auto optimizer = make(parameters);
  const auto before = parameters.copies();
  parameters.set_gradients(1, 1);
  optimizer->step(0.01f, 1, stream_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(testing::same_bits(master_of(parameters[i]), before[i]), i == 1)
        << parameters[i].name();
  }
  EXPECT_EQ(optimizer->steps_taken(), 1);
}

TEST_P(OptimizerContract, ZeroLearningRateChangesNoWeight) {
  ParameterSet parameters(stream_);
  const auto optimizer = make(parameters);
  const auto before = parameters.copies();
  parameters.set_gradients(1);
  optimizer->step(0, 1, stream_);
  EXPECT_TRUE(parameters.has_values(before));
}

TEST_P(OptimizerContract, ScalesGradientsFirst) {
  ParameterSet scaled(stream_), whole(stream_);
  const auto scaled_optimizer = make(scaled), whole_optimizer = make(whole);
  scaled.set_gradients(1);
  whole.set_gradients(1);
  for (Parameter* parameter : scaled.pointers()) {
    float* const g = parameter->gradient().data<float>();
    for (std::int64_t i = 0; i < parameter->gradient().elements(); ++i) g[i] *= 4;
  }
  scaled_optimizer->step(0.01f, 0.25f, stream_);  // powers of two, so there is no rounding
  whole_optimizer->step(0.01f, 1, stream_);
  EXPECT_TRUE(scaled.has_values(whole.copies()));
}

TEST_P(OptimizerContract, DecaysAllButVectors) {
  ParameterSet parameters(stream_);
  const auto optimizer = make(parameters, 0.5);
  parameters.set_gradients(1);
  parameters.zero_gradients();
  const auto before = parameters.copies();
  optimizer->step(0.125f, 1, stream_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float factor = parameters[i].role() != Role::kVector ? 1 - 0.125f * 0.5f : 1;
    EXPECT_FLOAT_EQ(numbers(master_of(parameters[i]))[3], factor * numbers(before[i])[3])
        << parameters[i].name();
  }
}

TEST_P(OptimizerContract, ResumesBitwiseFromOffloadedState) {
  ParameterSet parameters(stream_);
  const auto optimizer = make(parameters);
  run(*optimizer, parameters, 3, 1);
  ParameterSet others(stream_);
  for (std::size_t i = 0; i < others.size(); ++i) {
    copy(master_of(others[i]), master_of(parameters[i]), stream_);
  }
  const auto successor = make(others);
  std::vector<std::pair<std::string, Tensor>> saved;
  optimizer->visit_state([&](const StateLabel& label, Tensor& tensor) {
    saved.emplace_back(label.name, clone(tensor, stream_));
    tensor = Tensor{};
  });
  if (!saved.empty()) {
    EXPECT_THROW(optimizer->step(0.01f, 1, stream_), Error);
    EXPECT_EQ(optimizer->steps_taken(), 3);
  }
  std::size_t at = 0;
  optimizer->visit_state(
      [&](const StateLabel&, Tensor& t) { t = clone(saved[at++].second, stream_); });
  at = 0;
  successor->visit_state([&](const StateLabel& label, Tensor& tensor) {
    EXPECT_EQ(label.name, saved[at].first);
    copy(tensor, saved[at++].second, stream_);
  });
  successor->set_steps_taken(optimizer->steps_taken());
  run(*optimizer, parameters, 2, 9);
  run(*successor, others, 2, 9);
  EXPECT_TRUE(parameters.has_values(others.copies()));
}

/// Readers choose the rounding of a tensor by its role, never by its name.
TEST_P(OptimizerContract, LabelsDescribeStateTensors) {
  ParameterSet parameters(stream_);
  const auto optimizer = make(parameters);
  run(*optimizer, parameters, 3, 1);
  const auto pointers = parameters.pointers();
  optimizer->visit_state([&](const StateLabel& label, Tensor& tensor) {
    EXPECT_EQ(std::ranges::count(pointers, label.parameter), 1) << label.name;
    EXPECT_TRUE(label.name.starts_with(label.parameter->name() + ".")) << label.name;
    const bool is_of_an_element = tensor.elements() == label.parameter->elements();
    const float least = tensor.dtype() == DType::kF32 ? std::ranges::min(numbers(tensor)) : 0;
    switch (label.role) {
      case StateRole::kCodes: EXPECT_EQ(tensor.dtype(), DType::kU8) << label.name; break;
      case StateRole::kScales:
        EXPECT_EQ(tensor.elements(), (label.parameter->elements() + 255) / 256) << label.name;
        break;
      case StateRole::kMomentum:
        EXPECT_TRUE(is_of_an_element) << label.name;
        EXPECT_TRUE(least < 0 || tensor.dtype() == DType::kBF16) << label.name;
        break;
      case StateRole::kSecondMoment: EXPECT_TRUE(is_of_an_element) << label.name; [[fallthrough]];
      case StateRole::kSharedSecondMoment:
        EXPECT_TRUE(least > 0 || tensor.dtype() == DType::kBF16) << label.name;
        break;
      case StateRole::kSlowMomentum: ADD_FAILURE() << label.name;
    }
  });
}

/// Muon skips a matrix whose gradient is exactly 0.
TEST_P(OptimizerContract, MomentumDirectionMatchesTinyGradientStep) {
  ParameterSet parameters(stream_);
  const auto optimizer = make(parameters, 0);
  run(*optimizer, parameters, 4, 1);
  const auto directions = directions_of(*optimizer, parameters);
  const auto before = parameters.copies();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor gradient = parameters[i].gradient();
    std::fill_n(gradient.data<float>(), gradient.elements(), 1e-12f);
  }
  optimizer->step(0.01f, 1, stream_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto direction = numbers(directions[i]);
    const auto now = numbers(master_of(parameters[i])), then = numbers(before[i]);
    double largest = 0;
    for (std::size_t j = 0; j < now.size(); ++j) {
      EXPECT_NEAR(direction[j], now[j] - then[j], 2e-6) << parameters[i].name() << " " << j;
      largest = std::max(largest, std::abs(static_cast<double>(direction[j])));
    }
    if (GetParam().first == "adafactor") {  // has no first moment
      EXPECT_EQ(largest, 0);
    } else {
      EXPECT_GT(largest, 1e-4) << parameters[i].name();
    }
  }
}

TEST_P(OptimizerContract, MomentumDirectionIsZeroBeforeFirstStep) {
  ParameterSet parameters(stream_);
  const auto optimizer = make(parameters);
  for (const Tensor& direction : directions_of(*optimizer, parameters)) {
    for (const float x : numbers(direction)) EXPECT_EQ(x, 0);
  }
  EXPECT_THROW(optimizer->write_momentum_directions({}, 0.01f, stream_), ShapeMismatch);
  EXPECT_THROW(
      optimizer->write_momentum_directions(std::vector<Tensor>(parameters.size()), 0.01f, stream_),
      ShapeMismatch);
}

TEST_P(OptimizerContract, RefreshesComputeCopies) {
  ParameterSet parameters(stream_);
  const auto optimizer = make(parameters);
  for (Parameter* parameter : parameters.pointers()) parameter->compute_in(DType::kBF16, stream_);
  run(*optimizer, parameters, 1, 1);
  for (Parameter* parameter : parameters.pointers()) {
    const bool vector = parameter->role() == Role::kVector;
    EXPECT_EQ(parameter->compute_dtype(), vector ? DType::kF32 : DType::kBF16);
    const Weight weight = parameter->acquire(parameter->compute_dtype(), stream_);
    for (std::int64_t i = 0; !vector && i < parameter->elements(); ++i) {
      EXPECT_EQ(weight.tensor().data<BFloat16>()[i].bits,
                to_bfloat16(master_of(*parameter).data<float>()[i]).bits);
    }
  }
}

TEST_P(OptimizerContract, StepAllocatesNothingBeyondState) {
  ParameterSet parameters(stream_);
  const auto optimizer = make(parameters);
  std::size_t state_bytes = 0;
  optimizer->visit_state([&](const StateLabel&, Tensor& t) { state_bytes += t.bytes(); });
  const MemoryUse made = stream_.pool()->use();
  EXPECT_GE(made.live[static_cast<std::size_t>(MemoryKind::kOptimizerState)], state_bytes);
  EXPECT_GT(state_bytes, 0u);
  parameters.set_gradients(1);
  optimizer->step(0.01f, 1, stream_);
  const MemoryUse first = stream_.pool()->use();
  optimizer->step(0.01f, 1, stream_);
  EXPECT_EQ(stream_.pool()->use().fresh_total, first.fresh_total);
  EXPECT_EQ(first.live_total, made.live_total);
}

TEST_P(OptimizerContract, StateInOtherPoolDoesNotChangeResults) {
  const Stream host(MemoryPool::create("host"));
  ParameterSet near(stream_), far(stream_);
  OptimizerConfig config;
  config.name = GetParam().first;
  config.state_bits = GetParam().second;
  const auto near_optimizer = make_optimizer(config, near.pointers(), stream_);
  const auto state_bytes = [&] {
    return stream_.pool()->use().live[static_cast<std::size_t>(MemoryKind::kOptimizerState)];
  };
  const std::size_t before = state_bytes();
  const auto far_optimizer = make_optimizer(config, far.pointers(), stream_, host);
  run(*near_optimizer, near, 3, 1);
  run(*far_optimizer, far, 3, 1);
  EXPECT_TRUE(far.has_values(near.copies()));
  const auto wanted = directions_of(*near_optimizer, near),
             got = directions_of(*far_optimizer, far);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(testing::same_bits(got[i], wanted[i])) << i;
  EXPECT_EQ(state_bytes(), before);
  std::size_t bytes = 0;
  far_optimizer->visit_state([&](const StateLabel& label, Tensor& state) {
    bytes += state.bytes();
    EXPECT_TRUE(state.defined()) << label.name;
  });
  EXPECT_GE(host.pool()->use().live_total, bytes);
}

TEST_P(OptimizerContract, PagedStateDoesNotChangeResults) {
  const Stream host(MemoryPool::create("host"));
  ParameterSet near(stream_), far(stream_);
  OptimizerConfig config;
  config.name = GetParam().first;
  config.state_bits = GetParam().second;
  const auto near_optimizer = make_optimizer(config, near.pointers(), stream_);
  config.paged = true;
  constexpr std::size_t kRoomForAll = 1 << 30;
  const auto paged = make_optimizer(config, far.pointers(), stream_, host, kRoomForAll);
  const auto live = [&] { return stream_.pool()->use().live_total; };
  const std::size_t before = live();
  run(*near_optimizer, near, 2, 1);
  run(*paged, far, 2, 1);
  EXPECT_GT(live(), before) << "from the second update on";
  EXPECT_TRUE(paged->leave_device(stream_));
  EXPECT_FALSE(paged->leave_device(stream_));
  EXPECT_EQ(live(), before);
  run(*near_optimizer, near, 3, 1);
  run(*paged, far, 3, 1);
  paged->leave_device(stream_);
  EXPECT_TRUE(far.has_values(near.copies()));
  std::map<std::string, Tensor> wanted;
  near_optimizer->visit_state(
      [&](const StateLabel& label, Tensor& state) { wanted[label.name] = state; });
  paged->visit_state([&](const StateLabel& label, Tensor& state) {
    EXPECT_TRUE(testing::same_bits(state, wanted.at(label.name))) << label.name;
  });
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerContract, ::testing::ValuesIn(subjects()),
                         [](const auto& info) {
                           return concat(info.param.first, "_", info.param.second);
                         });

TEST(MakeOptimizer, UnknownNameSuggestsNearest) {
  OptimizerConfig config;
  config.name = "adamv";
  const Stream stream(MemoryPool::create("device"));
  try {
    make_optimizer(config, {}, stream);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("adamw"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer
