#include "hybrid_trainer/nn/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

class AttentionTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr std::int64_t kTime = 9, kWidth = 16, kCapacity = 12;

  AttentionTest() {
    randomize([&](const ParameterVisitor& visit) { layer_.visit_parameters(visit); }, stream_);
  }
  Tensor full(const Tensor& x) {
    ForwardOnlyTape tape(pass_);
    return layer_.forward(x, Tensor{}, tape, stream_);
  }
  /// A layer's results for x with a cache; the first `prompt` tokens are passed together.
  std::vector<double> cached(Attention& layer, const Tensor& x, std::int64_t prompt);
  const Stream stream_ = test_stream();
  const Pass pass_{.training = false};
  Attention layer_{"attn", {kWidth, 4, 6}, stream_};
};

std::vector<double> AttentionTest::cached(Attention& layer, const Tensor& x, std::int64_t prompt) {
  const auto cache = layer.make_state({.texts = 2, .tokens = kCapacity}, DType::kF32, stream_);
  const auto positions = [&](std::int64_t begin, std::int64_t end) {
    return x.view({kTime, kWidth}).rows(begin, end).view({1, end - begin, kWidth});
  };
  std::vector<double> got = values_of(
      layer.decode(positions(0, prompt), Tensor{}, {.begun = 1}, cache.get(), pass_, stream_));
  for (std::int64_t t = prompt; t < kTime; ++t) {
    const Tensor text = Tensor::zeros({1}, DType::kI32, MemoryKind::kData, stream_);
    Pass pass = pass_;
    pass.positions = Tensor::zeros({1, 1}, DType::kI32, MemoryKind::kData, stream_);
    text.data<std::int32_t>()[0] = 1;
    pass.positions.data<std::int32_t>()[0] = static_cast<std::int32_t>(t);
    const auto next = values_of(
        layer.decode(positions(t, t + 1), Tensor{}, {.each = text}, cache.get(), pass, stream_));
    got.insert(got.end(), next.begin(), next.end());
  }
  return got;
}

