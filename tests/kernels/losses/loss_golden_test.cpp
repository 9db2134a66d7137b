#include <fstream>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/loss.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr float kQuarter = 0.25f;  // factor of the summed losses whose gradient is in the file

/// Test cases of tests/golden/make_loss_golden.py.
class LossGolden {
 public:
  LossGolden() : file_(HT_TEST_DATA_DIR "/loss_golden.txt") {}
  /// Advances to the next case.
  bool next() {
    if (!(file_ >> kind >> rows >> columns)) return false;
    x = numbered({rows, columns}, 37);
    return true;
  }
  float number() {
    float value = 0;
    file_ >> value;
    return value;
  }
  Tensor numbered(const Shape& shape, std::int64_t factor) const {
    Values values;
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      values.push_back(static_cast<double>((i * factor + 11) % 41 - 20) / 8);
    return tensor_of(values, shape, DType::kF32, stream);
  }
  Tensor labels(std::int64_t classes, std::int64_t ignored) const {
    Values values;
    for (std::int64_t row = 0; row < rows; ++row)
      values.push_back(static_cast<double>(row % ignored == 1 ? kNoTarget : row * 7 % classes));
    return tensor_of(values, {rows}, DType::kI32, stream);
  }
  /// Calls compute(losses, x, gradient factor) without and with gradients.
  template <class Compute>
  void expect(std::int64_t losses_count, const Compute& compute) {
    const Tensor before = clone(x, stream);
    const Tensor losses =
        Tensor::empty({losses_count}, DType::kF32, MemoryKind::kActivations, stream);
    compute(losses, 0.0f);
    expect_same_bits(x, before);
    const Tensor alone = clone(losses, stream);
    compute(losses, kQuarter);
    expect_same_bits(losses, alone);
    for (const Tensor& tensor : {losses, x}) {
      Values wanted(static_cast<std::size_t>(tensor.elements()));
      for (double& value : wanted) file_ >> value;
      expect_close(tensor, wanted, 2e-6, concat(kind, " ", rows, " ", columns));
    }
  }
  const Stream stream = cpu_stream();
  std::string kind;
  std::int64_t rows = 0, columns = 0;
  Tensor x;

 private:
  std::ifstream file_;
};

void expect_cross_entropy(LossGolden& golden) {
  const SmoothedTargets spec{golden.columns, golden.number()};
  const Tensor targets = golden.labels(golden.columns, 3);
  golden.expect(golden.rows, [&](const Tensor& losses, float scale) {
    smoothed_cross_entropy(losses, golden.x, targets, spec, scale, golden.stream);
  });
}

void expect_regression(LossGolden& golden, Distance distance) {
  const float delta = golden.number();
  const Tensor targets = golden.numbered(golden.x.shape(), 23);
  golden.expect(golden.x.elements(), [&](const Tensor& losses, float scale) {
    regression_loss(losses, golden.x, targets, distance, delta, scale, golden.stream);
  });
}

void expect_grid(LossGolden& golden) {
  GridLossSpec spec;
  for (float* const number :
       {&spec.positive_weight, &spec.box_weight, &spec.class_weight, &spec.beta})
    *number = golden.number();
  const Tensor classes = golden.labels(golden.columns - 5, 2),
               boxes = golden.numbered({golden.rows, 4}, 23);
  golden.expect(golden.rows, [&](const Tensor& losses, float scale) {
    grid_loss(losses, golden.x, classes, boxes, spec, scale, golden.stream);
  });
}

TEST(LossGolden, MatchesPyTorch) {
  LossGolden golden;
  int cases = 0;
  for (; golden.next(); ++cases) {
    if (golden.kind == "cross_entropy") expect_cross_entropy(golden);
    if (golden.kind == "squared") expect_regression(golden, Distance::kSquared);
    if (golden.kind == "huber") expect_regression(golden, Distance::kHuber);
    if (golden.kind == "grid") expect_grid(golden);
  }
  EXPECT_EQ(cases, 11);
}

