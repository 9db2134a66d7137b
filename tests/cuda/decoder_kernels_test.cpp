// Kernels of decoders with rotary positions, gated feed-forward layers and RMSNorm.
#include <algorithm>

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

double tolerance(DType dtype) { return dtype == DType::kF32 ? 2e-5 : 2e-2; }

TEST(CudaRmsNorm, MatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    // Rows for a few lanes, a warp, a block with two rows or one, and wider rows.
    for (const auto& [rows, columns] : {std::pair{5, 8},
                                        {3, 1},
                                        {4, 50},
                                        {40, 256},
                                        {9, 512},
                                        {5, 1032},
                                        {2, 2048},
                                        {3, 4104},
                                        {600, 16},
                                        {0, 8}}) {
      const Tensors forward{random_tensor({rows, columns}, dtype, 1, host),
                            random_tensor({rows}, DType::kF32, 2, host),
                            random_tensor({rows, columns}, dtype, 3, host, 2),
                            random_tensor({columns}, DType::kF32, 4, host)};
      const std::string what = concat(rows, "x", columns, " ", name_of(dtype));
      expect_like_cpu(forward, tolerance(dtype), what, [](const Tensors& t, const Stream& s) {
        rms_norm_forward(t[0], t[1], t[2], t[3], {1e-5f}, s);
      });
      rms_norm_forward(forward[0], forward[1], forward[2], forward[3], {1e-5f}, host);
      const Tensors backward{random_tensor({rows, columns}, dtype, 5, host),
                             random_tensor({columns}, DType::kF32, 6, host),
                             random_tensor({rows, columns}, dtype, 7, host),
                             forward[2],
                             forward[1],
                             forward[3]};
      for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
        expect_like_cpu(backward, std::max(tolerance(dtype), rows > 100 ? 1e-3 : 0.0),
                        "backward " + what, [&](const Tensors& t, const Stream& s) {
                          rms_norm_backward(t[0], mode, t[1], mode, t[2], t[3], t[4], t[5], {1e-5f},
                                            s);
                        });
      }
    }
  }
}

TEST(CudaRotary, MatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t size : {2, 10, 32}) {
      expect_like_cpu({random_tensor({2, 5, 3 * size}, dtype, 1, host),
                       random_tensor({9, size}, DType::kF32, 2, host)},
                      tolerance(dtype), concat("heads of ", size, " ", name_of(dtype)),
                      [](const Tensors& t, const Stream& s) {
                        rotate(t[0], 2, t[1], 3, Tensor(), Rotation::kForward, s);
                        rotate(t[0], 1, t[1], 0, Tensor(), Rotation::kBackward, s);
                      });
      expect_like_cpu(
          {random_tensor({2, 5, 3 * size}, dtype, 1, host),
           random_tensor({9, size}, DType::kF32, 2, host), random_ids({2, 5}, 9, 3, host)},
          tolerance(dtype), "at positions", [](const Tensors& t, const Stream& s) {
            rotate(t[0], 2, t[1], 0, t[2], Rotation::kForward, s);
          });
      expect_like_cpu({random_tensor({2, 5, 6 * size}, dtype, 1, host),
                       random_tensor({5, size}, DType::kF32, 2, host)},
                      tolerance(dtype), "a share of each head",
                      [&](const Tensors& t, const Stream& s) {
                        rotate(t[0], {2, 2 * size}, t[1], 0, Tensor(), Rotation::kForward, s);
                        rotate(t[0], {2, 2 * size, true}, t[1], 0, Tensor(), Rotation::kForward, s);
                      });
    }
  }
}

TEST(CudaColumns, CopyAddAndGateMatchCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t count : {3, 16}) {  // with and without vector loads
      const Tensors all{
          random_tensor({5, count}, dtype, 1, host), random_tensor({5, 3 * count}, dtype, 2, host),
          random_tensor({5, count}, dtype, 3, host), random_tensor({5, 3 * count}, dtype, 4, host)};
      expect_like_cpu(all, tolerance(dtype), concat(count, " columns ", name_of(dtype)),
                      [&](const Tensors& t, const Stream& s) {
                        sigmoid_gate_backward(t[0], {t[1], count}, t[2], t[0], {t[3], count}, s);
                        sigmoid_gate_forward(t[0], t[2], {t[3], count}, s);
                        copy_columns({t[1], 2 * count}, {t[3], count}, count, s);
                        add_columns({t[1], 0}, {t[3], 2 * count}, count, s);
                        multiply_columns({t[1], 0}, {t[1], 0}, {t[3], count}, count, s);
                      });
    }
  }
}

