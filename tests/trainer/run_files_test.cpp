#include "hybrid_trainer/trainer/run_files.h"

#include <gtest/gtest.h>

#include "tests/trainer/temporary_folder.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

TEST(RunFiles, TheRunsTokenizerIsThatOfTheData) {
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

/// A kill before it ends again must not leave the end that it had before it went on.
TEST(RunFiles, ARunThatGoesOnHasNoEnd) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "data");
  const RunPaths run{(folder / "run").string()};
  fs::create_directories(run.root);
  write_text(run.summary(), "{\"end\": \"finished\"}");
  EXPECT_EQ(end_of_run(run), "finished");
  write_run_files(run, {}, {folder / "data", 0});
  EXPECT_EQ(end_of_run(run), "");
}

}  // namespace
}  // namespace hybrid_trainer
