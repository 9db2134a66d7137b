#include "hybrid_trainer/kernels/texts.h"

#include <algorithm>

#include "tests/cuda/cuda_case.h"
#include "tests/kernels/texts/texts_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Slots of sequences with more texts than a block has threads.
struct ManyTexts {
  static constexpr std::int64_t kSlots = 301;
  /// Pairs, every third one followed by a negative, then empty slots.
  static Tensor roles(const Stream& host) {
    Values values;
    for (int i = 0; values.size() < 280; ++i) {
      values.insert(values.end(), {0, 1});
      if (i % 3 == 0) values.push_back(2);
    }
    values.resize(kSlots, -1);
    return tensor_of(values, {1, kSlots}, DType::kI32, host);
  }
  static Tensor cosines(const Shape& shape, const Stream& host) {
    const Tensor x = random_tensor(shape, DType::kF32, 1, host, 0.4);
    for (std::int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = std::clamp(x.data<float>()[i], -1.0f, 1.0f);
    return x;
  }
};

TEST(CudaTexts, PoolingMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const Pooling pooling : kPoolings) {
      for (const std::int64_t columns : {1, 5, 16, 301}) {
        const Shape hidden{PackedCase::kTokens, columns}, pooled{PackedCase::kRows, columns};
        expect_like_cpu(
            {random_tensor(pooled, DType::kF32, 1, host), random_tensor(hidden, dtype, 2, host),
             random_tensor(hidden, dtype, 3, host), PackedCase::ends(host)},
            1e-6, concat(name_of(dtype), ", ", columns, " columns"),
            [&](const Tensors& t, const Stream& s) {
              pool_texts_backward(t[2], t[0], t[3], pooling, s);
              pool_texts(t[0], t[1], t[3], pooling, s);
            });
      }
    }
  }
}

TEST(CudaTexts, InvalidEndsGiveNaN) {
  const Stream host = cpu_stream();
  for (const Values& ends : {Values{10, 0}, {-1, 0}, {5, 5}, {0, 4}}) {
    const std::size_t bad = ends[1] > 0 ? 1 : 0;
    const Stream stream = cuda_stream();
    const Tensors t =
        copies_to({empty_f32({2, 3}, host), random_tensor({9, 3}, DType::kF32, 1, host),
                   tensor_of(ends, {1, 2}, DType::kI32, host)},
                  stream);
    pool_texts(t[0], t[1], t[2], Pooling::kMean, stream);
    pool_texts_backward(t[1], t[0], t[2], Pooling::kMean, stream);
    EXPECT_TRUE(std::isnan(values_of(wait_for_host(t[0], stream))[bad * 3])) << ends[0];
    stream.synchronize();
  }
}

TEST(CudaTexts, NormalizationMatchesCpu) {
  const Stream host = cpu_stream();
  for (const std::int64_t columns : {1, 5, 301}) {
    for (const std::int64_t dimensions : {std::int64_t{1}, (columns + 1) / 2, columns}) {
      const Shape shape{4, columns};
      const Tensor x = random_tensor(shape, DType::kF32, 1, host, 3);
      std::fill_n(x.data<float>() + columns, columns, 0.0f);
      const GradientMode mode = columns == 5 ? GradientMode::kAccumulate : GradientMode::kOverwrite;
      const Tensor dy = random_tensor(shape, DType::kF32, 2, host);
      std::fill_n(dy.data<float>() + columns, columns, 0.0f);  // as of an empty slot
      expect_like_cpu({empty_f32(shape, host), empty_f32({4}, host), x, dy,
                       random_tensor(shape, DType::kF32, 3, host)},
                      1e-6, concat(dimensions, " of ", columns),
                      [&](const Tensors& t, const Stream& s) {
                        normalize_rows(t[0], t[1], t[2], dimensions, s);
                        normalize_rows_backward(t[4], mode, t[3], t[0], t[1], dimensions, s);
                      });
    }
  }
}

TEST(CudaTexts, ContrastiveLossMatchesCpu) {
  const Stream host = cpu_stream();
  for (const ContrastiveRows rows : kContrastiveRows) {
    for (const float gradient_scale : {0.0f, 0.25f}) {
      for (const Tensor& roles : {RolesCase::roles(host), ManyTexts::roles(host)}) {
        const std::int64_t slots = roles.elements();
        expect_like_cpu({empty_f32({slots}, host), ManyTexts::cosines({slots, slots}, host), roles},
                        1e-6, concat(slots, " slots"), [&](const Tensors& t, const Stream& s) {
                          contrastive_loss(t[0], t[1], t[2], rows, 20, gradient_scale, s);
                        });
      }
    }
  }
}

