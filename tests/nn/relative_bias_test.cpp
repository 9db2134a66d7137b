#include "hybrid_trainer/nn/positional_encoding.h"

#include "hybrid_trainer/nn/attention.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kBiasHeads = 2, kBiasWidth = 8;
constexpr int kBiasTime = 7;

class RelativeBiasTest : public ::testing::Test {
 protected:
  std::shared_ptr<RelativeBias> make(const RelativeBuckets& buckets) {
    auto bias = std::make_shared<RelativeBias>(
        "bias", RelativeBias::Spec{.heads = kBiasHeads, .buckets = buckets}, stream_);
    bias->visit_parameters([&](Parameter& parameter) {
      copy(master_of(parameter), normal_tensor(parameter.shape(), 3, stream_), stream_);
    });
    return bias;
  }
  Tensor of_one(int value, const Shape& shape) const {
    const Tensor one = Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream_);
    *one.data<std::int32_t>() = value;
    return one;
  }
  template <class Call>
  static std::string refusal(const Call& call) {
    try {
      call();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  const Stream stream_ = test_stream();
};

TEST_F(RelativeBiasTest, UsesValueOfDistanceBucket) {
  const RelativeBuckets buckets{.count = 8, .most = 6, .bidirectional = true};
  const auto bias = make(buckets);
  Tensor table;
  bias->visit_parameters([&](Parameter& parameter) { table = master_of(parameter); });
  for (const std::int64_t time : {5, 2, 9, 9}) {
    const Tensor values = bias->values(time, stream_);
    ASSERT_EQ(values.shape(), (Shape{kBiasHeads, 2 * time - 1}));
    for (std::int64_t head = 0; head < kBiasHeads; ++head)
      for (std::int64_t distance = 1 - time; distance < time; ++distance)
        EXPECT_EQ(values.data<float>()[head * (2 * time - 1) + time - 1 + distance],
                  table.data<float>()[head * buckets.count + buckets.of(distance)])
            << distance;
  }
}

/// Decoding token by token with cached keys equals one pass over all tokens.
TEST_F(RelativeBiasTest, DecodingMatchesFullPass) {
  const auto bias = make({.count = 6, .most = 5});
  Attention layer("attn",
                  {.width = kBiasWidth, .heads = kBiasHeads, .head_size = 4, .relative = bias},
                  stream_);
  layer.initialize({.matrix = 0.4, .projection = 0.4}, 1, stream_);
  const Tensor x = normal_tensor({1, kBiasTime, kBiasWidth}, 5, stream_);
  const Pass pass{.training = false};
  ForwardOnlyTape tape(pass);
  const auto whole = values_of(layer.forward(x, Tensor{}, tape, stream_));
  const auto state = layer.make_state({.texts = 1, .tokens = kBiasTime + 3}, DType::kF32, stream_);
  const auto rows = [&](int begin, int end) {
    return x.as_rows().rows(begin, end).view({1, end - begin, kBiasWidth});
  };
  std::vector<double> written =
      values_of(layer.decode(rows(0, 3), Tensor{}, {.begun = 0}, state.get(), pass, stream_));
  for (int t = 3; t < kBiasTime; ++t) {
    Pass at = pass;
    at.positions = of_one(t, {1, 1});
    const auto next = values_of(
        layer.decode(rows(t, t + 1), Tensor{}, {.each = of_one(0, {1})}, state.get(), at, stream_));
    written.insert(written.end(), next.begin(), next.end());
  }
  EXPECT_LT(relative_error(written, whole), 1e-6);
  EXPECT_FALSE(layer.supports_segments());
}

TEST_F(RelativeBiasTest, RejectsInvalidBucketsAndHeadCounts) {
  EXPECT_EQ(refusal([&] { make({.count = 1}); }), "bias: distance buckets: got 1, want at least 2");
  EXPECT_EQ(refusal([&] { make({.count = 2, .bidirectional = true}); }),
            "bias: distance buckets: got 2, want at least 4");
  EXPECT_EQ(
      refusal([&] { make({.count = 9, .bidirectional = true}); }),
      "bias: distance buckets: got 9, want an even number, for keys on both sides of a query");
  EXPECT_EQ(refusal([&] { make({.count = 32, .most = 16}); }),
            "bias: maximum distance: got 16, want more than 16 with 32 buckets");
  const auto bias = make({});
  EXPECT_EQ(
      refusal([&] {
        Attention("attn", {.width = 12, .heads = 3, .head_size = 4, .relative = bias}, stream_);
      }),
      "bias.weight: it has 2 heads, but attention that shares it has 3; want the same number");
}

TEST_F(RelativeBiasTest, UsesT5FileLayout) {
  make({})->visit_parameters([](Parameter& parameter) {
    ASSERT_EQ(parameter.in_files().size(), 1u);
    EXPECT_EQ(parameter.in_files()[0].name, "bias.weight");
    EXPECT_EQ(parameter.in_files()[0].shape, (Shape{32, kBiasHeads}));
    EXPECT_TRUE(parameter.in_files()[0].transposed);
  });
}

}  // namespace
}  // namespace hybrid_trainer::testing
