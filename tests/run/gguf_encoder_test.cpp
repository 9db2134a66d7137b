#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
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

TEST_F(GgufEncoderRun, EncoderWithoutPoolingIsRefused) {
  const TrainedRun run = opened(golden("bert_a"));
  expect_words(message_of<DataError>(
                   [&] { export_gguf_file(run, "f32", folder_ / "masked.gguf", stream_); }),
               {"no pooling", "--task embed"});
}

}  // namespace
}  // namespace hybrid_trainer::testing
