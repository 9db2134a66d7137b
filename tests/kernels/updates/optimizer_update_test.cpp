#include "kernels/updates/optimizer_update.h"

#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/updates/update_step.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr std::int64_t kElements = 20011;

struct UpdateCase {
  explicit UpdateCase(const Stream& stream)
      : w(random_tensor({kElements}, DType::kF32, 1, stream)),
        m(random_tensor({kElements}, DType::kF32, 2, stream, 0.1)),
        v(random_tensor({kElements}, DType::kF32, 3, stream, 0.1)),
        g(random_tensor({kElements}, DType::kF32, 4, stream)),
        compute_copy(Tensor::zeros({kElements}, DType::kBF16, MemoryKind::kParameters, stream)) {
    for (std::int64_t i = 0; i < kElements; ++i) v.data<float>()[i] = std::abs(v.data<float>()[i]);
  }
  void expect_working_is_rounded_weights() const {
    for (std::int64_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(compute_copy.data<BFloat16>()[i].bits, to_bfloat16(w.data<float>()[i]).bits) << i;
    }
  }
  Tensor w, m, v, g, compute_copy;
};

const AdamWSettings kAdamW{
    .learning_rate = 0.01f, .weight_decay = 0.1f, .gradient_scale = 0.5f, .step = 3};

TEST(AdamW, UpdateMatchesReference) {
  const Stream stream = cpu_stream();
  for (const bool mixed : {false, true}) {
    const UpdateCase c(stream);
    Values w = values_of(c.w), m = values_of(c.m), v = values_of(c.v);
    const Values g = values_of(c.g);
    const double beta1 = static_cast<double>(kAdamW.beta1),
                 beta2 = static_cast<double>(kAdamW.beta2);
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * 0.5 * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * 0.25 * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(beta1, 3)), square = v[i] / (1 - std::pow(beta2, 3));
      w[i] = w[i] * (1 - 0.001) - 0.01 * mean / (std::sqrt(square) + 1e-8);
    }
    adamw_update(c.w, c.m, c.v, c.g, mixed ? c.compute_copy : Tensor(), kAdamW, stream);
    expect_close(c.w, w, 1e-6, "w");
    expect_close(c.m, m, 1e-6, "m");
    expect_close(c.v, v, 1e-6, "v");
    if (mixed) c.expect_working_is_rounded_weights();
  }
}

TEST(AdamW, DirectionEqualsStepWithoutGradient) {
  const Stream stream = cpu_stream();
  const UpdateCase c(stream);
  const Tensor direction = Tensor::empty_like(c.w, MemoryKind::kPredictor, stream);
  const Values before = values_of(c.w);
  adamw_direction(direction, c.m, c.v, kAdamW, stream);
  AdamWSettings frozen = kAdamW;
  frozen.weight_decay = 0;
  frozen.gradient_scale = 0;
  Values m = values_of(c.m), v = values_of(c.v);
  for (std::int64_t i = 0; i < kElements; ++i) {  // cancels the update's decay
    c.m.data<float>()[i] /= frozen.beta1;
    c.v.data<float>()[i] /= frozen.beta2;
  }
  adamw_update(c.w, c.m, c.v, c.g, Tensor(), frozen, stream);
  Values moved = values_of(direction);
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += before[i];
  expect_close(c.w, moved, 1e-5);
}

TEST(Sgd, UpdateMatchesReferenceWithAndWithoutMomentum) {
  const Stream stream = cpu_stream();
  for (const float momentum : {0.0f, 0.9f}) {
    const UpdateCase c(stream);
    Values w = values_of(c.w), m = values_of(c.m);
    const Values g = values_of(c.g);
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = static_cast<double>(momentum) * m[i] + 0.5 * g[i];
      w[i] = w[i] * (1 - 0.1 * 0.01) - 0.1 * m[i];
    }
    sgd_update(c.w, momentum == 0.0f ? Tensor() : c.m, c.g, c.compute_copy, 0.1f, momentum, 0.01f,
               0.5f, stream);
    expect_close(c.w, w, 1e-6);
    if (momentum != 0.0f) expect_close(c.m, m, 1e-6);
    c.expect_working_is_rounded_weights();
  }
}

TEST(Lion, UpdateMatchesReference) {
  const Stream stream = cpu_stream();
  const LionSettings settings{.learning_rate = 0.01f, .weight_decay = 0.1f, .gradient_scale = 0.5f};
  for (const bool mixed : {false, true}) {
    const UpdateCase c(stream);
    Values w = values_of(c.w), m = values_of(c.m);
    const Values g = values_of(c.g);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double mixture = 0.9 * m[i] + 0.1 * 0.5 * g[i];
      w[i] = w[i] * (1 - 0.001) - std::copysign(0.01, mixture);
      m[i] = 0.99 * m[i] + 0.01 * 0.5 * g[i];
    }
    lion_update(c.w, c.m, c.g, mixed ? c.compute_copy : Tensor(), settings, stream);
    expect_close(c.w, w, 1e-6, "w");
    expect_close(c.m, m, 1e-6, "m");
    if (mixed) c.expect_working_is_rounded_weights();
  }
}

