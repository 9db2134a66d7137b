#include <gtest/gtest.h>

#include <map>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/support/gradient_check.h"

// A row of packed documents must give the same results as the documents one by one.
namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kVocabulary = 61;

/// One layer for each letter of the semiseparable family.
ModelConfig layers_of_each_kind(bool bidirectional) {
  ModelConfig config{.family = "semiseparable",
                     .heads = 4,
                     .width = 32,
                     .context = 24,
                     .vocabulary = kVocabulary,
                     .mixers = bidirectional ? "ahtpb" : "acmdtp",
                     .bidirectional = bidirectional,
                     .state_space = {.heads = 4, .head_size = 8, .state_size = 4},
                     .semiseparable = {.rank = 3, .potentials = 4}};
  config.layers = std::ssize(config.mixers);
  return config;
}

ModelConfig small_model(const std::string& family) {
  ModelConfig config{.layers = 2, .heads = 4, .width = 32, .context = 24};
  config.family = family == "dynamic" ? "llama" : family;
  if (family == "dynamic")
    config.rope_scaling = {.type = "dynamic", .factor = 3, .original_context = 8};
  config.vocabulary = kVocabulary;
  if (family == "decoder" || family == "encoder") return layers_of_each_kind(family == "encoder");
  if (config.family != "gpt2" && config.family != "llama") config.window = 5;
  if (family == "gemma2") config.attention_cap = config.logit_cap = 2;
  return config;
}

class PackedDocuments : public ::testing::TestWithParam<const char*> {
 protected:
  PackedDocuments() {
    randomize([this](const ParameterVisitor& visit) { model_->visit_parameters(visit); }, stream_);
  }
  /// One row with documents of these lengths, one after another.
  Batch packed(const std::vector<std::int64_t>& lengths) const {
    std::int64_t total = 0;
    for (const std::int64_t length : lengths) total += length;
    Batch batch = token_batch(all_.at("tokens").view({40, 1}).rows(0, total).view({1, total}),
                              all_.at("targets").view({40, 1}).rows(0, total).view({1, total}),
                              Tensor::empty({1, total}, DType::kI32, MemoryKind::kData, stream_));
    std::int32_t* positions = batch.at("positions").data<std::int32_t>();
    for (const std::int64_t length : lengths) {
      for (std::int64_t t = 0; t < length; ++t) *positions++ = static_cast<std::int32_t>(t);
    }
    return batch;
  }
  /// Document [begin, end) of the row, without the others and without positions.
  Batch alone(const Batch& row, std::int64_t begin, std::int64_t end) const {
    const std::int64_t length = row.at("tokens").elements();
    const auto cut = [&](const Tensor& x) {
      return x.view({length, 1}).rows(begin, end).view({1, end - begin});
    };
    return token_batch(cut(row.at("tokens")), cut(row.at("targets")));
  }
  /// Loss and gradients, summed over the batch's tokens.
  struct Sums {
    double loss = 0;
    std::map<std::string, std::vector<double>> gradients;
  };
  void add(Sums& sums, const Batch& batch, double recompute) {
    gradients_.begin();
    Pass pass;
    pass.recompute = recompute;
    PlainTape tape(pass);
    const auto tokens = static_cast<double>(batch.tokens());
    sums.loss +=
        tokens * kernels::wait_for_value(
                     model_->forward(batch, static_cast<float>(tokens), tape, stream_), stream_);
    model_->backward(batch, tape, stream_);
    model_->visit_parameters([&](Parameter& parameter) {
      const std::vector<double> more = values_of(parameter.gradient());
      std::vector<double>& sum = sums.gradients[parameter.name()];
      sum.resize(more.size());
      for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
    });
  }

  const Stream stream_ = test_stream();
  const Batch all_ = token_batch(random_tokens({1, 40}, kVocabulary, 1, stream_),
                                 random_tokens({1, 40}, kVocabulary, 2, stream_));
  std::unique_ptr<LanguageModel> model_ = make_model(small_model(GetParam()), 1, stream_);
  StepGradients gradients_{
      [this](const ParameterVisitor& visit) { model_->visit_parameters(visit); }, stream_};
};

TEST_P(PackedDocuments, LossAndGradientsMatchSeparateDocuments) {
  const std::vector<std::int64_t> lengths{7, 1, 9, 4};
  const Batch row = packed(lengths);
  Sums apart;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    add(apart, alone(row, begin, begin + length), 0);
    begin += length;
  }
  for (const double recompute : {0.0, 0.3, 0.6, 1.0}) {
    Sums together;
    add(together, row, recompute);
    EXPECT_NEAR(together.loss, apart.loss, 1e-5 * apart.loss) << recompute;
    for (const auto& [name, gradient] : apart.gradients)
      EXPECT_LT(relative_error(together.gradients[name], gradient), 1e-5) << name;
  }
  Sums seen_as_one;  // shows that packing matters
  add(seen_as_one, token_batch(row.at("tokens"), row.at("targets")), 0);
  EXPECT_GT(std::abs(seen_as_one.loss - apart.loss), 1e-3 * apart.loss);
}

INSTANTIATE_TEST_SUITE_P(Families, PackedDocuments,
                         ::testing::Values("gpt2", "llama", "mistral", "qwen3", "gemma2", "gemma3",
                                           "dynamic", "decoder", "encoder"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hybrid_trainer::testing
