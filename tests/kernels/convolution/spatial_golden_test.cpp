#include <fstream>

#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Test cases of tests/golden/make_spatial_golden.py.
class SpatialGolden {
 public:
  SpatialGolden() : file_(HT_TEST_DATA_DIR "/spatial_golden.txt") {}
  /// Advances to the next case.
  bool next() {
    if (!(file_ >> kind >> rank_)) return false;
    x = numbered(read_shape(static_cast<int>(rank_) + 2), 37);
    return true;
  }
  std::int64_t number() {
    std::int64_t value = 0;
    file_ >> value;
    return value;
  }
  SpatialSizes sizes(std::int64_t beyond) {
    SpatialSizes result{beyond, beyond, beyond};
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank_); ++i) result[i] = number();
    return result;
  }
  /// The same numbers as in the Python script.
  Tensor numbered(const Shape& shape, std::int64_t factor) const {
    Values values;
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      values.push_back(static_cast<double>((i * factor + 11) % 41 - 20) / 16);
    return tensor_of(values, shape, DType::kF32, stream);
  }
  Tensor empty(const Shape& shape, DType dtype = DType::kF32) const {
    return Tensor::empty(shape, dtype, MemoryKind::kActivations, stream);
  }
  /// Compares with the next numbers in the file.
  void expect(const Tensor& tensor) {
    Values wanted(static_cast<std::size_t>(tensor.elements()));
    for (double& value : wanted) file_ >> value;
    expect_close(tensor, wanted, 1e-5, kind + " " + x.shape().text());
  }
  const Stream stream = cpu_stream();
  std::string kind;
  Tensor x;

 private:
  Shape read_shape(int rank) {
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.append(number());
    return shape;
  }
  std::ifstream file_;
  std::int64_t rank_ = 0;
};

void expect_pooling(SpatialGolden& golden) {
  Window window;
  window.kernel = golden.sizes(1), window.stride = golden.sizes(1);
  window.padding = golden.sizes(0);
  const Tensor dx = golden.empty(golden.x.shape());
  const Shape out =
      window_outputs(golden.x.shape(), window, golden.x.size(golden.x.shape().rank() - 1));
  const Tensor y = golden.empty(out), dy = golden.numbered(out, 23);
  if (golden.kind == "max") {
    const Tensor places = golden.empty(out, DType::kI32);
    max_pooling_forward(y, places, golden.x, window, golden.stream);
    max_pooling_backward(dx, dy, places, window, golden.stream);
  } else {
    const Divisor divisor = golden.kind == "mean" ? Divisor::kWindow : Divisor::kPlaces;
    mean_pooling_forward(y, golden.x, window, divisor, golden.stream);
    mean_pooling_backward(dx, dy, window, divisor, golden.stream);
  }
  golden.expect(y);
  golden.expect(dx);
}

void expect_upsampling(SpatialGolden& golden) {
  const Interpolation how =
      golden.kind == "linear" ? Interpolation::kLinear : Interpolation::kNearest;
  const SpatialSizes factors = golden.sizes(1);
  const Shape out = upsampled_shape(golden.x.shape(), factors);
  const Tensor y = golden.empty(out), dx = golden.empty(golden.x.shape());
  upsampling_forward(y, golden.x, factors, how, golden.stream);
  upsampling_backward(dx, golden.numbered(out, 23), factors, how, golden.stream);
  golden.expect(y);
  golden.expect(dx);
}

void expect_norm(SpatialGolden& golden) {
  const std::int64_t groups = golden.number();
  const Shape& shape = golden.x.shape();
  const std::int64_t channels = shape[shape.rank() - 1];
  const Shape rows{shape[0], places_of(shape), channels}, statistics{shape[0], groups};
  const Tensor weight = golden.numbered({channels}, 29), bias = golden.numbered({channels}, 5),
               y = golden.empty(rows), dx = golden.empty(rows), dweight = golden.empty({channels}),
               dbias = golden.empty({channels}), mean = golden.empty(statistics),
               rstd = golden.empty(statistics);
  group_norm_forward(y, mean, rstd, golden.x.view(rows), weight, bias, groups, 1e-5f,
                     golden.stream);
  group_norm_backward(dx, dweight, dbias, GradientMode::kOverwrite, golden.numbered(rows, 23),
                      golden.x.view(rows), mean, rstd, weight, golden.stream);
  for (const Tensor& tensor : {y, dx, dweight, dbias}) golden.expect(tensor);
}

void expect_activation(SpatialGolden& golden) {
  const ActivationKind kind = golden.kind == "relu"   ? ActivationKind::kRelu
                              : golden.kind == "silu" ? ActivationKind::kSilu
                                                      : ActivationKind::kGelu;
  const Tensor y = golden.empty(golden.x.shape()), dx = golden.empty(golden.x.shape());
  activation_forward(y, golden.x, kind, golden.stream);
  activation_backward(dx, golden.numbered(golden.x.shape(), 23), golden.x, kind, golden.stream);
  golden.expect(y);
  golden.expect(dx);
}

TEST(SpatialKernels, MatchPyTorch) {
  SpatialGolden golden;
  int cases = 0;
  for (; golden.next(); ++cases) {
    const std::string& kind = golden.kind;
    if (kind.starts_with("m")) {
      expect_pooling(golden);
    } else if (kind == "nearest" || kind == "linear") {
      expect_upsampling(golden);
    } else if (kind == "group_norm") {
      expect_norm(golden);
    } else {
      expect_activation(golden);
    }
  }
  EXPECT_EQ(cases, 20);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
