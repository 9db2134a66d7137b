#include <gtest/gtest.h>

#include "src/model_files/hugging_face/hugging_face.h"
#include "src/model_files/hugging_face/sentence_folder.h"
#include "src/run/run_export.h"
#include "src/run/run_files.h"
#include "src/run/text_outputs.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

// An EmbeddingGemma folder, written by tests/golden/make_embedding_golden.py.
namespace hybrid_trainer::testing {
namespace {

/// A text's tokens and its embedding.
struct EmbeddedText {
  std::vector<std::int32_t> tokens;
  std::vector<float> embedding;
};

template <class T>
std::vector<T> numbers_of_line(std::istream& file) {
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  std::vector<T> numbers;
  for (T number; words >> number;) numbers.push_back(number);
  return numbers;
}

std::vector<EmbeddedText> embedded_texts() {
  std::ifstream file(golden("embedding_gemma") + "/embeddings.txt");
  std::vector<EmbeddedText> texts;
  while (file.peek() != std::ifstream::traits_type::eof()) {
    EmbeddedText& text = texts.emplace_back();
    text.tokens = numbers_of_line<std::int32_t>(file);
    text.embedding = numbers_of_line<float>(file);
  }
  return texts;
}

class EmbeddingGolden : public ::testing::Test {
 protected:
  static PackedTexts packed(const std::vector<EmbeddedText>& texts) {
    std::vector<TextRow> rows;
    for (const EmbeddedText& text : texts)
      rows.push_back({.tokens = text.tokens, .ends = {std::ssize(text.tokens)}});
    return PackedTexts(rows, {.sequence_length = 24});
  }
  void expect_golden(const TrainedRun& run) const {
    const std::vector<EmbeddedText> texts = embedded_texts();
    ASSERT_EQ(texts.size(), 3u);
    const TextOutputs outputs =
        text_outputs(run.model("the test"), packed(texts), 2, DType::kF32, stream_);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::vector<float> embedding = normalized(outputs.of(i, 0));
      ASSERT_EQ(embedding.size(), texts[i].embedding.size());
      for (std::size_t c = 0; c < embedding.size(); ++c)
        EXPECT_NEAR(embedding[c], texts[i].embedding[c], 1e-5) << i << ", " << c;
    }
  }
  const Stream stream_ = test_stream();
  const TemporaryFolder scratch_;
};

TEST_F(EmbeddingGolden, MatchesSentenceTransformers) {
  const TrainedRun run = load_hugging_face_folder(golden("embedding_gemma"), "fp32", stream_);
  EXPECT_TRUE(run.config.model.bidirectional);
  EXPECT_EQ(run.config.model.window, 3);
  EXPECT_EQ(run.config.model.pooling, "mean");
  EXPECT_EQ(run.config.model.dense, "12,6");
  EXPECT_EQ(run.config.objective, "embed");
  expect_golden(run);
}

TEST_F(EmbeddingGolden, ExportReadsBack) {
  const TrainedRun run = load_hugging_face_folder(golden("embedding_gemma"), "fp32", stream_);
  export_model(run, scratch_ / "out", DType::kF32, stream_);
  expect_golden(load_hugging_face_folder(scratch_ / "out", "fp32", stream_));
  const SentencePipeline pipeline = read_sentence_pipeline(ModelFolder(scratch_ / "out"));
  EXPECT_EQ(pipeline.prompts.at("query"), "query : ");
  EXPECT_EQ(pipeline.dense, (std::vector<DenseLayer>{{.outputs = 12}, {.outputs = 6}}));
  EXPECT_TRUE(pipeline.normalizes);
  const std::string config = read_text(scratch_ / "out/config.json");
  for (const char* part :
       {"\"sliding_window\": 4", "\"use_bidirectional_attention\": true", "\"Gemma3TextModel\""})
    EXPECT_TRUE(contains(config, part)) << config;
}

/// Without its dense layers, the vectors would be other ones.
TEST_F(EmbeddingGolden, MissingDenseWeightsAreNamed) {
  std::filesystem::copy(golden("embedding_gemma"), scratch_ / "copy",
                        std::filesystem::copy_options::recursive);
  std::filesystem::remove(scratch_ / "copy/3_Dense/model.safetensors");
  const std::string message = message_of<MissingInput>(
      [&] { load_hugging_face_folder(scratch_ / "copy", "fp32", stream_); });
  EXPECT_TRUE(contains(message, "3_Dense contains neither model.safetensors")) << message;
}

}  // namespace
}  // namespace hybrid_trainer::testing
