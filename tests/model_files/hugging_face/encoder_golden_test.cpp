#include <gtest/gtest.h>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/models/lora.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/files/config_fields.h"
#include "src/files/safetensors.h"
#include "tests/model_files/hugging_face/golden_step.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

// Compares with transformers' results for encoders (tests/golden/make_encoder_golden.py): one row
// contains two texts, which transformers computed separately.
namespace hybrid_trainer::testing {
namespace {

class EncoderGolden : public ::testing::TestWithParam<const char*> {
 protected:
  EncoderGolden() { read_hugging_face_weights(folder_, *model_, stream_); }
  Tensor load(const std::string& name) const {
    return expected_.load(name, MemoryKind::kData, stream_);
  }
  Batch batch() const {
    const Tensor tokens = load("tokens");
    std::vector<NamedTensor> tensors{
        {"tokens", tokens}, {"positions", load("positions")}, {"types", load("types")}};
    const bool has_head = config_.language_head;
    tensors.push_back({"targets", has_head ? load("targets") : tokens});
    Batch batch(std::move(tensors), tokens.size(1));
    const Tensor& targets = batch.at("targets");
    const auto* const ids = targets.data<std::int32_t>();
    batch.set_targets(static_cast<double>(targets.elements() -
                                          std::count(ids, ids + targets.elements(), kNoTarget)));
    return batch;
  }
  /// The batch with its targets as empty_masked_batch has them, and two unused ones.
  Batch masked_batch() const {
    const Batch by_token = batch();
    const Tensor& targets = by_token.at("targets");
    const auto slots = static_cast<std::int64_t>(by_token.targets()) + 2;
    std::vector<NamedTensor> tensors;
    for (const NamedTensor& tensor : by_token.tensors())
      if (tensor.name != "targets") tensors.push_back(tensor);
    const Tensor ends = Tensor::zeros({1, slots}, DType::kI32, MemoryKind::kData, stream_),
                 wanted = Tensor::empty({1, slots}, DType::kI32, MemoryKind::kData, stream_);
    std::fill_n(wanted.data<std::int32_t>(), slots, kNoTarget);
    std::int64_t slot = 0;
    for (std::int64_t i = 0; i < targets.elements(); ++i) {
      const std::int32_t id = targets.data<std::int32_t>()[i];
      if (id == kNoTarget) continue;
      ends.data<std::int32_t>()[slot] = static_cast<std::int32_t>(i + 1);
      wanted.data<std::int32_t>()[slot++] = id;
    }
    tensors.push_back({"ends", ends});
    tensors.push_back({"targets", wanted});
    Batch batch(std::move(tensors), by_token.tokens_per_example());
    batch.set_targets(by_token.targets());
    return batch;
  }
  std::vector<double> hidden(LanguageModel& model) const {
    ForwardOnlyTape tape(Pass{.training = false});
    return values_of(model.hidden_states(batch(), tape, stream_));
  }
  /// Logits without the padding of the vocabulary.
  std::vector<double> logits(LanguageModel& model) const {
    Pass pass{.training = false};
    pass.positions = load("positions");
    pass.types = load("types");
    const Tensor all = model.logits(load("tokens"), pass, stream_);
    std::vector<double> values;
    for (std::int64_t row = 0; row < all.size(0); ++row) {
      const auto padded = values_of(all.rows(row, row + 1));
      values.insert(values.end(), padded.begin(), padded.begin() + config_.vocabulary);
    }
    return values;
  }
  std::vector<double> gradient_of(const Parameter& parameter, const std::string& of) const {
    const HuggingFaceLayout layout = layout_of(config_);
    return gradient_of_parts(
        parameter, [&](const FileTensor& part) { return load(of + layout.full_name(part)); },
        stream_);
  }