TEST(Lion, DirectionIsNegatedSignOfMomentum) {
  const Stream stream = cpu_stream();
  const UpdateCase c(stream);
  c.m.data<float>()[1] = 0;
  lion_direction(c.w, c.m, 0.01f, stream);
  EXPECT_EQ(c.w.data<float>()[1], 0);
  for (std::int64_t i = 2; i < kElements; ++i)
    ASSERT_EQ(c.w.data<float>()[i], c.m.data<float>()[i] > 0 ? -0.01f : 0.01f) << i;
}

TEST(Muon, NesterovMomentumAndStepMatchReference) {
  const Stream stream = cpu_stream();
  const UpdateCase c(stream);
  const Tensor u = Tensor::empty_like(c.w, MemoryKind::kWorkspace, stream);
  Values w = values_of(c.w), m = values_of(c.m), wanted_u(w.size());
  const Values g = values_of(c.g);
  for (std::size_t i = 0; i < w.size(); ++i) {
    m[i] = 0.95 * m[i] + 0.5 * g[i];
    wanted_u[i] = 0.5 * g[i] + 0.95 * m[i];
    w[i] = w[i] * 0.99 - 0.02 * wanted_u[i];
  }
  const Tensor squares = empty_result(stream);
  sum_of_squares(squares, {&c.g, 1}, stream);
  muon_momentum(u, c.m, c.g, squares, 0.95f, 0.5f, stream);
  expect_close(u, wanted_u, 1e-6);
  expect_close(c.m, m, 1e-6);
  decayed_step(c.w, u, c.compute_copy, 0.02f, 0.99f, stream);
  expect_close(c.w, w, 1e-6);
  c.expect_working_is_rounded_weights();
}

TEST(OptimizerUpdate, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const UpdateCase c(stream);
  EXPECT_THROW(adamw_update(c.w, c.m.rows(0, 5), c.v, c.g, Tensor(), kAdamW, stream),
               ShapeMismatch);
  EXPECT_THROW(adamw_update(c.w, c.m, c.v, c.g, c.m, kAdamW, stream), Error);
  EXPECT_THROW(adamw_update(c.w, c.m, c.v, c.g, Tensor(), AdamWSettings{.step = 0}, stream), Error);
  EXPECT_THROW(sgd_update(c.w, Tensor(), c.g, Tensor(), 0.1f, 0.9f, 0, 1, stream), ShapeMismatch);
}

TEST(StochasticRounding, PreservesMeanAndRoundsToNeighbor) {
  constexpr std::uint32_t kKeys = 20000;
  for (const float x : {1.001f, -3.7e-5f, 2.0f, 0.0f, 1e-40f}) {
    double sum = 0;
    const float below = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xFFFF0000u);
    const float above = std::bit_cast<float>(std::bit_cast<std::uint32_t>(below) + 0x10000u);
    for (std::uint32_t key = 0; key < kKeys; ++key) {
      const BFloat16 rounded = round_stochastically(x, random_bits(key * 2654435761u, key));
      const float value = std::bit_cast<float>(static_cast<std::uint32_t>(rounded.bits) << 16);
      ASSERT_TRUE(value == below || value == above) << x << " " << value;
      sum += value;
    }
    const double spacing = std::abs(static_cast<double>(above) - static_cast<double>(below));
    EXPECT_NEAR(sum / kKeys, x, 0.02 * spacing) << x;
  }
  for (const float x : {INFINITY, -INFINITY})
    EXPECT_EQ(round_stochastically(x, 0xFFFF).bits, to_bfloat16(x).bits);
  EXPECT_EQ(round_stochastically(NAN, 0xFFFF).bits, to_bfloat16(NAN).bits);
}

TEST(AdamWUpdate, Bf16MomentRoundingDependsOnKey) {
  const Stream stream = cpu_stream();
  const Shape shape{5000};
  const auto moments = [&](std::uint32_t key) {
    const Tensor w = random_tensor(shape, DType::kF32, 1, stream);
    const Tensor m = Tensor::zeros(shape, DType::kBF16, MemoryKind::kOptimizerState, stream);
    const Tensor v = Tensor::zeros(shape, DType::kBF16, MemoryKind::kOptimizerState, stream);
    const Tensor g = random_tensor(shape, DType::kF32, 2, stream);
    adamw_update(w, m, v, g, {}, {.learning_rate = 0.1f, .rounding_key = key}, stream);
    return std::pair(m, v);
  };
  const auto [m, v] = moments(1);
  const auto [again, v_again] = moments(1);
  const auto [other, v_other] = moments(2);
  const auto same = [](const Tensor& a, const Tensor& b) {
    return std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
  };
  EXPECT_TRUE(same(m, again) && same(v, v_again));
  EXPECT_FALSE(same(m, other) || same(v, v_other));
  const Tensor g = random_tensor(shape, DType::kF32, 2, stream);
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    const double wanted = 0.1 * static_cast<double>(g.data<float>()[i]);
    const double kept =
        std::bit_cast<float>(static_cast<std::uint32_t>(m.data<BFloat16>()[i].bits) << 16);
    ASSERT_NEAR(kept, wanted, std::abs(wanted) / 100) << i;
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
