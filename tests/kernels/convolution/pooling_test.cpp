#include "tests/kernels/convolution/pooling_case.h"

namespace hybrid_trainer::kernels {
namespace {

Values places_as_values(const Tensor& places) {
  const std::int32_t* const begin = places.data<std::int32_t>();
  return {begin, begin + places.elements()};
}

void expect_means(const WindowCase& of, DType dtype, Divisor divisor, const Stream& stream) {
  const Shape out = window_outputs(of.x, of.window, of.channels());
  const Tensor x = random_tensor(of.x, dtype, 1, stream), dy = random_tensor(out, dtype, 2, stream);
  const Tensor y = Tensor::empty_like(dy, MemoryKind::kActivations, stream),
               dx = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  mean_pooling_forward(y, x, of.window, divisor, stream);
  mean_pooling_backward(dx, dy, of.window, divisor, stream);
  const PoolingReference wanted(of, values_of(x), values_of(dy), &divisor);
  const double tolerance = dtype == DType::kF32 ? 2e-6 : 5e-3;
  expect_near_all(y, wanted.y, tolerance, of.text() + ": y");
  expect_near_all(dx, wanted.dx, tolerance, of.text() + ": dx");
}

WindowCase undilated(WindowCase of) {
  of.window.dilation = {1, 1, 1};
  return of;
}

TEST(MeanPooling, MatchesReferenceOnRandomShapes) {
  const Stream stream = cpu_stream();
  ShapeDraws draws(21);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const WindowCase of = undilated(random_window(draws, 9, i % 20 == 0 ? 150 : 9, true));
    expect_means(of, i % 2 == 0 ? DType::kF32 : DType::kBF16,
                 draws.coin() ? Divisor::kWindow : Divisor::kPlaces, stream);
  }
}

void expect_maxima(const WindowCase& of, DType dtype, const Stream& stream) {
  const Shape out = window_outputs(of.x, of.window, of.channels());
  const Tensor x = random_tensor(of.x, dtype, 1, stream), dy = random_tensor(out, dtype, 2, stream);
  const Tensor y = Tensor::empty_like(dy, MemoryKind::kActivations, stream),
               dx = Tensor::empty_like(x, MemoryKind::kActivations, stream),
               places = Tensor::empty(out, DType::kI32, MemoryKind::kActivations, stream);
  max_pooling_forward(y, places, x, of.window, stream);
  max_pooling_backward(dx, dy, places, of.window, stream);
  const PoolingReference wanted(of, values_of(x), values_of(dy), nullptr);
  EXPECT_EQ(values_of(y), wanted.y) << of.text();
  EXPECT_EQ(places_as_values(places), wanted.places) << of.text();
  expect_near_all(dx, wanted.dx, dtype == DType::kF32 ? 2e-6 : 5e-3, of.text() + ": dx");
}

/// Equal maxima are frequent in bf16; the first one counts.
TEST(MaxPooling, MatchesReferenceOnRandomShapes) {
  const Stream stream = cpu_stream();
  ShapeDraws draws(22);
  for (int i = 0; i < 200 && !HasFailure(); ++i)
    expect_maxima(random_window(draws, 9, i % 20 == 0 ? 150 : 9, true),
                  i % 2 == 0 ? DType::kF32 : DType::kBF16, stream);
}

TEST(MaxPooling, PropagatesNaN) {
  const Stream stream = cpu_stream();
  const Tensor x = tensor_of({1, std::nan(""), 3, 4, 5, 6}, {1, 6, 1}, DType::kF32, stream);
  const Tensor y = Tensor::empty({1, 2, 1}, DType::kF32, MemoryKind::kActivations, stream),
               places = Tensor::empty({1, 2, 1}, DType::kI32, MemoryKind::kActivations, stream);
  max_pooling_forward(y, places, x, {.kernel = {3}, .stride = {3}}, stream);
  EXPECT_TRUE(std::isnan(values_of(y)[0]));
  EXPECT_EQ(places_as_values(places), (Values{1, 5}));
}

TEST(Pooling, RefusesLargePaddingAndDilatedMeans) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({1, 6, 1}, DType::kF32, 1, stream);
  const auto message = [&](const Window& window) -> std::string {
    const Shape out = window_outputs(x.shape(), window, 1);
    try {
      mean_pooling_forward(random_tensor(out, DType::kF32, 2, stream), x, window, Divisor::kWindow,
                           stream);
    } catch (const ShapeMismatch& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message({.kernel = {3}, .padding = {2}}).find("the padding is 2 and the kernel 3"),
            std::string::npos);
  EXPECT_NE(message({.kernel = {2}, .dilation = {2}}).find("dilation is 2"), std::string::npos);
  EXPECT_NE(message({.kernel = {7}}).find("(1, 6, 1)"), std::string::npos);
  EXPECT_EQ(message({.kernel = {3}, .padding = {1}}), "accepted");
  const Tensor y = random_tensor({1, 6, 1}, DType::kF32, 2, stream);
  EXPECT_THROW(max_pooling_forward(y, y, x, {}, stream), Error);
  EXPECT_THROW(max_pooling_backward(
                   x, y, Tensor::zeros({1, 5, 1}, DType::kI32, MemoryKind::kActivations, stream),
                   {}, stream),
               ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