TEST_P(AttentionTest, CachedDecodingMatchesFullAttention) {
  const Tensor x = normal_tensor({1, kTime, kWidth}, 1, stream_);
  EXPECT_LT(relative_error(cached(layer_, x, GetParam()), values_of(full(x))), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(PromptLengths, AttentionTest, ::testing::Values(1, 4, 9));

TEST_F(AttentionTest, IsCausal) {
  const Tensor x = normal_tensor({1, kTime, kWidth}, 1, stream_);
  const Tensor before = full(x);
  for (std::int64_t c = 0; c < kWidth; ++c) x.data<float>()[(kTime - 1) * kWidth + c] += 1;
  const Tensor after = full(x);
  const auto rows = [&](const Tensor& y, std::int64_t begin, std::int64_t end) {
    return clone(y.view({kTime, kWidth}).rows(begin, end), stream_);
  };
  EXPECT_TRUE(same_bits(rows(before, 0, kTime - 1), rows(after, 0, kTime - 1)));
  EXPECT_FALSE(same_bits(rows(before, kTime - 1, kTime), rows(after, kTime - 1, kTime)));
}

TEST_F(AttentionTest, BidirectionalSeesDocumentAndCannotDecode) {
  Attention layer{
      "attn", {.width = kWidth, .heads = 4, .head_size = 6, .bidirectional = true}, stream_};
  randomize([&](const ParameterVisitor& visit) { layer.visit_parameters(visit); }, stream_);
  Pass pass = pass_;
  pass.positions = Tensor::zeros({1, kTime}, DType::kI32, MemoryKind::kData, stream_);
  for (std::int32_t t = 0; t < kTime; ++t) pass.positions.data<std::int32_t>()[t] = t % 5;
  ForwardOnlyTape tape(pass);
  const Tensor x = normal_tensor({1, kTime, kWidth}, 1, stream_);
  const Tensor before = layer.forward(x, Tensor{}, tape, stream_);
  for (std::int64_t c = 0; c < kWidth; ++c) x.data<float>()[4 * kWidth + c] += 1;
  const Tensor after = layer.forward(x, Tensor{}, tape, stream_);
  for (std::int64_t t = 0; t < kTime; ++t) {
    const auto row = [&](const Tensor& y) {
      return clone(y.view({kTime, kWidth}).rows(t, t + 1), stream_);
    };
    EXPECT_EQ(same_bits(row(before), row(after)), t >= 5) << t;
  }
  const auto cache = layer.make_state({.texts = 1, .tokens = kTime}, DType::kF32, stream_);
  EXPECT_THROW(layer.decode(x, Tensor{}, {}, cache.get(), pass_, stream_), Error);
}

/// A sequence whose padding tokens are documents of one token, as in an encoder.
TEST_F(AttentionTest, PaddingAsSeparateDocumentsHasNoEffect) {
  constexpr std::int64_t kReal = 5;
  Attention layer{
      "attn", {.width = kWidth, .heads = 4, .head_size = 6, .bidirectional = true}, stream_};
  const auto visit_all = [&](const ParameterVisitor& visit) { layer.visit_parameters(visit); };
  randomize(visit_all, stream_);
  StepGradients step(visit_all, stream_);
  const Tensor x = normal_tensor({1, kTime, kWidth}, 1, stream_);
  const auto run = [&](std::int64_t time) {
    Pass pass;
    if (time > kReal) {
      pass.positions = Tensor::zeros({1, time}, DType::kI32, MemoryKind::kData, stream_);
      for (std::int32_t t = 0; t < kReal; ++t) pass.positions.data<std::int32_t>()[t] = t;
    }
    PlainTape tape(pass);
    step.begin();
    const Tensor rows = x.view({kTime, kWidth}).rows(0, time).view({1, time, kWidth});
    const Tensor y = layer.forward(rows, Tensor{}, tape, stream_);
    const Tensor dy = Tensor::zeros(y.shape(), DType::kF32, MemoryKind::kActivations, stream_);
    const Tensor real = normal_tensor({kReal, kWidth}, 3, stream_);
    copy(dy.view({time, kWidth}).rows(0, kReal), real, stream_);
    const Tensor dx = layer.backward(dy, tape, stream_);
    const auto of_real = [&](const Tensor& all) {
      return values_of(clone(all.view({time, kWidth}).rows(0, kReal), stream_));
    };
    std::vector<std::vector<double>> all{of_real(y), of_real(dx)};
    for (const double beyond : values_of(clone(dx.view({time, kWidth}).rows(kReal, time), stream_)))
      EXPECT_EQ(beyond, 0);
    layer.visit_parameters(
        [&](Parameter& parameter) { all.push_back(values_of(parameter.gradient())); });
    return all;
  };
  const auto padded = run(kTime), alone = run(kReal);
  for (std::size_t i = 0; i < alone.size(); ++i)
    EXPECT_LT(relative_error(padded[i], alone[i]), 1e-6) << i;
}

/// The missing biases are not in the file. Results equal those with zeros.
TEST_F(AttentionTest, WithoutKeyBiasMatchesZeroKeyBias) {
  Attention::Spec spec{.width = kWidth,
                       .heads = {4, 2},
                       .head_size = 6,
                       .files = {.first = {"q_proj", "k_proj", "v_proj"}, .last = "out_proj"}};
  Attention with_zeros{{"attn", "self_attn"}, spec, stream_};
  spec.key_bias = false;
  Attention without{{"attn", "self_attn"}, spec, stream_};
  std::vector<Parameter*> of_with, of_without;
  with_zeros.visit_parameters([&](Parameter& parameter) { of_with.push_back(&parameter); });
  without.visit_parameters([&](Parameter& parameter) { of_without.push_back(&parameter); });
  const auto visit_all = [&](const ParameterVisitor& visit) {
    with_zeros.visit_parameters(visit);
    without.visit_parameters(visit);
  };
  randomize(visit_all, stream_);
  Parameter& bias = *of_without[1];
  ASSERT_EQ(bias.name(), "attn.c_attn.bias");
  ASSERT_EQ(bias.in_files().size(), 2u);
  EXPECT_EQ(bias.in_files()[0].name, "self_attn.q_proj.bias");
  EXPECT_EQ(bias.in_files()[1].name, "self_attn.v_proj.bias");
  ASSERT_EQ(bias.shape(), (Shape{24 + 12}));
  for (std::size_t i = 0; i < of_with.size(); ++i) {
    if (i != 1) copy(master_of(*of_with[i]), master_of(*of_without[i]), stream_);
  }
  const Tensor all = master_of(*of_with[1]), parts = master_of(bias);
  fill_zero(all, stream_);
  copy(all.rows(0, 24), parts.rows(0, 24), stream_);
  copy(all.rows(36, 48), parts.rows(24, 36), stream_);
  StepGradients step(visit_all, stream_);
  step.begin(2);
  const Tensor x = normal_tensor({1, kTime, kWidth}, 1, stream_);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    std::vector<Tensor> results;
    for (Attention* layer : {&with_zeros, &without}) {
      PlainTape tape(Pass{});
      results.push_back(layer->forward(x, Tensor{}, tape, stream_));
      results.push_back(layer->backward(normal_tensor(x.shape(), 2, stream_), tape, stream_));
    }
    EXPECT_TRUE(same_bits(results[0], results[2]));
    EXPECT_TRUE(same_bits(results[1], results[3]));
  }
  for (std::size_t i = 0; i < of_with.size(); ++i) {
    if (i == 1) continue;
    EXPECT_TRUE(same_bits(of_with[i]->gradient(), of_without[i]->gradient())) << i;
  }
  const Tensor dall = of_with[1]->gradient(), dparts = bias.gradient();
  EXPECT_LT(relative_error(values_of(clone(dall.rows(0, 24), stream_)),
                           values_of(clone(dparts.rows(0, 24), stream_))),
            1e-6);
  EXPECT_LT(relative_error(values_of(clone(dall.rows(36, 48), stream_)),
                           values_of(clone(dparts.rows(24, 36), stream_))),
            1e-6);
}

TEST_F(AttentionTest, SinksStartAtZeroAndApplyWithCache) {
  Attention layer{{"attn", "self_attn"},
                  {.width = kWidth, .heads = {4, 2}, .head_size = 6, .sinks = true},
                  stream_};
  Parameter* sinks = nullptr;
  layer.visit_parameters([&](Parameter& p) { sinks = p.name() == "attn.sinks" ? &p : sinks; });
  ASSERT_NE(sinks, nullptr);
  EXPECT_EQ(sinks->in_files().front().name, "self_attn.sinks");
  EXPECT_EQ(sinks->role(), Role::kVector);
  EXPECT_EQ(values_of(master_of(*sinks)), std::vector<double>(4, 0.0));
  randomize([&](const ParameterVisitor& visit) { layer.visit_parameters(visit); }, stream_);
  const auto full_values = [&](const Tensor& x) {
    ForwardOnlyTape tape(pass_);
    return values_of(layer.forward(x, Tensor{}, tape, stream_));
  };
  const Tensor x = normal_tensor({1, kTime, kWidth}, 1, stream_);
  const std::vector<double> with_sinks = full_values(x);
  EXPECT_LT(relative_error(cached(layer, x, 4), with_sinks), 1e-6);
  std::fill_n(master_of(*sinks).data<float>(), 4, -100.0f);  // leaves all weight to the keys
  EXPECT_GT(relative_error(full_values(x), with_sinks), 1e-2);
}

TEST_F(AttentionTest, QueriesKeysAndValuesAreBlocksPerHead) {
  std::vector<std::string> blocks;
  layer_.visit_parameters(
      [&](Parameter& p) { blocks.push_back(concat(p.name(), " ", p.blocks())); });
  EXPECT_EQ(blocks, (std::vector<std::string>{"attn.c_attn.weight 12", "attn.c_attn.bias 1",
                                              "attn.c_proj.weight 16", "attn.c_proj.bias 1"}));
}

/// Convolves each column of a product with a causal kernel of three taps.
std::vector<double> convolved_rows(const std::vector<double>& rows,
                                   const std::vector<double>& kernel, std::int64_t time) {
  const std::int64_t columns = std::ssize(rows) / time;
  std::vector<double> sums(rows.size());
  for (std::int64_t t = 0; t < time; ++t)
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t back = 0; back <= std::min<std::int64_t>(t, 2); ++back)
        sums[static_cast<std::size_t>(t * columns + c)] +=
            kernel[static_cast<std::size_t>(3 * c + 2 - back)] *
            rows[static_cast<std::size_t>((t - back) * columns + c)];
  return sums;
}