  const Stream stream_ = test_stream();
  const std::string folder_ = golden(GetParam());
  const SafetensorsFile expected_{folder_ + "/expected.safetensors"};
  const ModelConfig config_ = read_hugging_face_model_config(folder_, 0);
  const std::unique_ptr<LanguageModel> model_ = make_model(config_, 1, stream_);
};

TEST_P(EncoderGolden, HiddenStatesAndLogitsMatch) {
  EXPECT_LT(relative_error(hidden(*model_), values_of(load("hidden"))), 1e-5);
  if (config_.language_head) {
    EXPECT_LT(relative_error(logits(*model_), values_of(load("logits"))), 1e-5);
  }
}

TEST_P(EncoderGolden, LossAndGradientsMatchAtAnyRecompute) {
  if (!config_.language_head) {
    ForwardOnlyTape tape(Pass{});
    EXPECT_THROW(model_->forward(batch(), 1, tape, stream_), Error);
    return;
  }
  const GoldenStep wanted{*load("loss").data<float>(), [this](const Parameter& parameter) {
                            return gradient_of(parameter, "grad.");
                          }};
  expect_step(*model_, batch(), wanted, {0, 0.3, 0.6, 1}, stream_);
  expect_step(*model_, masked_batch(), wanted, {0, 0.3, 0.6, 1}, stream_);
}

TEST_P(EncoderGolden, BodyGradientsMatch) {
  StepGradients gradients([this](const auto& visit) { model_->visit_parameters(visit); }, stream_);
  PlainTape tape(Pass{});
  model_->hidden_states(batch(), tape, stream_);
  model_->hidden_backward(batch(), load("weights"), tape, stream_);
  EXPECT_TRUE(tape.empty());
  model_->visit_parameters([&](Parameter& parameter) {
    const bool is_head = parameter.name().starts_with("lm_head.");
    EXPECT_EQ(parameter.has_gradient(), !is_head) << parameter.name();
    if (!is_head) {
      EXPECT_LT(relative_error(values_of(parameter.gradient()), gradient_of(parameter, "body.")),
                kOfTransformers)
          << parameter.name();
    }
  });
}

TEST_P(EncoderGolden, ExportRoundTripKeepsHiddenStates) {
  const TemporaryFolder scratch;
  export_hugging_face(*model_, config_, nullptr, scratch / "out", stream_, model_families(),
                      DType::kF32, "", ModelFolder(folder_));
  const ModelConfig config = read_hugging_face_model_config(scratch / "out", 0);
  EXPECT_EQ(config_json(config), config_json(config_));
  const auto again = make_model(config, 2, stream_);
  read_hugging_face_weights(scratch / "out", *again, stream_);
  EXPECT_EQ(hidden(*again), hidden(*model_));
  const SafetensorsFile written(scratch / "out/model.safetensors"),
      original(folder_ + "/model.safetensors");
  for (const SafetensorsEntry& entry : original.entries())
    EXPECT_TRUE(written.contains(entry.name)) << entry.name;
}

TEST_P(EncoderGolden, BodyOfAModelWithHeadHasNoHead) {
  ModelConfig body = config_;
  body.language_head = false;
  const auto model = make_model(body, 2, stream_);
  read_hugging_face_weights(folder_, *model, body, stream_);
  EXPECT_EQ(hidden(*model), hidden(*model_));
  const TemporaryFolder scratch;
  export_hugging_face(*model, body, nullptr, scratch / "out", stream_, model_families(),
                      DType::kF32, "", ModelFolder(folder_));
  EXPECT_FALSE(read_hugging_face_model_config(scratch / "out", 0).language_head);
  const SafetensorsFile written(scratch / "out/model.safetensors");
  for (const SafetensorsEntry& entry : written.entries())
    EXPECT_FALSE(entry.name.starts_with(layout_of(config_).prefix) && config_.language_head)
        << entry.name;
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderGolden,
                         ::testing::Values("bert_a", "bert_body", "distilbert_a", "roberta_a",
                                           "xlm_roberta_a", "modernbert_a"));

}  // namespace
}  // namespace hybrid_trainer::testing
