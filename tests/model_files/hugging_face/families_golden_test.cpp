#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/batch.h"
#include "src/files/config_fields.h"
#include "src/files/json.h"
#include "src/files/safetensors.h"
#include "tests/model_files/hugging_face/golden_step.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

// Compares with transformers' results for folders that transformers wrote (tests/golden/README.md).
namespace hybrid_trainer::testing {
namespace {

/// Bound for errors of a few hundred numbers; ours are 0.86 of transformers' mean, at most 1.38.
constexpr double kOfOneDraw = 1.5;

class FamilyGolden : public ::testing::TestWithParam<const char*> {
 protected:
  FamilyGolden() { read_hugging_face_weights(folder_, *model_, stream_); }
  Tensor load(const std::string& name) const {
    return expected_.load(name, MemoryKind::kData, stream_);
  }
  std::vector<double> logits(LanguageModel& model) const { return logits(model, load("tokens")); }
  std::vector<double> logits(LanguageModel& model, const Tensor& tokens,
                             const Pass& pass = {.training = false}) const {
    const std::vector<double> padded = values_of(model.logits(tokens, pass, stream_));
    const auto vocabulary = static_cast<std::size_t>(model.config().vocabulary);
    const std::size_t rows = static_cast<std::size_t>(tokens.elements());
    std::vector<double> values;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto begin = padded.begin() + static_cast<std::ptrdiff_t>(row * padded.size() / rows);
      values.insert(values.end(), begin, begin + static_cast<std::ptrdiff_t>(vocabulary));
    }
    return values;
  }
  /// Gradient of one tensor of the folder, in our order of rows.
  std::vector<double> gradient_in_file(const FileTensor& part) const {
    const HuggingFaceLayout& layout = find_family(config_.family).hugging_face;
    const std::string inner = "grad." + layout.full_name(part),
                      outer = concat("grad.", layout.outer.prefix, part.name);
    auto there = values_of(load(expected_.contains(inner) ? inner : outer));
    if (part.parts > 1) {  // one of the experts
      const auto begin = there.begin() + part.part * part.shape.elements();
      there = std::vector<double>(begin, begin + part.shape.elements());
    }
    if (part.transposed) {
      const auto inputs = static_cast<std::size_t>(part.shape[0]),
                 outputs = static_cast<std::size_t>(part.shape[1]);
      std::vector<double> rows;
      for (std::size_t o = 0; o < outputs; ++o)
        for (std::size_t i = 0; i < inputs; ++i) rows.push_back(there[i * outputs + o]);
      there = rows;
    }
    if (part.order.rows.empty()) return there;
    const auto columns = static_cast<std::int64_t>(there.size()) / part.rows();
    std::vector<double> here;
    for (std::size_t p = 0; p < part.order.rows.size(); ++p) {
      for (std::int64_t i = 0; i < part.order.groups * part.order.rows[p]; ++i) {
        const std::int64_t group = i / part.order.rows[p], of_group = i % part.order.rows[p];
        std::int64_t row = group * part.rows() / part.order.groups + of_group;
        for (std::size_t before = 0; before < p; ++before) row += part.order.rows[before];
        const auto begin = there.begin() + row * columns;
        here.insert(here.end(), begin, begin + columns);
      }
    }
    return here;
  }
  /// Expected gradient of a parameter with all its parts; padding rows are zeros.
  std::vector<double> gradient_of(const Parameter& parameter) const {
    std::vector<double> values;
    for (const FileTensor& part : parameter.in_files()) {
      const auto more = gradient_in_file(part);
      values.insert(values.end(), more.begin(), more.end());
    }
    values.resize(static_cast<std::size_t>(parameter.elements()), 0.0);
    return values;
  }