/// One head over convolved queries, keys and values. The identity as c_proj shows the attention.
TEST(ConvolvedAttention, MatchesReferenceOverConvolvedInputs) {
  constexpr std::int64_t kTime = 7, kWidth = 4;
  const Stream stream = test_stream();
  Attention layer("attn",
                  {.width = kWidth,
                   .heads = {1},
                   .head_size = kWidth,
                   .biases = false,
                   .output_bias = false,
                   .taps = 3},
                  stream);
  randomize([&](const ParameterVisitor& visit) { layer.visit_parameters(visit); }, stream);
  std::map<std::string, std::vector<double>> weights;
  layer.visit_parameters([&](Parameter& parameter) {
    if (parameter.name() == "attn.c_proj.weight")
      for (std::int64_t i = 0; i < kWidth * kWidth; ++i)
        master_of(parameter).data<float>()[i] = i % (kWidth + 1) == 0 ? 1.0f : 0.0f;
    weights[parameter.name()] = values_of(master_of(parameter));
  });
  const Tensor x = normal_tensor({1, kTime, kWidth}, 1, stream);
  std::vector<double> rows(kTime * 3 * kWidth);
  for (std::int64_t i = 0; i < std::ssize(rows); ++i)
    for (std::int64_t c = 0; c < kWidth; ++c)
      rows[static_cast<std::size_t>(i)] +=
          x.data<float>()[i / (3 * kWidth) * kWidth + c] *
          weights.at("attn.c_attn.weight")[static_cast<std::size_t>(i % (3 * kWidth) * kWidth + c)];
  rows = convolved_rows(rows, weights.at("attn.conv.weight"), kTime);
  const auto number = [&](std::int64_t t, std::int64_t part, std::int64_t c) {
    return rows[static_cast<std::size_t>((3 * t + part) * kWidth + c)];
  };
  std::vector<double> wanted;
  for (std::int64_t t = 0; t < kTime; ++t) {
    std::vector<double> sums(kWidth);
    double total = 0;
    for (std::int64_t s = 0; s <= t; ++s) {
      double score = 0;
      for (std::int64_t c = 0; c < kWidth; ++c) score += number(t, 0, c) * number(s, 1, c);
      const double weight = std::exp(score / 2);  // √4
      total += weight;
      for (std::int64_t c = 0; c < kWidth; ++c)
        sums[static_cast<std::size_t>(c)] += weight * number(s, 2, c);
    }
    for (const double sum : sums) wanted.push_back(sum / total);
  }
  ForwardOnlyTape tape(Pass{.training = false});
  EXPECT_LT(relative_error(values_of(layer.forward(x, Tensor{}, tape, stream)), wanted), 1e-6);
}

}  // namespace
}  // namespace hybrid_trainer::testing
