#include "hybrid_trainer/kernels/loss.h"

#include "hybrid_trainer/core/batch.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

struct LossCase {
  std::int64_t rows, vocabulary, stride;
};

/// {losses, logits, targets}.
Tensors tensors_of(const LossCase& c, DType dtype, const Stream& host) {
  const Tensor targets = random_ids({c.rows}, c.vocabulary, 3, host);
  if (c.rows > 2) targets.data<std::int32_t>()[1] = kNoTarget;
  return {random_tensor({c.rows}, DType::kF32, 1, host),
          random_tensor({c.rows, c.stride}, dtype, 2, host, 4), targets};
}

double loss_tolerance(DType dtype) { return dtype == DType::kF32 ? 1e-5 : 1e-2; }

TEST(CudaLoss, CrossEntropyMatchesCpu) {
  const Stream host = cpu_stream();
  for (DType dtype : kRealTypes) {
    for (const LossCase& c :
         {LossCase{1, 1, 1},
          {3, 5, 8},
          {2, 8, 8},
          {3, 251, 256},
          {2, 300, 301},
          {2, 5000, 5120},
          {1, 24570, 24576},  // in bf16 all shared memory of a block without opt-in
          {1, 9001, 9008}}) {
      for (float gradient_scale : {0.0f, 0.25f}) {
        expect_like_cpu(
            tensors_of(c, dtype, host), loss_tolerance(dtype),
            concat(c.vocabulary, " of ", c.stride, " ", name_of(dtype), " scale ", gradient_scale),
            [&](const Tensors& t, const Stream& s) {
              softmax_cross_entropy(t[0], t[1], t[2], c.vocabulary, gradient_scale, s);
            });
      }
    }
  }
}

TEST(CudaLoss, SmoothedCrossEntropyMatchesCpu) {
  const Stream host = cpu_stream();
  for (DType dtype : kRealTypes) {
    for (const LossCase& c :
         {LossCase{1, 1, 1}, {3, 5, 8}, {3, 251, 256}, {2, 300, 301}, {2, 5000, 5120}}) {
      for (float gradient_scale : {0.0f, 0.25f}) {
        for (float smoothing : {0.1f, 0.75f}) {
          expect_like_cpu(tensors_of(c, dtype, host), loss_tolerance(dtype),
                          concat(c.vocabulary, " of ", c.stride, " ", name_of(dtype), " scale ",
                                 gradient_scale, " smoothing ", smoothing),
                          [&](const Tensors& t, const Stream& s) {
                            smoothed_cross_entropy(t[0], t[1], t[2], {c.vocabulary, smoothing},
                                                   gradient_scale, s);
                          });
        }
      }
    }
  }
}

TEST(CudaLoss, RegressionLossMatchesCpu) {
  const Stream host = cpu_stream();
  for (const std::int64_t elements : {1, 3, 64, 1027}) {
    for (const Distance distance : {Distance::kSquared, Distance::kHuber}) {
      for (float gradient_scale : {0.0f, 0.25f}) {
        const Tensors tensors{random_tensor({elements}, DType::kF32, 1, host),
                              random_tensor({elements}, DType::kF32, 2, host, 3),
                              random_tensor({elements}, DType::kF32, 3, host)};
        expect_like_cpu(tensors, 1e-6, concat(elements, " scale ", gradient_scale),
                        [&](const Tensors& t, const Stream& s) {
                          regression_loss(t[0], t[1], t[2], distance, 0.75f, gradient_scale, s);
                        });
      }
    }
  }
}

