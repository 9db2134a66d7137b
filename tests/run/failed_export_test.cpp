#include <gtest/gtest.h>

#include <cerrno>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/model_files/hugging_face/sentence_folder.h"
#include "src/run/run_export.h"
#include "tests/support/faulty_files.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// The folder appears only when its files for sentence-transformers are complete: without them, it
/// would open as a model with other embeddings.
TEST(FailedExport, LeavesNoEmbedderWithoutItsModules) {
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun model =
      load_hugging_face_folder(std::string(golden("embedding_gemma")), "fp32", stream);
  const SentencePipeline want = read_sentence_pipeline(ModelFolder(golden("embedding_gemma")));
  int failures = 0;
  for (int at = 0;; ++at) {
    SCOPED_TRACE(at);
    const TemporaryFolder scratch;
    const std::filesystem::path folder = scratch / "model";
    {
      const FileFault fault({.at = at, .error = EIO, .only = {}});
      try {
        export_model(model, folder, DType::kF32, stream);
      } catch (const Error&) {
        ++failures;
      }
      if (fault.calls() <= at) break;
    }
    if (!std::filesystem::exists(folder)) continue;
    const SentencePipeline written = read_sentence_pipeline(ModelFolder(folder));
    EXPECT_EQ(written.pooling, want.pooling);
    EXPECT_EQ(written.dense, want.dense);
  }
  EXPECT_GT(failures, 50);
}

}  // namespace
}  // namespace hybrid_trainer
