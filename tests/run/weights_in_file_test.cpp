#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

// Model folders whose matrices are in a scratch file while they are used.
namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// Clears the record of used pages. Returns false if the system does not allow it.
bool forget_used_pages() {
  std::ofstream file("/proc/self/clear_refs");
  file << 1 << std::flush;
  return file.good();
}

struct MappedBytes {
  std::int64_t all = 0, used = 0;
};

/// Size of the process's mappings of deleted files, such as scratch files.
MappedBytes scratch_bytes() {
  std::ifstream lines("/proc/self/smaps");
  MappedBytes bytes;
  bool is_scratch = false;
  for (std::string line; std::getline(lines, line);) {
    std::string first;
    std::int64_t number = 0;
    std::istringstream(line) >> first >> number;
    if (first.find('-') != first.npos) is_scratch = line.ends_with("(deleted)");
    if (is_scratch && first == "Size:") bytes.all += number << 10;
    if (is_scratch && first == "Referenced:") bytes.used += number << 10;
  }
  return bytes;
}

std::vector<float> logits_of_a_token(const TrainedRun& run, const Stream& stream) {
  run.model().visit_parameters(
      [&](Parameter& parameter) { parameter.compute_in(DType::kBF16, stream); });
  CachedDecoder decoder(run.model(), DType::kBF16, stream);
  const std::vector<std::int32_t> text{3};
  decoder.see(text);
  const auto logits = decoder.logits();
  return {logits.begin(), logits.end()};
}

TEST(WeightsInFile, ReadsOnlyPagesOfRoutedExperts) {
  const Stream stream(MemoryPool::create("test"));
  const TemporaryFolder scratch;
  ModelConfig config{
      .family = "mixtral", .layers = 2, .heads = 4, .width = 256, .context = 32, .vocabulary = 64};
  config.experts = {.count = 16, .chosen = 2, .intermediate_size = 512};
  const fs::path folder = scratch / "model";
  export_hugging_face(*make_model(config, 1, stream), nullptr, folder, stream, model_families(),
                      DType::kBF16);
  const std::vector<float> wanted =
      logits_of_a_token(load_hugging_face_folder(folder, "bf16", stream), stream);

  const TrainedRun run = load_hugging_face_folder(folder, "bf16", stream, model_families(), "file");
  if (!forget_used_pages()) GTEST_SKIP() << "the system does not report used pages";
  EXPECT_EQ(logits_of_a_token(run, stream), wanted);
  const MappedBytes bytes = scratch_bytes();
  const std::int64_t experts = 2 * 16 * 3 * 256 * 512 * 2, rest = bytes.all - experts;
  EXPECT_GT(rest, 0);
  EXPECT_LT(bytes.used, experts * 2 / 16 + rest + (64 << 10));
  EXPECT_GT(bytes.used, experts * 2 / 16);
}

}  // namespace
}  // namespace hybrid_trainer
