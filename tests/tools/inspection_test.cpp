#include "src/tools/models/inspection.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "hybrid_trainer/files/run_directory.h"
#include "src/data/text/bpe_training.h"
#include "src/data/text/prepare.h"
#include "src/files/checkpoint.h"
#include "src/files/config_fields.h"
#include "src/files/output_file.h"
#include "src/observability/jsonl_sink.h"
#include "src/observability/memory_reports.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

class InspectionTest : public ::testing::Test {
 protected:
  boost::json::object seen(const fs::path& path) {
    const Inspection found = inspect(path);
    text_ = found.text;
    return boost::json::parse(found.json).as_object();
  }
  void expect_text(std::initializer_list<const char*> words) const {
    for (const char* word : words)
      EXPECT_NE(text_.find(word), std::string::npos) << word << " in:\n" << text_;
  }
  fs::path make_checkpoint(std::int64_t step) {
    State state;
    state.tensors["model.a"] = Tensor::zeros({3, 5}, DType::kF32, MemoryKind::kParameters, stream_);
    state.integers["trainer.steps_done"] = step;
    fs::create_directories(folder_ / "run/checkpoints");
    return save_checkpoint((folder_ / "run/checkpoints").string(), step, {state}, {}).path;
  }

  TemporaryFolder folder_;
  std::string text_;
  Stream stream_{MemoryPool::create("test")};
};

TEST_F(InspectionTest, AdapterShowsBaseAndSettings) {
  const auto found = seen(std::string(HT_TEST_DATA_DIR) + "/lora_llama");
  EXPECT_EQ(found.at("kind").as_string(), "adapter");
  EXPECT_TRUE(found.at("supported").as_bool());
  EXPECT_GT(found.at("lora").at("rank").as_int64(), 0);
  EXPECT_FALSE(found.at("tensors").as_array().empty());
  expect_text({"base", "lora_A.weight", "alpha"});
}

TEST_F(InspectionTest, PickledWeightsSuggestSafetensors) {
  fs::create_directories(folder_ / "pickled");
  replace_file(folder_ / "pickled/config.json", R"({"model_type":"llama"})");
  replace_file(folder_ / "pickled/pytorch_model.bin", "x");
  try {
    inspect(folder_ / "pickled");
    FAIL() << "read";
  } catch (const MissingInput& error) {
    EXPECT_NE(std::string(error.what()).find("model.safetensors"), std::string::npos);
  }
}

TEST_F(InspectionTest, DigestEndsWithTotalOfTensors) {
  const fs::path first = make_checkpoint(20), second = make_checkpoint(40);
  const Inspection digest = inspect_digest(first);
  const auto found = boost::json::parse(digest.json).as_object();
  EXPECT_EQ(found.at("kind").as_string(), "digest");
  EXPECT_EQ(found.at("step").as_int64(), 20);
  const std::string of_a{found.at("tensors").at("model.a").as_string()},
      all{found.at("all").as_string()};
  EXPECT_EQ(digest.text, of_a + "  model.a\n" + all + "  all 1 tensors\n");
  EXPECT_EQ(inspect_digest(second).text, digest.text);  // different step, same tensors
  EXPECT_THROW(inspect_digest(folder_ / "nowhere"), MissingInput);
  EXPECT_THROW(inspect_digest(folder_ / "run"), DataError);
}

TEST_F(InspectionTest, SafetensorsFileListsTensors) {
  const auto found = seen(std::string(HT_TEST_DATA_DIR) + "/gpt2_a.safetensors");
  EXPECT_EQ(found.at("kind").as_string(), "safetensors");
  EXPECT_EQ(found.at("metadata").at("width").as_string(), "32");
  const auto& tensors = found.at("tensors").as_array();
  const auto wte = std::find_if(tensors.begin(), tensors.end(), [](const boost::json::value& t) {
    return t.at("name").as_string() == "wte.weight";
  });
  ASSERT_NE(wte, tensors.end());
  EXPECT_EQ(wte->at("shape"), (boost::json::array{61, 32}));
  expect_text({"wte.weight", "F32", "[61, 32]", "safetensors"});
}

