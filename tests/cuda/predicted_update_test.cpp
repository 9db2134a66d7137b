#include "kernels/updates/predicted_update.h"

#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/quantized/quantization.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

const Shape kWeightShapes[] = {{1, 1}, {1, 777}, {64, 33}, {130, 40}, {9, 1028}};
constexpr std::size_t kFirstGradient = 4;  // index of the first one in weight_case

/// {w, base, rows, columns}, then gradient, rows and columns of each pending gradient.
Tensors weight_case(const Shape& shape, DType dtype, std::uint64_t count, const Stream& host) {
  Tensors tensors{random_tensor(shape, dtype, 1, host), random_tensor(shape, DType::kF32, 2, host),
                  random_squares({shape[0]}, 3, host), random_squares({shape[1]}, 4, host)};
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool factored = i % 2 == 0;
    tensors.push_back(random_tensor(shape, DType::kF32, 10 + i, host));
    tensors.push_back(factored ? random_squares({shape[0]}, 30 + i, host) : Tensor());
    tensors.push_back(factored ? random_squares({shape[1]}, 50 + i, host) : Tensor());
  }
  return tensors;
}

std::vector<GradientInFlight> gradients_of(const Tensors& tensors) {
  std::vector<GradientInFlight> gradients;
  for (std::size_t at = kFirstGradient; at + 2 < tensors.size(); at += 3) {
    const float rate = 0.01f * static_cast<float>(at);
    gradients.push_back({tensors[at], tensors[at + 1], tensors[at + 2], 0.5f + rate, rate});
  }
  return gradients;
}

void expect_predictions_like_cpu(const std::string& what,
                                 const std::function<void(const Tensors&, const Stream&)>& kernel) {
  const Stream host = cpu_stream();
  for (const Shape& shape : kWeightShapes) {
    for (const DType dtype : kRealTypes) {
      for (const std::uint64_t count : {0u, 1u, 8u}) {
        expect_like_cpu(weight_case(shape, dtype, count, host), dtype == DType::kF32 ? 2e-6 : 8e-3,
                        concat(what, " ", shape.text(), " ", count), kernel);
      }
    }
  }
}

/// The case's base as each kind of momentum: none, f32 and quantized.
std::vector<StartingMomentum> momenta(const Tensors& t, const Stream& s) {
  const Tensor codes = Tensor::zeros(t[1].shape(), DType::kU8, MemoryKind::kWorkspace, s);
  const Tensor scales =
      Tensor::zeros({quantization_blocks(t[1].elements())}, DType::kF32, MemoryKind::kWorkspace, s);
  quantize(codes, scales, t[1], QuantizationMap::kSigned, s);
  return {{}, {t[1], {}}, {codes, scales}};
}

TEST(CudaPredictedUpdate, AdamWMatchesCpu) {
  for (const std::size_t momentum : {0u, 1u, 2u}) {
    expect_predictions_like_cpu(concat("predicted_adamw ", momentum),
                                [=](const Tensors& t, const Stream& s) {
                                  predicted_adamw(t[0], t[1], momenta(t, s)[momentum], t[2], t[3],
                                                  gradients_of(t), momentum == 1, kAdamW, s);
                                });
  }
}

TEST(CudaPredictedUpdate, InPlaceFirstAdamWStepsMatchCpu) {
  expect_predictions_like_cpu("predicted_adamw in place", [](const Tensors& t, const Stream& s) {
    AdamWSettings first = kAdamW;
    first.step = 0;
    predicted_adamw(t[1], t[1], {}, {}, {}, gradients_of(t), true, first, s);
  });
}

TEST(CudaPredictedUpdate, MisalignedAdamWMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensors tensors = weight_case({258, 1}, dtype, 2, host);
    expect_like_cpu(tensors, dtype == DType::kF32 ? 2e-6 : 8e-3, "from the second row on",
                    [](const Tensors& t, const Stream& s) {
                      Tensors rest;
                      for (const Tensor& one : t)
                        rest.push_back(one && one.size(0) > 1 ? one.rows(1, one.size(0)) : one);
                      predicted_adamw(rest[0], rest[1], momenta(rest, s)[2], rest[2], rest[3],
                                      gradients_of(rest), true, kAdamW, s);
                    });
  }
}

TEST(CudaPredictedUpdate, LionMatchesCpu) {
  const LionSettings settings{.beta1 = 0.8f, .beta2 = 0.95f, .weight_decay = 0.2f};
  for (const std::size_t momentum : {0u, 1u, 2u}) {
    expect_predictions_like_cpu(concat("predicted_lion ", momentum),
                                [&](const Tensors& t, const Stream& s) {
                                  predicted_lion(t[0], t[1], momenta(t, s)[momentum],
                                                 gradients_of(t), momentum == 1, settings, s);
                                });
  }
}

TEST(CudaPredictedUpdate, RowAndColumnMeansMatchCpu) {
  for (const bool squares : {false, true}) {
    expect_predictions_like_cpu("row_and_column_means", [=](const Tensors& t, const Stream& s) {
      row_and_column_means(t[2], t[3], t[1], 0.5f, squares, s);
    });
  }
}

TEST(CudaPredictedUpdate, MuonMatchesCpu) {
  expect_predictions_like_cpu("predicted_muon", [](const Tensors& t, const Stream& s) {
    const auto gradients = gradients_of(t);
    const Tensor squares = Tensor::empty({static_cast<std::int64_t>(gradients.size())}, DType::kF64,
                                         MemoryKind::kWorkspace, s);
    const Tensor momentum_squares = Tensor::empty({1}, DType::kF64, MemoryKind::kWorkspace, s);
    sum_of_squares(momentum_squares, {&t[2], 1}, s);
    in_flight_squares(squares, gradients, 0.9f, s);
    predicted_muon(t[0], t[1], momentum_squares, squares, gradients, 0.9f, 0.3f, 0.2f, s);
  });
}

TEST(CudaPredictedUpdate, InFlightSquaresMatchCpu) {
  const Stream host = cpu_stream();
  for (const Shape& shape : {Shape{1, 1}, Shape{64, 33}, Shape{9, 4111}}) {
    const Tensors tensors = weight_case(shape, DType::kF32, 8, host);
    const auto squares_on = [&](const Stream& stream) {
      const Tensor squares = Tensor::empty({8}, DType::kF64, MemoryKind::kWorkspace, stream);
      in_flight_squares(squares, gradients_of(copies_to(tensors, stream)), 0.9f, stream);
      const Tensor here = wait_for_host(squares, stream);
      return std::vector<double>(here.data<double>(), here.data<double>() + 8);
    };
    const auto wanted = squares_on(host);
    std::vector<std::vector<double>> found;
    in_several_orders([&] { found.push_back(squares_on(cuda_stream())); });
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(found[0][i], wanted[i], 1e-6 * wanted[i]) << shape.text() << " " << i;
    for (const auto& one : found) EXPECT_EQ(one, found[0]);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
