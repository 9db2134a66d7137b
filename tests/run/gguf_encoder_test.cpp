#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/gguf/gguf_file.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/run_export.h"
#include "src/run/text_data.h"
#include "src/run/text_outputs.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

namespace json = boost::json;

class GgufEncoderRun : public ::testing::Test {
 protected:
  TrainedRun opened(const std::filesystem::path& path) {
    TrainedRun run = load_hugging_face_folder(path, "fp32", stream_);
    run.config.data.sequence_length = std::min<std::int64_t>(16, run.config.model.context);
    return run;
  }
  /// Returns the outputs of a model for a text.
  std::vector<double> outputs(const TrainedRun& run, const std::string& text) {
    const ModelInput input = run.tokenizer->encode_texts(text, {}, {}, ControlText::kAsTokens);
    TextRow row;
    row.tokens = input.ids;
    row.types = input.types;
    row.ends = {std::ssize(input.ids)};
    PackedTexts::Settings packing = text_packing(run.config, *run.tokenizer);
    packing.has_classes = false;
    packing.labels = 0;
    return values_of(
        text_outputs(run.model(), PackedTexts({row}, packing), 1, DType::kF32, stream_).values);
  }
  const Stream stream_ = test_stream();
  const TemporaryFolder folder_;
};

TEST_F(GgufEncoderRun, FileOfLlamaCppEmbedsLikeSentenceTransformers) {
  const TrainedRun run = opened(golden("gguf_encoder/model.gguf"));
  EXPECT_EQ(run.config.objective, "embed");
  EXPECT_EQ(run.config.model.pooling, "mean");
  const json::value rows = json::parse(read_text(golden("gguf_encoder/expected.json")));
  ASSERT_EQ(rows.as_array().size(), 5u);
  for (const json::value& row : rows.as_array()) {
    const std::string text(row.at("text").as_string());
    EXPECT_LT(relative_error(outputs(run, text),
                             json::value_to<std::vector<double>>(row.at("embedding"))),
              2e-6)
        << text;
  }
}

TEST_F(GgufEncoderRun, ExportOfLlamaCppsFileKeepsOutputs) {
  const TrainedRun run = opened(golden("gguf_encoder/model.gguf"));
  const std::vector<double> wanted = outputs(run, "a boat");
  const GgufExport written = export_gguf_file(run, "f32", folder_ / "again.gguf", stream_);
  EXPECT_EQ(written.change.largest_change, 0);
  EXPECT_GT(written.change.largest_logit, 0);
  EXPECT_GT(written.tokens, 0);
  EXPECT_EQ(outputs(opened(folder_ / "again.gguf"), "a boat"), wanted);
  export_model(run, folder_ / "model", {}, stream_);
  EXPECT_EQ(outputs(opened(folder_ / "model"), "a boat"), wanted);
}

TEST_F(GgufEncoderRun, ClassifierKeepsLabelsAndOutputs) {
  TrainedRun run = opened(golden("gguf_encoder/model.gguf"));
  ModelConfig model = run.config.model;
  model.pooling = "cls";
  model.labels = {{"floats"}, {"sinks"}, {"flies"}};
  run.config.objective = "classify";
  run.config.model = model;
  run.network = make_network(model, 3, stream_);
  const std::vector<double> wanted = outputs(run, "stones");
  std::ostringstream said;
  send_warnings_to(&said);
  export_gguf_file(run, "f32", folder_ / "classes.gguf", stream_);
  send_warnings_to(&std::cerr);
  EXPECT_TRUE(contains(said.str(), "token type 0")) << said.str();
  const TrainedRun read = opened(folder_ / "classes.gguf");
  EXPECT_EQ(read.config.objective, "classify");
  EXPECT_EQ(read.config.model.labels, model.labels);
  EXPECT_EQ(outputs(read, "stones"), wanted);
}

