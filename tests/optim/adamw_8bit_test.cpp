// Compares AdamW with state_bits 8 and 32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/optim/adamw.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::master_of;
using testing::numbers;

OptimizerConfig config_of(std::int64_t state_bits) {
  OptimizerConfig config;
  config.state_bits = state_bits;
  config.weight_decay = 0;
  return config;
}

/// One matrix of 8,256 elements and its optimizer.
struct Trained {
  Trained(std::int64_t state_bits, const Stream& given) : stream(given) {
    copy(master_of(parameter), testing::normal_tensor({64, 129}, 1, stream), stream);
    const GradientContribution zero(parameter, stream);
    fill_zero(zero.gradient(), stream);
    optimizer.emplace(config_of(state_bits), std::vector<Parameter*>{&parameter}, stream, stream);
  }
  std::size_t state_bytes() {
    std::size_t bytes = 0;
    optimizer->visit_state([&](const StateLabel&, Tensor& tensor) { bytes += tensor.bytes(); });
    return bytes;
  }
  const Stream& stream;
  Parameter parameter{"w", {64, 129}, Role::kMatrix, stream};
  testing::StepGradients gradients{[this](const ParameterVisitor& visit) { visit(parameter); },
                                   stream};
  std::optional<AdamW> optimizer;
};

/// Noisy gradients of a bowl whose curvatures span two decades in each block. The second moments
/// thus span four decades, as Dettmers et al. report.
void set_gradients(Trained& trained, std::uint64_t step) {
  const Tensor noise = testing::normal_tensor(trained.parameter.shape(), step, trained.stream);
  const float* const w = master_of(trained.parameter).data<float>();
  float* const g = trained.parameter.gradient().data<float>();
  for (std::int64_t i = 0; i < noise.elements(); ++i) {
    const float curvature = std::pow(10.0f, -static_cast<float>(i % 17) / 8);
    g[i] = curvature * (w[i] + 0.3f * noise.data<float>()[i]);
  }
}

TEST(AdamW8Bit, StaysCloseToAdamW) {
  const Stream stream(MemoryPool::create("device"));
  Trained exact(32, stream), rounded(8, stream);
  const auto begin = numbers(master_of(exact.parameter));
  for (std::uint64_t t = 1; t <= 50; ++t) {
    for (Trained* each : {&exact, &rounded}) {
      set_gradients(*each, t);
      each->optimizer->step(0.01f, 1, stream);
    }
  }
  const auto wanted = numbers(master_of(exact.parameter)),
             got = numbers(master_of(rounded.parameter));
  double way = 0, error = 0, worst = 0;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    way += std::pow(wanted[i] - begin[i], 2);
    error += std::pow(got[i] - wanted[i], 2);
    worst = std::max(worst, std::abs(static_cast<double>(got[i] - wanted[i])));
  }
  EXPECT_LT(std::sqrt(error / way), 0.08);
  EXPECT_GT(error, 0);
  EXPECT_LT(worst, 0.15);  // after 50 steps of at most 0.01 each
}

TEST(AdamW8Bit, UsesQuarterOfMemory) {
  const Stream stream(MemoryPool::create("device"));
  Trained exact(32, stream), rounded(8, stream);
  const double share =
      static_cast<double>(rounded.state_bytes()) / static_cast<double>(exact.state_bytes());
  EXPECT_NEAR(share, 0.25 + 1.0 / 256, 1e-3);
}

TEST(AdamW16Bit, UsesHalfOfMemoryAndIsCloserThan8Bit) {
  const Stream stream(MemoryPool::create("device"));
  Trained exact(32, stream), half(16, stream), byte(8, stream);
  EXPECT_EQ(2 * half.state_bytes(), exact.state_bytes());
  for (std::uint64_t t = 1; t <= 50; ++t) {
    for (Trained* each : {&exact, &half, &byte}) {
      set_gradients(*each, t);
      each->optimizer->step(0.01f, 1, stream);
    }
  }
  const auto error_of = [&](const Trained& rounded) {
    double error = 0;
    const auto wanted = numbers(master_of(exact.parameter)),
               got = numbers(master_of(rounded.parameter));
    for (std::size_t i = 0; i < got.size(); ++i) error += std::pow(got[i] - wanted[i], 2);
    return error;
  };
  EXPECT_GT(error_of(half), 0);
  EXPECT_LT(error_of(half), 0.2 * error_of(byte));
}

TEST(AdamW8Bit, NamesCodesAndKeepsSmallStateInF32) {
  const Stream stream(MemoryPool::create("device"));
  testing::ParameterSet parameters(stream);
  AdamW optimizer(config_of(8), {&parameters[3], &parameters[5]}, stream, stream);
  std::vector<std::string> names;
  optimizer.visit_state([&](const StateLabel& label, Tensor& tensor) {
    names.push_back(concat(label.name, " ", name_of(tensor.dtype()), " ", tensor.shape().text()));
  });
  EXPECT_EQ(names,
            (std::vector<std::string>{"bias.m f32 (19)", "bias.v f32 (19)",
                                      "large.m.codes u8 (41, 101)", "large.m.scales f32 (17)",
                                      "large.v.codes u8 (41, 101)", "large.v.scales f32 (17)"}));
}

TEST(AdamW8Bit, ZeroBytesAreZeroMoments) {
  const Stream stream(MemoryPool::create("device"));
  Trained used(8, stream), fresh(8, stream);
  set_gradients(used, 1);
  used.optimizer->step(0.01f, 1, stream);
  copy(master_of(used.parameter), master_of(fresh.parameter), stream);
  used.optimizer->visit_state(
      [&](const StateLabel&, Tensor& tensor) { fill_zero(tensor, stream); });
  used.optimizer->set_steps_taken(0);
  for (std::uint64_t t = 1; t <= 3; ++t) {
    for (Trained* each : {&used, &fresh}) {
      set_gradients(*each, t);
      each->optimizer->step(0.01f, 1, stream);
    }
  }
  EXPECT_TRUE(testing::same_bits(master_of(used.parameter), master_of(fresh.parameter)));
}

/// Second moments far below their block's maximum must not round to 0: the step would explode.
TEST(AdamW8Bit, TinyGradientsInBlockKeepStepsSmall) {
  const Stream stream(MemoryPool::create("device"));
  Trained rounded(8, stream);
  for (int t = 0; t < 20; ++t) {
    const auto before = numbers(master_of(rounded.parameter));
    float* const g = rounded.parameter.gradient().data<float>();
    for (std::int64_t i = 0; i < rounded.parameter.gradient().elements(); ++i) {
      g[i] = i % 2 == 0 ? 1.0f : t < 10 ? 1e-4f : 0.0f;
    }
    rounded.optimizer->step(0.01f, 1, stream);
    const auto after = numbers(master_of(rounded.parameter));
    for (std::size_t i = 0; i < after.size(); ++i) {
      ASSERT_LT(std::abs(after[i] - before[i]), 0.0102) << "step " << t << ", element " << i;
    }
  }
}

TEST(AdamW8Bit, RejectsUnsupportedBitWidth) {
  const Stream stream(MemoryPool::create("device"));
  testing::ParameterSet parameters(stream);
  EXPECT_THROW(AdamW(config_of(12), {&parameters[0]}, stream, stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer
