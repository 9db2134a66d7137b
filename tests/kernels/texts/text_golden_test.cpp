#include <fstream>

#include "hybrid_trainer/kernels/texts.h"
#include "tests/kernels/texts/texts_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Test cases of tests/golden/make_text_loss_golden.py. A slot is a row of the input.
class TextLossGolden {
 public:
  TextLossGolden() : file_(HT_TEST_DATA_DIR "/text_loss_golden.txt") {}
  /// Advances to the next case.
  bool next() {
    if (!(file_ >> kind >> examples >> texts >> columns >> scale)) return false;
    const std::int64_t slots = examples * texts;
    Values of_slots;
    for (std::int64_t slot = 0; slot < slots; ++slot)
      of_slots.push_back(static_cast<double>(slot % texts));
    roles = tensor_of(of_slots, {1, slots}, DType::kI32, stream);
    x = tensor_of(numbered(slots * columns, 37), {slots, columns}, DType::kF32, stream);
    losses = empty_f32({slots}, stream);
    return true;
  }
  /// Expects the file's loss and gradient.
  void expect(double loss, const Tensor& gradient) {
    double wanted_loss = 0;
    Values wanted(static_cast<std::size_t>(gradient.elements()));
    file_ >> wanted_loss;
    for (double& value : wanted) file_ >> value;
    const std::string what = concat(kind, " ", texts, " ", columns);
    EXPECT_NEAR(loss, wanted_loss, 2e-6 * (1 + wanted_loss)) << what;
    expect_close(gradient, wanted, 3e-6, what);
  }
  static Values numbered(std::int64_t count, std::int64_t factor) {
    Values values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<double>((i * factor + 11) % 41 - 20) / 8);
    return values;
  }
  /// The scores of the examples, at the slots of their first texts.
  Tensor scores() const {
    Values values(static_cast<std::size_t>(examples * texts), 0.0);
    for (std::int64_t e = 0; e < examples; ++e)
      values[static_cast<std::size_t>(e * texts)] = static_cast<double>(e * 7 % 5) / 4;
    return tensor_of(values, {1, examples * texts}, DType::kF32, stream);
  }
  double sum_of_losses() const {
    double sum = 0;
    for (const double loss : values_of(losses)) sum += loss;
    return sum;
  }
  float share() const { return 1 / static_cast<float>(examples); }

  const Stream stream = cpu_stream();
  std::string kind;
  std::int64_t examples = 0, texts = 0, columns = 0;
  float scale = 0;
  Tensor x, roles, losses;

 private:
  std::ifstream file_;
};

/// Embeddings divided by their norms.
struct UnitRows {
  explicit UnitRows(const TextLossGolden& golden)
      : y(empty_f32(golden.x.shape(), golden.stream)),
        norms(empty_f32({golden.x.size(0)}, golden.stream)) {
    normalize_rows(y, norms, golden.x, golden.columns, golden.stream);
  }
  /// Returns the embeddings' gradient.
  Tensor backward(const Tensor& dy, const Stream& stream) const {
    const Tensor dx = empty_f32(y.shape(), stream);
    normalize_rows_backward(dx, GradientMode::kOverwrite, dy, y, norms, y.size(1), stream);
    return dx;
  }
  Tensor y, norms;
};

void expect_contrastive(TextLossGolden& golden, const std::vector<ContrastiveRows>& directions) {
  const UnitRows unit(golden);
  const std::int64_t slots = golden.x.size(0), columns = golden.columns;
  const Tensor dy =
      Tensor::zeros(unit.y.shape(), DType::kF32, MemoryKind::kActivations, golden.stream);
  const float *const y = unit.y.data<float>(),
                     part = golden.share() / static_cast<float>(directions.size());
  double loss = 0;
  for (const ContrastiveRows rows : directions) {
    const Tensor similarities =
        Tensor::zeros({slots, slots}, DType::kF32, MemoryKind::kActivations, golden.stream);
    float* const s = similarities.data<float>();
    const auto for_products = [&](const auto& body) {
      for (std::int64_t i = 0; i < slots; ++i)
        for (std::int64_t j = 0; j < slots; ++j)
          for (std::int64_t k = 0; k < columns; ++k)
            body(i * slots + j, i * columns + k, j * columns + k);
    };
    for_products([&](auto at, auto i, auto j) { s[at] += y[i] * y[j]; });
    contrastive_loss(golden.losses, similarities, golden.roles, rows, golden.scale, part,
                     golden.stream);
    loss += golden.sum_of_losses() * static_cast<double>(part);
    for_products([&](auto at, auto i, auto j) {
      dy.data<float>()[i] += s[at] * y[j];
      dy.data<float>()[j] += s[at] * y[i];
    });
  }
  golden.expect(loss, unit.backward(dy, golden.stream));
}

void expect_pairs(TextLossGolden& golden) {
  const UnitRows unit(golden);
  const Tensor cosines = empty_f32({golden.x.size(0), 1}, golden.stream),
               dy = empty_f32(unit.y.shape(), golden.stream);
  pair_cosines(cosines, unit.y, golden.roles, golden.stream);
  const bool ranks = golden.kind == "cosent";
  if (ranks) {
    cosent_loss(golden.losses, cosines, golden.scores(), golden.roles, golden.scale, 1,
                golden.stream);
  } else {
    mean_squared_error(golden.losses, cosines, golden.scores(), golden.roles, golden.share(),
                       golden.stream);
  }
  pair_cosines_backward(dy, cosines, unit.y, golden.roles, golden.stream);
  golden.expect(golden.sum_of_losses() * (ranks ? 1 : static_cast<double>(golden.share())),
                unit.backward(dy, golden.stream));
}

void expect_labels(TextLossGolden& golden) {
  Values values = TextLossGolden::numbered(golden.x.elements(), 23);
  for (double& value : values) value = std::abs(value) / 2.5;
  const Tensor labels = tensor_of(values, golden.x.shape(), DType::kF32, golden.stream);
  const auto compute = golden.kind == "binary" ? binary_cross_entropy : mean_squared_error;
  compute(golden.losses, golden.x, labels, golden.roles, golden.share(), golden.stream);
  golden.expect(golden.sum_of_losses() * static_cast<double>(golden.share()), golden.x);
}

TEST(TextLossGolden, MatchesSentenceTransformersAndPyTorch) {
  TextLossGolden golden;
  int cases = 0;
  for (; golden.next(); ++cases) {
    if (golden.kind == "contrastive") {
      expect_contrastive(golden, {ContrastiveRows::kAnchors});
    } else if (golden.kind == "symmetric") {
      expect_contrastive(golden, {ContrastiveRows::kAnchors, ContrastiveRows::kPositives});
    } else if (golden.kind == "cosent" || golden.kind == "cosine") {
      expect_pairs(golden);
    } else if (golden.kind == "reward") {
      reward_loss(golden.losses, golden.x, golden.roles, {}, golden.share(), golden.stream);
      golden.expect(golden.sum_of_losses() * static_cast<double>(golden.share()), golden.x);
    } else {
      expect_labels(golden);
    }
  }
  EXPECT_EQ(cases, 13);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