/// A decoder that embeds texts, with a tokenizer that ends texts with <|endoftext|>.
class GgufDecoderRun : public GgufEncoderRun {
 protected:
  TrainedRun made(ModelConfig model) {
    json::value tokenizer = json::parse(read_text(golden("bpe_small") + "/tokenizer.json"));
    tokenizer.as_object()["post_processor"] = json::parse(
        R"({"type": "TemplateProcessing", "pair": [],
            "single": [{"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
            "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [599],
                                                 "tokens": ["<|endoftext|>"]}}})");
    model.vocabulary = 602;
    model.tied_head = true;
    model.language_head = false;
    TrainedRun run;
    run.config.objective = "embed";
    run.config.data.sequence_length = 16;
    run.config.model = resolved_model_config(model);
    run.network = make_network(run.config.model, 3, stream_);
    run.tokenizer = load_tokenizer(folder_.write("tokenizer.json", json::serialize(tokenizer)));
    run.token_ids = R"({"bos_token_id": 1, "eos_token_id": 2})";
    return run;
  }
  void expect_same(const TrainedRun& run, const std::string& architecture) {
    const std::vector<double> wanted = outputs(run, "boats float");
    const GgufExport written = export_gguf_file(run, "f32", folder_ / "model.gguf", stream_);
    EXPECT_LT(written.change.largest_change, 1e-6);  // 1 was added to norms and subtracted
    EXPECT_GT(written.tokens, 0);
    const GgufFile file(folder_ / "model.gguf");
    EXPECT_EQ(file.text("general.architecture"), architecture);
    EXPECT_EQ(file.count("tokenizer.ggml.eos_token_id"), 599);
    const TrainedRun read = opened(folder_ / "model.gguf");
    EXPECT_EQ(read.config.objective, "embed");
    EXPECT_FALSE(read.config.model.language_head);
    const auto there = texts_of_keys(read.config.model), here = texts_of_keys(run.config.model);
    for (std::size_t i = 0; i < here.size(); ++i)
      EXPECT_EQ(there[i].second, here[i].second) << here[i].first;
    EXPECT_LT(relative_error(outputs(read, "boats float"), wanted), 1e-6);
  }
  static ModelConfig shape(const char* family) {
    return {.family = family,
            .layers = 2,
            .heads = 4,
            .width = 32,
            .context = 24,
            .kv_heads = 2,
            .head_size = 8,
            .intermediate_size = 48};
  }
};

TEST_F(GgufDecoderRun, LastTokenPoolingRoundTrips) {
  ModelConfig model = shape("qwen3");
  model.pooling = "last";
  expect_same(made(model), "qwen3");
}

TEST_F(GgufDecoderRun, BothWaysAndLinearLayersRoundTrip) {
  ModelConfig model = shape("gemma3");
  model.pooling = "mean";
  model.bidirectional = true;
  model.query_scalar = 8;
  model.window = 4;
  model.window_layers = "wa";
  model.dense = "48,32";
  expect_same(made(model), "gemma-embedding");
}

TEST_F(GgufDecoderRun, OtherLinearLayersAndClassesAreRefused) {
  const auto refusal = [&](const ModelConfig& model) {
    const TrainedRun run = made(model);
    return message_of<DataError>(
        [&] { export_gguf_file(run, "f32", folder_ / "refused.gguf", stream_); });
  };
  ModelConfig model = shape("qwen3");
  model.pooling = "last";
  model.dense = "48,32";
  expect_words(refusal(model), {"model.dense=48,32", "no linear layers after pooling"});
  model.dense.clear();
  model.labels = {{"a"}, {"b"}};
  expect_words(refusal(model), {"decoders that classify"});
  model = shape("gemma3");
  model.bidirectional = true;
  model.query_scalar = 8;
  expect_words(refusal(model), {"has no pooling"});
  model.pooling = "mean";
  for (const char* dense : {"48", "48,32 bias", "48,32 tanh", "48,16"}) {
    model.dense = dense;
    expect_words(refusal(model), {"two linear layers after pooling", "32 outputs"});
  }
}

TEST_F(GgufEncoderRun, EncoderWithoutPoolingIsRefused) {
  const TrainedRun run = opened(golden("bert_a"));
  expect_words(message_of<DataError>(
                   [&] { export_gguf_file(run, "f32", folder_ / "masked.gguf", stream_); }),
               {"no pooling", "--task embed"});
}

}  // namespace
}  // namespace hybrid_trainer::testing
