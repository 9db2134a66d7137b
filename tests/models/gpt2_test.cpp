#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/models/model_family.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/models/decoder.h"
#include "src/optim/make_optimizer.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::testing {
namespace {

ModelConfig small_config(double dropout = 0) {
  return {
      .layers = 2, .heads = 4, .width = 32, .context = 24, .vocabulary = 61, .dropout = dropout};
}

class Gpt2Test : public ::testing::Test {
 protected:
  std::unique_ptr<LanguageModel> make_model(std::uint64_t seed = 3, double dropout = 0) {
    auto model = hybrid_trainer::make_model(small_config(dropout), seed, stream_);
    const auto visit_all = [&](const ParameterVisitor& visit) { model->visit_parameters(visit); };
    steps_.try_emplace(model.get(), visit_all, stream_);
    return model;
  }
  double step(LanguageModel& model, const Pass& pass, const Batch& batch,
              float gradient_scale = 1) {
    PlainTape tape(pass);
    const double loss =
        kernels::wait_for_value(model.forward(batch, gradient_scale, tape, stream_), stream_);
    model.backward(batch, tape, stream_);
    return loss;
  }
  static std::vector<Tensor> gradients(LanguageModel& model) {
    std::vector<Tensor> all;
    model.visit_parameters([&](Parameter& parameter) { all.push_back(parameter.gradient()); });
    return all;
  }
  const Stream stream_ = test_stream();
  std::map<const LanguageModel*, StepGradients> steps_;
  const Batch batch_ =
      token_batch(random_tokens({4, 20}, 61, 1, stream_), random_tokens({4, 20}, 61, 2, stream_));
};

TEST_F(Gpt2Test, PadsVocabularyToTiles) {
  EXPECT_EQ(padded_vocabulary(50257), 50304);
  EXPECT_EQ(padded_vocabulary(4096), 4096);
  EXPECT_EQ(padded_vocabulary(65), 80);
  EXPECT_EQ(padded_vocabulary(16), 16);
}

TEST_F(Gpt2Test, StartsNearUniformLoss) {
  EXPECT_NEAR(step(*make_model(), {}, batch_), std::log(61.0), 0.15);
}

TEST_F(Gpt2Test, InitialWeightsHaveConfiguredScale) {
  const auto deviation = [&](const ModelConfig& config, const std::string& of) {
    const auto model = hybrid_trainer::make_model(config, 3, stream_);
    double squares = 0, count = 0;
    model->visit_parameters([&](Parameter& parameter) {
      if (parameter.name() != of) return;
      const Tensor& values = testing::master_of(parameter);
      for (std::int64_t i = 0; i < config.width * config.width; ++i)
        squares += std::pow(values.data<float>()[i], 2);
      count = static_cast<double>(config.width * config.width);
    });
    return std::sqrt(squares / count);
  };
  ModelConfig config = small_config();
  const double widened = 0.02 * std::sqrt(768.0 / 32);
  EXPECT_NEAR(deviation(config, "h.0.attn.c_attn.weight"), widened, 0.1 * widened);
  EXPECT_NEAR(deviation(config, "h.0.attn.c_proj.weight"), widened / 2, 0.05 * widened);
  EXPECT_NEAR(deviation(config, "wte.weight"), 0.02, 0.002);
  config.initializer_range = 0.1;
  EXPECT_NEAR(deviation(config, "h.0.attn.c_attn.weight"), 0.1, 0.01);
  EXPECT_NEAR(deviation(config, "h.0.attn.c_proj.weight"), 0.05, 0.005);
  EXPECT_NEAR(deviation(config, "wte.weight"), 0.1, 0.01);
}

TEST_F(Gpt2Test, EqualSeedsGiveEqualBits) {
  const Pass pass{.seed = 7, .step = 3};
  const auto first = make_model(3, 0.1), second = make_model(3, 0.1), other = make_model(4, 0.1);
  EXPECT_EQ(step(*first, pass, batch_), step(*second, pass, batch_));
  const auto left = gradients(*first);
  steps_.at(second.get()).begin();
  EXPECT_NE(step(*other, pass, batch_), step(*second, pass, batch_));
  const auto right = gradients(*second);
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(same_bits(left[i], right[i])) << i;
}

TEST_F(Gpt2Test, ForwardOnlyTapeGivesSameLoss) {
  const auto model = make_model();
  ForwardOnlyTape tape{Pass{}};
  EXPECT_EQ(kernels::wait_for_value(model->forward(batch_, 1, tape, stream_), stream_),
            step(*model, {}, batch_));
}

TEST_F(Gpt2Test, MicroBatchesMatchLargeBatch) {
  const auto whole = make_model(), parts = make_model();
  const double loss = step(*whole, {}, batch_);
  steps_.at(parts.get()).begin(4);
  double mean = 0;
  for (int i = 0; i < 4; ++i) mean += step(*parts, {}, batch_.examples(i, i + 1), 0.25f) / 4;
  EXPECT_NEAR(mean, loss, 1e-6 * loss);
  const auto wanted = gradients(*whole), got = gradients(*parts);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_LT(relative_error(got[i], wanted[i]), 1e-5) << i;
}

TEST_F(Gpt2Test, PaddingRowsStayZero) {
  const auto model = make_model();
  step(*model, {}, batch_);
  model->visit_parameters([](Parameter& parameter) {
    if (parameter.name() != "wte.weight") return;
    for (const Tensor& tensor : {master_of(parameter), parameter.gradient()}) {
      const Tensor padding = tensor.rows(61, tensor.size(0));
      for (const double value : values_of(padding)) ASSERT_EQ(value, 0);
    }
  });
}

/// A weight that is loaded only while held; afterwards it is overwritten with NaN.
class VisitingWeight final : public WeightStorage {
 public:
  explicit VisitingWeight(const Tensor& master, const Stream& stream)
      : home_(master), shown_(clone(master, stream)) {}
  Tensor acquire(DType, const Stream& stream) override {
    if (holders_++ == 0) copy(shown_, home_, stream);
    return shown_;
  }
  void release(DType, Use use, const Stream& stream) noexcept override {
    changed_ = changed_ || use != Use::kRead;
    if (--holders_ > 0) return;
    if (std::exchange(changed_, false)) copy(home_, shown_, stream);
    std::fill_n(shown_.data<float>(), shown_.elements(), std::nanf(""));
  }
  Tensor master_in_place() const override { return home_; }
  void compute_in(DType, const Stream&) override {}
  DType compute_dtype() const override { return DType::kF32; }
  void refresh_compute_copy(const Stream&) override {}