TEST(CudaTexts, PairCosinesMatchCpu) {
  const Stream host = cpu_stream();
  for (const std::int64_t columns : {1, 5, 301}) {
    const Shape shape{RolesCase::kSlots, columns};
    expect_like_cpu(
        {empty_f32({RolesCase::kSlots}, host), random_tensor(shape, DType::kF32, 1, host),
         RolesCase::roles(host), empty_f32(shape, host)},
        1e-6, concat(columns, " columns"), [](const Tensors& t, const Stream& s) {
          pair_cosines(t[0], t[1], t[2], s);
          pair_cosines_backward(t[3], t[0], t[1], t[2], s);
        });
  }
}

TEST(CudaTexts, CosentLossMatchesCpu) {
  const Stream host = cpu_stream();
  for (const float gradient_scale : {0.0f, 0.25f}) {
    for (const Tensor& roles : {RolesCase::roles(host), ManyTexts::roles(host)}) {
      const Shape slots{roles.elements()};
      const Tensor labels = random_tensor(slots, DType::kF32, 4, host);
      for (std::int64_t i = 0; i < slots[0]; i += 2) labels.data<float>()[i] = 0.5f;
      expect_like_cpu({empty_f32(slots, host), ManyTexts::cosines(slots, host), labels, roles},
                      1e-6, slots.text(), [&](const Tensors& t, const Stream& s) {
                        cosent_loss(t[0], t[1], t[2], t[3], 20, gradient_scale, s);
                      });
    }
  }
}

TEST(CudaTexts, RewardLossMatchesCpu) {
  const Stream host = cpu_stream();
  for (const float gradient_scale : {0.0f, 0.25f}) {
    for (const Tensor& roles : {RolesCase::roles(host), ManyTexts::roles(host)}) {
      const Shape slots{roles.elements()};
      expect_like_cpu(
          {empty_f32(slots, host), random_tensor(slots, DType::kF32, 1, host, 3), roles,
           Tensor::zeros({kRewardMeasures}, DType::kF64, MemoryKind::kActivations, host)},
          1e-6, slots.text(), [&](const Tensors& t, const Stream& s) {
            reward_loss(t[0], t[1], t[2], t[3], gradient_scale, s);
            reward_loss(t[0], t[1], t[2], {}, gradient_scale, s);
          });
    }
  }
}

TEST(CudaTexts, LabelLossesMatchCpu) {
  const Stream host = cpu_stream();
  for (const float gradient_scale : {0.0f, 0.25f}) {
    for (const std::int64_t columns : {1, 5, 301}) {
      const Shape slots{RolesCase::kSlots}, shape{RolesCase::kSlots, columns};
      expect_like_cpu({empty_f32(slots, host), random_tensor(shape, DType::kF32, 1, host, 5),
                       random_tensor(shape, DType::kF32, 2, host), RolesCase::roles(host),
                       empty_f32(slots, host), random_tensor(shape, DType::kF32, 3, host)},
                      1e-6, concat(columns, " columns"), [&](const Tensors& t, const Stream& s) {
                        binary_cross_entropy(t[0], t[1], t[2], t[3], gradient_scale, s);
                        mean_squared_error(t[4], t[5], t[2], t[3], gradient_scale, s);
                      });
    }
  }
}

TEST(CudaTexts, MissingPartnersGiveNaN) {
  const Stream host = cpu_stream();
  const Tensor roles = tensor_of({0, 1, 0}, {1, 3}, DType::kI32, host);
  using Compute = std::function<void(const Tensors&, const Stream&)>;
  const Compute computes[] = {
      [](const Tensors& t, const Stream& s) {
        contrastive_loss(t[0], t[1], t[2], ContrastiveRows::kAnchors, 20, 1, s);
      },
      [](const Tensors& t, const Stream& s) { pair_cosines(t[0], t[1], t[2], s); },
      [](const Tensors& t, const Stream& s) { reward_loss(t[0], t[3], t[2], {}, 1, s); }};
  for (const Compute& compute : computes) {
    const Stream stream = cuda_stream();
    const Tensors t = copies_to({empty_f32({3}, host), random_tensor({3, 3}, DType::kF32, 1, host),
                                 roles, random_tensor({3}, DType::kF32, 2, host)},
                                stream);
    compute(t, stream);
    const Values losses = values_of(wait_for_host(t[0], stream));
    EXPECT_TRUE(std::isfinite(losses[0]) && std::isfinite(losses[1]));
    EXPECT_TRUE(std::isnan(losses[2]));
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
