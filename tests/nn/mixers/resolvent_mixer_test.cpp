#include "hybrid_trainer/nn/mixers.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kResolventTime = 20, kResolventWidth = 6;

std::string told(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ResolventMixer, SeesBothSidesOnlyWithinDocument) {
  const Stream stream = test_stream();
  ResolventMixer mixer("mix", {.width = kResolventWidth, .potentials = 3}, stream);
  randomize([&](const ParameterVisitor& visit) { mixer.visit_parameters(visit); }, stream);
  const Tensor x = normal_tensor({1, kResolventTime, kResolventWidth}, 1, stream);
  const auto output = [&](const Tensor& positions) {
    ForwardOnlyTape tape(Pass{.training = false, .positions = positions});
    return values_of(mixer.forward(x, Tensor{}, tape, stream));
  };
  const Tensor positions =
      Tensor::empty({1, kResolventTime}, DType::kI32, MemoryKind::kData, stream);
  for (std::int64_t t = 0; t < kResolventTime; ++t)
    positions.data<std::int32_t>()[t] = static_cast<std::int32_t>(t < 12 ? t : t - 12);
  const auto row = [](const std::vector<double>& all, std::int64_t t) {
    return std::vector(all.begin() + t * kResolventWidth, all.begin() + (t + 1) * kResolventWidth);
  };
  const auto whole = output(Tensor{}), apart = output(positions);
  EXPECT_NE(row(whole, 11), row(apart, 11));
  x.data<float>()[13 * kResolventWidth] += 1;
  const auto whole_after = output(Tensor{}), apart_after = output(positions);
  for (const std::int64_t t : {11, 12, 14}) EXPECT_NE(row(whole, t), row(whole_after, t)) << t;
  EXPECT_EQ(row(apart, 11), row(apart_after, 11));
  EXPECT_NE(row(apart, 12), row(apart_after, 12));
}

TEST(ResolventMixer, RejectsGenerationAndRealAxis) {
  const Stream stream = test_stream();
  ResolventMixer mixer("mix", {.width = kResolventWidth}, stream);
  const Tensor x = normal_tensor({1, 1, kResolventWidth}, 1, stream);
  const std::string generating = told([&] { mixer.decode(x, Tensor{}, {}, nullptr, {}, stream); });
  EXPECT_NE(generating.find("BK mixer cannot generate"), std::string::npos) << generating;
  const std::string real =
      told([&] { ResolventMixer("mix", {.width = kResolventWidth, .imaginary = 0}, stream); });
  EXPECT_NE(real.find("imaginary part of z is 0"), std::string::npos) << real;
}

}  // namespace
}  // namespace hybrid_trainer::testing