 private:
  Tensor home_, shown_;
  bool changed_ = false;
  int holders_ = 0;
};

TEST_F(Gpt2Test, TrainsBitForBitWithTransientWeights) {
  const auto plain = make_model(3, 0.1), visited = make_model(3, 0.1);
  visited->visit_parameters([&](Parameter& parameter) {
    parameter.set_storage(std::make_unique<VisitingWeight>(master_of(parameter), stream_));
  });
  const auto train = [&](LanguageModel& model) {
    std::vector<Parameter*> parameters;
    model.visit_parameters([&](Parameter& parameter) { parameters.push_back(&parameter); });
    const auto optimizer = make_optimizer({.name = "muon"}, parameters, stream_);
    std::vector<double> losses;
    for (std::uint64_t i = 0; i < 3; ++i) {
      steps_.at(&model).begin();
      losses.push_back(step(model, {.seed = 7, .step = i}, batch_));
      optimizer->step(1e-2f, 1, stream_);
    }
    return losses;
  };
  EXPECT_EQ(train(*plain), train(*visited));
}

TEST_F(Gpt2Test, BFloat16StaysCloseToF32) {
  const auto model = make_model();
  const double wanted = step(*model, {}, batch_);
  std::vector<std::vector<double>> exact;
  for (const Tensor& gradient : gradients(*model)) exact.push_back(values_of(gradient));
  steps_.at(model.get()).begin();
  model->visit_parameters(
      [&](Parameter& parameter) { parameter.compute_in(DType::kBF16, stream_); });
  EXPECT_NEAR(step(*model, {.dtype = DType::kBF16}, batch_), wanted, 5e-3 * wanted);
  std::size_t i = 0;
  model->visit_parameters([&](Parameter& parameter) {
    EXPECT_LT(relative_error(values_of(parameter.gradient()), exact[i++]), 0.05)
        << parameter.name();
  });
}

TEST_F(Gpt2Test, CachedDecodingMatchesFullForward) {
  const auto model = make_model();
  const Pass pass{.training = false};
  const std::int64_t time = 12, columns = padded_vocabulary(61);
  const Tensor tokens = random_tokens({1, time}, 61, 5, stream_);
  const Tensor wanted = model->logits(tokens, pass, stream_);
  constexpr std::int64_t kFirstText[] = {0};
  const auto state = model->make_decode_state({.texts = 1, .tokens = time}, DType::kF32, stream_);
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return tokens.view({time}).rows(begin, end).view({1, end - begin});
  };
  for (std::int64_t t = 4; t <= time; ++t) {
    const Tensor got = model->next_logits(t == 4 ? part(0, 4) : part(t - 1, t), kFirstText, *state,
                                          1, pass, stream_);
    EXPECT_EQ(state->position(), t);
    ASSERT_EQ(got.shape(), (Shape{1, columns}));
    EXPECT_LT(relative_error(got, wanted.rows(t - 1, t)), 1e-5) << t;
  }
}