TEST(CudaLoss, GridLossMatchesCpu) {
  const Stream host = cpu_stream();
  const GridLossSpec spec{
      .positive_weight = 3, .box_weight = 0.5f, .class_weight = 2, .beta = 0.25f};
  for (const std::int64_t cells : {1, 5, 300}) {
    for (const std::int64_t classes : {1, 4, 20}) {
      for (float gradient_scale : {0.0f, 0.25f}) {
        const Tensor wanted = random_ids({cells}, classes + 1, 4, host);
        for (std::int64_t n = 0; n < cells; ++n)
          wanted.data<std::int32_t>()[n] = wanted.data<std::int32_t>()[n] - 1;  // and kNoTarget
        const Tensors tensors{random_tensor({cells}, DType::kF32, 1, host),
                              random_tensor({cells, 5 + classes}, DType::kF32, 2, host, 3), wanted,
                              random_tensor({cells, 4}, DType::kF32, 3, host)};
        expect_like_cpu(tensors, 1e-5, concat(cells, " cells, ", classes, " classes"),
                        [&](const Tensors& t, const Stream& s) {
                          grid_loss(t[0], t[1], t[2], t[3], spec, gradient_scale, s);
                        });
      }
    }
  }
  const Tensor unknown = tensor_of({3, -2}, {2}, DType::kI32, host);
  const float loss = first_on_cuda(
      {random_tensor({2}, DType::kF32, 1, host), random_tensor({2, 8}, DType::kF32, 2, host),
       unknown, random_tensor({2, 4}, DType::kF32, 3, host)},
      0, [&](const Tensors& t, const Stream& s) { grid_loss(t[0], t[1], t[2], t[3], spec, 1, s); });
  EXPECT_TRUE(std::isnan(loss)) << "a class that does not exist";
}

TEST(CudaLoss, SmallGradientsKeepPrecision) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  const Tensors host_tensors = tensors_of({2, 4000, 4000}, DType::kF32, host);
  const Tensors t = copies_to(host_tensors, stream);
  softmax_cross_entropy(t[0], t[1], t[2], 4000, 1, stream);
  softmax_cross_entropy(host_tensors[0], host_tensors[1], host_tensors[2], 4000, 1, host);
  const Values wanted = values_of(host_tensors[1]);
  const Values found = values_of(wait_for_host(t[1], stream));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(found[i], wanted[i], 1e-5 * std::abs(wanted[i])) << i;
  }
}

TEST(CudaLoss, HugeLogitsGiveFiniteLoss) {
  const Stream host = cpu_stream();
  Tensors tensors = tensors_of({1, 64, 64}, DType::kF32, host);
  for (std::int64_t i = 0; i < 64; ++i) tensors[1].data<float>()[i] *= i % 2 == 0 ? 1e4f : 1e-4f;
  tensors[1].data<float>()[5] = -HUGE_VALF;
  tensors[2].data<std::int32_t>()[0] = 6;
  expect_like_cpu(tensors, 1e-5, "huge logits", [](const Tensors& t, const Stream& s) {
    softmax_cross_entropy(t[0], t[1], t[2], 64, 1, s);
  });
}

TEST(CudaLoss, TargetOutsideVocabularyGivesNaN) {
  const Stream host = cpu_stream();
  for (DType dtype : kRealTypes) {
    const Tensors tensors = tensors_of({4, 50, 56}, dtype, host);
    std::int32_t* const targets = tensors[2].data<std::int32_t>();
    targets[0] = -2;
    targets[1] = 50;
    targets[2] = 2000000000;
    in_several_orders([&] {
      const Stream stream = cuda_stream();
      const Tensors t = copies_to(tensors, stream);
      softmax_cross_entropy(t[0], t[1], t[2], 50, 1, stream);
      const Values losses = values_of(wait_for_host(t[0], stream));
      for (std::size_t n = 0; n < 3; ++n) EXPECT_TRUE(std::isnan(losses[n])) << n;
      EXPECT_TRUE(std::isfinite(losses[3]));
      const Values gradients = values_of(wait_for_host(t[1], stream));
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const double wanted = i % 56 < 50 ? gradients[i] : 0;
        EXPECT_EQ(gradients[i], wanted) << i;
      }
    });
  }
}

TEST(CudaLoss, NaNLogitGivesNaNLoss) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  for (std::int64_t at : {0, 3, 299}) {
    Tensors tensors = tensors_of({1, 300, 300}, DType::kF32, host);
    tensors[1].data<float>()[at] = NAN;
    const Tensors t = copies_to(tensors, stream);
    softmax_cross_entropy(t[0], t[1], t[2], 300, 0, stream);
    EXPECT_TRUE(std::isnan(values_of(wait_for_host(t[0], stream))[0])) << at;
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
