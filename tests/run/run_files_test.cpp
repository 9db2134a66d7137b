#include "src/run/run_files.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/files/safetensors.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

TEST(RunFiles, CopiesTokenizerOfData) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "data");
  for (const char* name : {"vocab.json", "merges.txt"})
    fs::copy(fs::path(HT_TEST_DATA_DIR) / "bpe_small" / name, folder / "data");
  write_text(folder / "data/tokenizer_config.json", "{\"add_prefix_space\": true}");
  fs::create_directories(folder / "run");
  write_run_files({(folder / "run").string()}, {}, {folder / "data", 0});
  EXPECT_EQ(load_tokenizer(folder / "run/tokenizer")->encode("Call me"),
            load_tokenizer(folder / "data")->encode("Call me"));
}

/// If a resumed run is killed, its earlier end must not remain.
TEST(RunFiles, ClearsEndOfResumedRun) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "data");
  const RunPaths run{(folder / "run").string()};
  fs::create_directories(run.root);
  write_text(run.summary(), "{\"end\": \"finished\"}");
  EXPECT_EQ(end_of_run(run), "finished");
  write_run_files(run, {}, {folder / "data", 0});
  EXPECT_EQ(end_of_run(run), "");
}

/// PEFT keeps a tied head unchanged, but changes it when it merges the adapter.
TEST(RunFiles, RejectsAdapterOfTiedGpt2Embedding) {
  const TemporaryFolder folder;
  const Stream stream(MemoryPool::create("device"));
  const fs::path adapter = folder / "adapter";
  fs::create_directories(adapter);
  write_text(adapter / "adapter_config.json",
             R"({"peft_type": "LORA", "r": 2, "target_modules": ["wte"]})");
  const std::string stem = "base_model.model.transformer.wte.lora_embedding_";
  const auto zeros = [&](std::int64_t rows, std::int64_t columns) {
    return Tensor::zeros({rows, columns}, DType::kF32, MemoryKind::kData, stream);
  };
  write_safetensors((adapter / "adapter_model.safetensors").string(),
                    {{stem + "A", zeros(2, 61)}, {stem + "B", zeros(24, 2)}});
  std::string message;
  try {
    load_adapter_folder(adapter, "fp32", stream, model_families(),
                        fs::path(HT_TEST_DATA_DIR) / "gpt2_c");
  } catch (const DataError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("transformer.wte.weight"), std::string::npos) << message;
  EXPECT_EQ(message.find("merge_and_unload"), std::string::npos) << message;
}

}  // namespace
}  // namespace hybrid_trainer