TEST_F(Gpt2Test, RejectsTextBeyondContextOrVocabulary) {
  const auto model = make_model();
  const Tensor tokens = random_tokens({1, 25}, 61, 1, stream_);
  EXPECT_THROW(model->logits(tokens, {}, stream_), ShapeMismatch);
  const Tensor bad = random_tokens({1, 3}, 61, 1, stream_);
  bad.data<std::int32_t>()[1] = 1000;
  EXPECT_THROW(model->logits(bad, {}, stream_), DataError);
}

TEST(ModelProblems, ReportsHeadsThatDoNotDivideWidth) {
  ModelConfig config = small_config();
  config.heads = 5;
  std::vector<std::string> problems;
  collect_model_problems(config, problems);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0], "model.heads: got 5, which does not divide model.width 32");
}

/// Files of earlier versions contain them.
TEST(ModelProblems, IgnoresKeysOfDisabledRotaryScaling) {
  ModelConfig config = small_config();
  config.rope_scaling.beta_slow = 2;
  std::vector<std::string> problems;
  collect_model_problems(config, problems);
  EXPECT_TRUE(problems.empty());
  config.rope_scaling.type = "yarn";
  collect_model_problems(config, problems);
  EXPECT_EQ(problems.size(), 2u);
}

TEST(Gpt2StepFlops, CountsProductsAndCausalAttention) {
  const ModelConfig config{
      .layers = 12, .heads = 12, .width = 768, .context = 1024, .vocabulary = 50257, .dropout = 0};
  const double per_token = 6.0 * (12 * 12 * 768.0 * 768 + 50257.0 * 768) + 12 * 6 * 256.0 * 768;
  const Stream nowhere(MemoryPool::create("nowhere", {}, simulated_memory({})));
  EXPECT_DOUBLE_EQ(make_model(config, 1, nowhere)->flops_of({4, 256}, 1024), 4 * 256 * per_token);
}

TEST(Gpt2, RejectsInvalidConfig) {
  const Stream stream = test_stream();
  try {
    hybrid_trainer::make_model({.heads = 0, .vocabulary = 0}, 0, stream);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("model.heads: got 0"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("model.vocabulary: got 0"), std::string::npos);
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