TEST_F(InspectionTest, TokenShardShowsTokens) {
  ShardWriter writer({.folder = folder_.path(), .split = "train", .vocabulary_size = 1000});
  writer.append(std::vector<std::int32_t>{7, 999, 3});
  writer.finish();
  const auto found = seen(folder_ / "train_000000.bin");
  EXPECT_EQ(found.at("kind").as_string(), "token_shard");
  EXPECT_EQ(found.at("tokens").as_int64(), 3);
  EXPECT_EQ(found.at("bits_per_token").as_int64(), 16);
  EXPECT_EQ(found.at("largest_token").as_int64(), 999);
  EXPECT_EQ(found.at("first_tokens"), (boost::json::array{7, 999, 3}));
  expect_text({"999", "[7, 999, 3]"});
}

TEST_F(InspectionTest, DataFolderShowsSplits) {
  write_text(folder_ / "text.txt", std::string(5000, 'a') + std::string(5000, 'b'));
  prepare_data(
      {.inputs = {folder_ / "text.txt"}, .output = folder_ / "data", .tokenizer = "bytes"});
  const auto found = seen(folder_ / "data");
  EXPECT_EQ(found.at("kind").as_string(), "data");
  EXPECT_EQ(found.at("vocabulary_size").as_int64(), 256);
  EXPECT_EQ(found.at("train_tokens").as_int64() + found.at("validation_tokens").as_int64(), 10000);
}

TEST_F(InspectionTest, CheckpointIsVerified) {
  const fs::path path = make_checkpoint(20);
  auto found = seen(path);
  EXPECT_EQ(found.at("kind").as_string(), "checkpoint");
  EXPECT_EQ(found.at("step").as_int64(), 20);
  EXPECT_EQ(found.at("state").as_string(), "sound");
  expect_text({"model.safetensors"});

  std::string bytes = read_text(path / "model.safetensors");
  bytes.back() ^= 1;
  write_text(path / "model.safetensors", bytes);
  found = seen(path);
  EXPECT_TRUE(found.at("state").as_string().starts_with("damaged"));
  expect_text({"damaged", "model.safetensors"});
}

TEST_F(InspectionTest, RunShowsStepsAndCheckpoints) {
  make_checkpoint(2);
  const fs::path damaged = make_checkpoint(4);
  write_text(damaged / "manifest.json", "{");
  HybridTrainerConfig config;
  config.training.steps = 9;
  write_text(folder_ / "run/config.json", config_json(config));
  {
    JsonlSink metrics(folder_ / "run/metrics.jsonl");
    StepRecord record;
    record.step = 1;
    record.tokens = 64;
    metrics.write(record);
    record.step = 2;
    record.phase = Phase::kFull;
    record.loss = 3.25;
    record.validation_loss = 3.0;
    metrics.write(record);
  }
  const auto found = seen(folder_ / "run");
  EXPECT_EQ(found.at("kind").as_string(), "run");
  EXPECT_EQ(found.at("steps").as_int64(), 2);
  EXPECT_EQ(found.at("steps_planned").as_int64(), 9);
  EXPECT_EQ(found.at("tokens").as_int64(), 128);
  EXPECT_EQ(found.at("last_train_loss").to_number<double>(), 3.25);
  EXPECT_EQ(found.at("last_validation_loss").to_number<double>(), 3.0);
  EXPECT_EQ(found.at("phases").at("full").at("steps").as_int64(), 1);
  const auto& checkpoints = found.at("checkpoints").as_array();
  ASSERT_EQ(checkpoints.size(), 2u);
  EXPECT_EQ(checkpoints[0].at("step").as_int64(), 2);
  EXPECT_TRUE(checkpoints[1].at("step").is_null());
}

TEST_F(InspectionTest, HuggingFaceFolderShowsModel) {
  const auto model_owner =
      make_model({.layers = 1, .heads = 2, .width = 8, .context = 4, .vocabulary = 61}, 7, stream_);
  LanguageModel& model = *model_owner;
  export_hugging_face(model, nullptr, folder_ / "hf", stream_);
  const auto found = seen(folder_ / "hf");
  EXPECT_EQ(found.at("kind").as_string(), "hugging_face");
  EXPECT_EQ(found.at("model").at("vocabulary").as_int64(), 61);
  EXPECT_EQ(found.at("tensors").as_array().size(), 16u);
  EXPECT_TRUE(found.at("tokenizer").is_null());
}

