#include "kernels/updates/optimizer_update.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// {w, m, v or rows, g, compute copy, columns} of a matrix.
Tensors matrix_case(const Shape& shape, std::int64_t blocks, bool with_copy, const Stream& host) {
  return {random_tensor(shape, DType::kF32, 1, host),
          random_tensor(shape, DType::kF32, 2, host),
          random_squares({blocks}, 3, host),
          random_tensor(shape, DType::kF32, 4, host),
          with_copy ? random_tensor(shape, DType::kBF16, 5, host) : Tensor{},
          random_squares({shape[1]}, 6, host)};
}

const Shape kShapes[] = {{1, 1}, {1, 777}, {64, 33}, {130, 40}, {9, 1028}};

TEST(CudaSharedMomentUpdate, AdamMiniMatchesCpu) {
  const Stream host = cpu_stream();
  for (const Shape& shape : kShapes) {
    for (const std::int64_t blocks : {shape[0], std::int64_t{1}}) {
      for (const bool with_copy : {false, true}) {
        expect_like_cpu(matrix_case(shape, blocks, with_copy, host), with_copy ? 5e-3 : 1e-6,
                        concat("adam_mini_update ", shape.text(), " in ", blocks, " blocks"),
                        [](const Tensors& t, const Stream& s) {
                          adam_mini_update(t[0], t[1], t[2], t[3], t[4], kAdamW, s);
                          adam_mini_direction(t[3], t[1], t[2], kAdamW, s);
                        });
      }
    }
  }
}

TEST(CudaSharedMomentUpdate, AdafactorMatchesCpu) {
  const Stream host = cpu_stream();
  for (const Shape& shape : kShapes) {
    for (const bool with_copy : {false, true}) {
      for (const float rate : {0.1f, 1e-3f}) {  // gradients as large as the moments, and larger
        const AdafactorSettings settings{.learning_rate = rate,
                                         .decay = 1 - 10 * rate * rate,
                                         .weight_decay = 0.2f,
                                         .gradient_scale = 0.5f};
        expect_like_cpu(matrix_case(shape, shape[0], with_copy, host), with_copy ? 5e-3 : 2e-6,
                        concat("adafactor_update ", shape.text()),
                        [&](const Tensors& t, const Stream& s) {
                          adafactor_update(t[0], t[2], t[5], t[3], t[4], settings, s);
                        });
      }
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