TEST(CudaColumns, CopyOfIntegersMatchesCpu) {
  const Stream host = cpu_stream();
  expect_like_cpu({random_ids({3, 4}, 9, 1, host), random_ids({3, 6}, 99, 2, host)}, 0, "integers",
                  [](const Tensors& t, const Stream& s) {
                    copy_columns({t[0], 1}, {t[1], 2}, 3, s);
                  });
}

TEST(CudaRmsNorm, PerHeadAndOnePlusMatchCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t size : {5, 16, 64, 128, 256}) {
      expect_like_cpu({random_tensor({2, 3, 4 * size}, dtype, 1, host),
                       random_tensor({2, 3, 4 * size}, dtype, 2, host),
                       random_tensor({size}, DType::kF32, 3, host),
                       random_tensor({size}, DType::kF32, 4, host)},
                      std::max(tolerance(dtype), 1e-4), concat("heads of ", size),
                      [](const Tensors& t, const Stream& s) {
                        rms_norm_heads_backward(t[1], t[3], GradientMode::kAccumulate, t[0], {1, 2},
                                                t[2], {1e-5f, true}, s);
                        rms_norm_heads_forward(t[0], {1, 3}, t[2], {1e-5f, true}, s);
                      });
    }
    expect_like_cpu(
        {random_tensor({4, 24}, dtype, 1, host), random_tensor({4}, DType::kF32, 2, host),
         random_tensor({4, 24}, dtype, 3, host), random_tensor({24}, DType::kF32, 4, host)},
        tolerance(dtype), "one plus", [](const Tensors& t, const Stream& s) {
          rms_norm_forward(t[0], t[1], t[2], t[3], {1e-5f, true}, s);
        });
  }
}

TEST(CudaCap, CapClipAndScaleMatchCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    expect_like_cpu(
        {random_tensor({3, 17}, dtype, 1, host, 3), random_tensor({3, 17}, dtype, 2, host)},
        tolerance(dtype), "cap", [](const Tensors& t, const Stream& s) {
          clip_backward(t[1], t[1], t[0], 3, s);
          clip(t[0], t[0], 2.5f, s);
          cap_forward(t[0], t[0], 2, s);
          cap_backward(t[1], t[1], t[0], 2, s);
          scale(t[1], t[1], 1.5f, s);
        });
  }
}

TEST(CudaGated, MatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t columns : {1, 7, 16, 264}) {
      for (const Gate gate : {Gate::kSilu, Gate::kGelu, Gate::kExactGelu}) {
        expect_like_cpu({random_tensor({3, columns}, dtype, 1, host),
                         random_tensor({3, 2 * columns}, dtype, 2, host),
                         random_tensor({3, columns}, dtype, 3, host)},
                        tolerance(dtype), concat(columns, " columns ", name_of(dtype)),
                        [=](const Tensors& t, const Stream& s) {
                          gated_forward(t[0], t[1], gate, s);
                          gated_backward(t[1], t[2], t[1], gate, s);
                        });
      }
    }
  }
}

TEST(CudaEmbedding, WithoutPositionsMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t columns : {5, 16}) {
      expect_like_cpu({random_tensor({2, 6, columns}, dtype, 1, host),
                       random_ids({2, 6}, 9, 2, host), random_tensor({9, columns}, dtype, 3, host),
                       random_tensor({9, columns}, DType::kF32, 4, host)},
                      tolerance(dtype), concat(columns, " columns ", name_of(dtype)),
                      [](const Tensors& t, const Stream& s) {
                        embedding_forward(t[0], t[1], t[2], Tensor(), 0, s);
                        embedding_backward(t[3], GradientMode::kAccumulate, Tensor(),
                                           GradientMode::kOverwrite, t[0], t[1], s);
                      });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
