#include <gtest/gtest.h>

#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;

class UntiedHead : public ::testing::Test {
 protected:
  /// Copies a golden folder and replaces one text in its config.json.
  fs::path changed(const std::string& name, const std::string& from, const std::string& to) {
    const fs::path folder = scratch_ / name;
    fs::copy(golden(name), folder);
    std::string text = read_file(folder / "config.json", 1 << 20);
    text.replace(text.find(from), from.size(), to);
    std::ofstream(folder / "config.json") << text;
    return folder;
  }
  std::vector<double> logits(const fs::path& folder, const ModelConfig& config) {
    const auto model = make_model(config, 1, stream_);
    read_hugging_face_weights(folder, *model, stream_);
    const Tensor tokens = random_tokens({1, 8}, 61, 3, stream_);
    return values_of(model->logits(tokens, Pass{.training = false}, stream_));
  }
  const Stream stream_ = test_stream();
  const TemporaryFolder scratch_;
};

/// transformers 5 reads the head too; version 4 used the table.
TEST_F(UntiedHead, IsReadDespiteTiedConfig) {
  const ModelConfig untied = read_hugging_face_model_config(golden("llama_a"), 0);
  const fs::path folder =
      changed("llama_a", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  const ModelConfig opened = read_hugging_face_model_config(folder, 0);
  EXPECT_FALSE(opened.tied_head);
  EXPECT_EQ(logits(folder, opened), logits(golden("llama_a"), untied));
}

TEST_F(UntiedHead, IsCopiedFromTableOfTiedFolder) {
  const ModelConfig tied = read_hugging_face_model_config(golden("llama_b"), 0);
  ASSERT_TRUE(tied.tied_head);
  ModelConfig untied = tied;
  untied.tied_head = false;
  EXPECT_EQ(logits(golden("llama_b"), untied), logits(golden("llama_b"), tied));
}

TEST_F(UntiedHead, RejectsUntiedFolderWithoutHead) {
  const fs::path folder =
      changed("llama_b", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  const ModelConfig untied = read_hugging_face_model_config(folder, 0);
  EXPECT_TRUE(contains(message_of<DataError>([&] { logits(folder, untied); }), "lm_head.weight"));
}

TEST(ModelFolder, AdapterFolderErrorSuggestsOptions) {
  const TemporaryFolder scratch;
  const auto problem = [](const fs::path& folder) {
    return message_of<DataError>([&] { read_hugging_face_model_config(folder, 0); });
  };
  const std::string adapter = problem(golden("lora_llama"));
  for (const char* text : {"is a PEFT adapter", "\"llama_a\"", "--adapter", "--merge"})
    EXPECT_TRUE(contains(adapter, text)) << adapter;
  const fs::path both = scratch / "both";
  fs::copy(golden("llama_a"), both);
  fs::copy(golden("lora_llama/adapter_config.json"), both);
  const std::string text = problem(both);
  EXPECT_TRUE(contains(text, "contains a model and an adapter")) << text;
  EXPECT_TRUE(contains(text, "to use only the model")) << text;
  EXPECT_TRUE(contains(text, "to use the adapter")) << text;
}

}  // namespace
}  // namespace hybrid_trainer::testing