  const Stream stream_ = test_stream();
  const std::string folder_ = concat(HT_TEST_DATA_DIR, "/", GetParam());
  const SafetensorsFile expected_{folder_ + "/expected.safetensors"};
  const ModelConfig config_ = read_hugging_face_model_config(folder_, 0);
  const std::unique_ptr<LanguageModel> model_ = make_model(config_, 1, stream_);
};

TEST_P(FamilyGolden, LogitsMatch) {
  EXPECT_LT(relative_error(logits(*model_), values_of(load("logits"))), kOfTransformers);
}

TEST_P(FamilyGolden, Bf16LogitsAreWithinTransformersSpread) {
  const boost::json::value spread = read_json(concat(HT_TEST_DATA_DIR, "/bf16_spread.json"));
  model_->visit_parameters(
      [&](Parameter& parameter) { parameter.compute_in(DType::kBF16, stream_); });
  if (spread.get_object().if_contains(GetParam()) == nullptr)
    GTEST_SKIP() << "rounding a router's logits to bf16 may change the chosen experts";
  const std::vector<double> ours =
      logits(*model_, load("tokens"), {.training = false, .dtype = DType::kBF16});
  EXPECT_LE(relative_error(ours, values_of(load("logits"))),
            kOfOneDraw * spread.at(GetParam()).as_double());
}

TEST_P(FamilyGolden, LossAndGradientsMatchAtAnyRecompute) {
  const GoldenStep wanted{*load("loss").data<float>(),
                          [this](const Parameter& parameter) { return gradient_of(parameter); }};
  expect_step(*model_, token_batch(load("tokens"), load("targets")), wanted, {0, 0.3, 0.6, 1},
              stream_);
}

TEST_P(FamilyGolden, TokenByTokenMatchesFullPass) {
  const Tensor all = load("tokens").rows(0, 1);
  const RotaryScaling& scaling = config_.rope_scaling;  // angles may depend on length
  const bool depends = scaling.type == "dynamic" || scaling.type == "longrope";
  const std::int64_t length = depends ? scaling.original_context : all.size(1);
  const Tensor tokens = all.view({all.size(1), 1}).rows(0, length).view({1, length});
  const std::vector<double> wanted = logits(*model_, tokens);
  const auto vocabulary = static_cast<std::size_t>(config_.vocabulary);
  const auto state =
      model_->make_decode_state({.texts = 1, .tokens = length}, DType::kF32, stream_);
  const Tensor token = Tensor::empty({1, 1}, DType::kI32, MemoryKind::kData, stream_);
  const std::vector<std::int64_t> texts{0};
  for (std::int64_t t = 0; t < tokens.size(1); ++t) {
    token.data<std::int32_t>()[0] = tokens.data<std::int32_t>()[t];
    std::vector<double> next =
        values_of(model_->next_logits(token, texts, *state, 1, {.training = false}, stream_));
    next.resize(vocabulary);
    const auto begin = wanted.begin() + t * config_.vocabulary;
    EXPECT_LT(relative_error(next, {begin, begin + config_.vocabulary}), kOfTransformers) << t;
  }
}

TEST_P(FamilyGolden, ExportRoundTripKeepsLogits) {
  const TemporaryFolder scratch;
  export_hugging_face(*model_, nullptr, scratch / "out", stream_);
  const ModelConfig config = read_hugging_face_model_config(scratch / "out", 0);
  EXPECT_EQ(config_json(config), config_json(config_));
  const auto again = make_model(config, 2, stream_);
  read_hugging_face_weights(scratch / "out", *again, stream_);
  EXPECT_EQ(logits(*again), logits(*model_));
}

INSTANTIATE_TEST_SUITE_P(
    Folders, FamilyGolden,
    ::testing::Values(
        "llama_a", "llama_b", "llama_biases", "llama_linear", "llama_dynamic", "llama_llama3",
        "llama_yarn", "llama_yarn_plain", "mistral_a", "mistral_full", "qwen2_a", "qwen2_windows",
        "qwen3_a", "qwen3_biases", "gemma2_a", "gemma2_plain", "gemma3_a", "gemma3_linear",
        "mamba2_a", "mamba2_tied", "granite_hybrid_a", "granite_hybrid_rope", "granite_attention",
        "bamba_a", "qwen3_5_text", "qwen3_5_images", "qwen3_next_a", "mixtral_a", "mixtral_window",
        "qwen2_moe_a", "qwen2_moe_norm", "qwen3_moe_a", "qwen3_moe_plain", "olmoe_a", "olmoe_clip",
        "granitemoe_a", "granitemoe_plain", "granite_moe_hybrid", "gpt_oss_a", "gpt_oss_yarn",
        "gpt_oss_mxfp4", "granite_a", "granite_plain", "olmo2_a", "olmo2_tied", "glm4_a",
        "glm4_tied", "smollm3_a", "smollm3_windows", "phi3_a", "phi3_longrope", "olmo3_a",
        "olmo3_types", "exaone4_a", "exaone4_full", "qwen3_next_moe", "qwen3_5_moe_text", "lfm2_a",
        "lfm2_b", "lfm2_moe_a", "lfm2_moe_plain", "gemma4_a", "gemma4_alike", "gemma4_images",
        "ministral3_a", "ministral3_window", "ministral3_images", "mistral3_images"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hybrid_trainer::testing