TEST_F(InspectionTest, HuggingFaceFolderShowsTokenizer) {
  const auto model_owner = make_model(
      {.layers = 1, .heads = 2, .width = 8, .context = 4, .vocabulary = 256}, 7, stream_);
  export_hugging_face(*model_owner, nullptr, folder_ / "hf", stream_);
  BpeTrainer trainer(257);
  trainer.train().tokenizer->save(folder_ / "hf");
  const auto found = seen(folder_ / "hf").at("tokenizer");
  EXPECT_EQ(found.at("kind").as_string(), "bpe");
  EXPECT_EQ(found.at("vocabulary_size").as_int64(), 257);
  write_text(folder_ / "hf/tokenizer.json", "{\"model\":{\"type\":\"Unigram\"}}");
  const auto refused = seen(folder_ / "hf").at("tokenizer");
  EXPECT_TRUE(refused.at("kind").is_null());
  EXPECT_NE(refused.at("error").as_string().find("tokenizer.json"), std::string::npos);
}

TEST_F(InspectionTest, RejectsUnknownFiles) {
  EXPECT_THROW(inspect(folder_ / "nowhere"), MissingInput);
  EXPECT_THROW(inspect(folder_.path()), DataError);
  write_text(folder_ / "notes.txt", "x");
  EXPECT_THROW(inspect(folder_ / "notes.txt"), DataError);
  write_text(folder_ / "junk.safetensors", "junk");
  EXPECT_THROW(inspect(folder_ / "junk.safetensors"), DataError);
  write_text(folder_ / "junk.bin", "junk");
  EXPECT_THROW(inspect(folder_ / "junk.bin"), DataError);
}

TEST_F(InspectionTest, OutOfMemoryRunShowsLiveBlocks) {
  const auto pool = MemoryPool::create("device", 4096);
  const MemoryLabel label("wte.weight");
  const Buffer held = pool->allocate(3072, MemoryKind::kParameters, {DType::kF32, {48, 16}});
  std::shared_ptr<const MemoryShortage> shortage;
  try {
    pool->allocate(2048, MemoryKind::kActivations, {DType::kBF16, {4, 256}});
  } catch (const OutOfMemory& error) {
    shortage = error.shortage();
  }
  const RunPaths paths{(folder_ / "run").string()};
  fs::create_directories(paths.checkpoints());
  write_file(paths.config(), config_json(HybridTrainerConfig{}));
  EXPECT_TRUE(seen(paths.root).at("out_of_memory").is_null());
  write_file(paths.shortage(), to_json(*shortage, Phase::kFull, 7));
  EXPECT_EQ(seen(paths.root).at("out_of_memory").as_string(), paths.shortage());
  const auto found = seen(paths.shortage());
  EXPECT_EQ(found.at("kind").as_string(), "out_of_memory");
  EXPECT_EQ(found.at("step").as_int64(), 7);
  EXPECT_EQ(found.at("asked").at("shape"), (boost::json::array{4, 256}));
  EXPECT_EQ(found.at("free_bytes").as_int64(), 1024);
  expect_text({"wte.weight", "3.07 kB", "[48, 16]", "bf16", "full", "parameters"});
}

TEST_F(InspectionTest, FormatsNumbersAndListsOfAnyKind) {
  write_text(folder_ / "oom.json",
             R"({"rows": [{"a": 1}, 5, [[{}]], -1.5e300], "bytes": 18446744073709551615,)"
             R"( "other_bytes": -1, "count": 9223372036854775808})");
  seen(folder_ / "oom.json");
  expect_text({R"([{"a":1}, 5, [[{}]], -1.5e+300])", "18446744 TB", "-1", "9223372036854775808"});
}

}  // namespace
}  // namespace hybrid_trainer