TEST(SmoothedCrossEntropy, ZeroSmoothingEqualsPlainCrossEntropy) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor one = random_tensor({9, 75}, dtype, 1, stream, 5), two = clone(one, stream);
    const Tensor targets = random_ids({9}, 70, 2, stream);
    const Tensor losses = Tensor::empty({9}, DType::kF32, MemoryKind::kActivations, stream),
                 others = Tensor::empty({9}, DType::kF32, MemoryKind::kActivations, stream);
    softmax_cross_entropy(losses, one, targets, 70, 0.3f, stream);
    smoothed_cross_entropy(others, two, targets, {70, 0}, 0.3f, stream);
    expect_same_bits(losses, others);
    expect_same_bits(one, two);
  }
}

TEST(SmoothedCrossEntropy, IgnoresPaddingAndRefusesInvalidSmoothing) {
  const Stream stream = cpu_stream();
  const Tensor logits = random_tensor({2, 8}, DType::kF32, 1, stream);
  const Tensor plain = Tensor::empty({2, 5}, DType::kF32, MemoryKind::kActivations, stream);
  for (std::int64_t i = 0; i < 10; ++i)
    plain.data<float>()[i] = logits.data<float>()[i / 5 * 8 + i % 5];
  const Tensor targets = random_ids({2}, 5, 2, stream);
  const Tensor losses = Tensor::empty({2}, DType::kF32, MemoryKind::kActivations, stream),
               wanted = clone(losses, stream);
  smoothed_cross_entropy(losses, logits, targets, {5, 0.2f}, 1, stream);
  smoothed_cross_entropy(wanted, plain, targets, {5, 0.2f}, 1, stream);
  expect_close(losses, values_of(wanted), 1e-6);
  for (std::int64_t i = 0; i < 16; ++i)
    EXPECT_NEAR(logits.data<float>()[i], i % 8 < 5 ? plain.data<float>()[i / 8 * 5 + i % 8] : 0,
                1e-6)
        << i;
  for (const float odd : {-0.1f, 1.0f, NAN})
    EXPECT_THROW(smoothed_cross_entropy(losses, logits, targets, {5, odd}, 1, stream), Error);
}

TEST(GridLoss, ReportsUnknownClass) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({3, 7}, DType::kF32, 1, stream);
  const Tensor classes = tensor_of({-1, 1, 2}, {3}, DType::kI32, stream),
               boxes = random_tensor({3, 4}, DType::kF32, 2, stream),
               losses = Tensor::empty({3}, DType::kF32, MemoryKind::kActivations, stream);
  try {
    grid_loss(losses, x, classes, boxes, {}, 0, stream);
    FAIL() << "accepted class 2 of 2";
  } catch (const DataError& error) {
    EXPECT_STREQ(
        error.what(),
        "grid_loss: the class of cell 2 is 2, want 0 to 1, or -1 for a cell without an object");
  }
  EXPECT_THROW(grid_loss(losses, random_tensor({3, 5}, DType::kF32, 1, stream), classes, boxes, {},
                         0, stream),
               ShapeMismatch);
  EXPECT_THROW(grid_loss(losses, x, classes, boxes, {.beta = 0}, 0, stream), Error);
}

TEST(RegressionLoss, PropagatesNonFiniteValues) {
  const Stream stream = cpu_stream();
  const Tensor x = tensor_of({NAN, 2, HUGE_VAL}, {3}, DType::kF32, stream);
  const Tensor targets = tensor_of({0, 1, 0}, {3}, DType::kF32, stream);
  const Tensor losses = Tensor::empty({3}, DType::kF32, MemoryKind::kActivations, stream);
  regression_loss(losses, x, targets, Distance::kHuber, 1, 1, stream);
  EXPECT_TRUE(std::isnan(losses.data<float>()[0]));
  EXPECT_EQ(losses.data<float>()[1], 0.5f);
  EXPECT_TRUE(std::isinf(losses.data<float>()[2]));
  EXPECT_THROW(regression_loss(losses, x, targets, Distance::kHuber, 0, 1, stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
