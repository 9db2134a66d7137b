#include "hybrid_trainer/trainer/hybrid_trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/support/faulty_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

struct Parts {
  HybridTrainerConfig config = tiny_config();
  Stream stream{MemoryPool::create("device")};
  std::shared_ptr<MemoryPool> host = MemoryPool::create("host");
  Batch batch = token_batch(Tensor::zeros({4, 16}, DType::kI32, MemoryKind::kData, stream),
                            Tensor::zeros({4, 16}, DType::kI32, MemoryKind::kData, stream));
  Parts() { config.model.vocabulary = 20; }
  std::size_t live_state() const {
    return stream.pool()->use().live[static_cast<std::size_t>(MemoryKind::kOptimizerState)];
  }
};

TEST(HybridTrainer, RejectsInvalidConfigBeforeAllocating) {
  Parts parts;
  const auto model_owner = make_model(parts.config.model, 0, parts.stream);
  LanguageModel& model = *model_owner;
  const std::size_t before = parts.stream.pool()->use().live_total;
  parts.config.phases.full_steps = 0;
  parts.config.optimizer.name = "adam";
  parts.config.predict_aware_memory.offload_strategy = "nvme_offload";
  parts.config.memory.folder = "/nowhere/at/all";
  try {
    const HybridTrainer trainer(model, parts.config, parts.stream, parts.host);
    FAIL() << "an invalid configuration was accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.problems().size(), 2u) << error.what();
  }
  EXPECT_EQ(parts.stream.pool()->use().live_total, before);
}

TEST(HybridTrainer, FailedSaveLeavesStateOffloaded) {
  Parts parts;
  parts.config.predict_aware_memory.async_restore = false;
  const auto model_owner = make_model(parts.config.model, 0, parts.stream);
  LanguageModel& model = *model_owner;
  HybridTrainer trainer(model, parts.config, parts.stream, parts.host);
  while (trainer.machine().undecided_steps() == 0) trainer.step(parts.batch);
  EXPECT_EQ(parts.live_state(), 0u);
  const std::filesystem::path in_the_way =
      std::filesystem::temp_directory_path() / ("in_the_way_" + std::to_string(getpid()));
  std::ofstream(in_the_way) << "a file";
  EXPECT_THROW(trainer.save((in_the_way / "checkpoints").string()), IoError);
  EXPECT_EQ(parts.live_state(), 0u);
  std::filesystem::remove(in_the_way);
}

TEST(HybridTrainer, WarnsAboutOldCheckpointsLeftBehind) {
  Parts parts;
  const TemporaryFolder folder;
  parts.config.checkpoint.keep = 1;
  const auto model_owner = make_model(parts.config.model, 0, parts.stream);
  LanguageModel& model = *model_owner;
  HybridTrainer trainer(model, parts.config, parts.stream, parts.host);
  std::string told;
  trainer.listen({}, [&](const std::string& text) { told += text; });
  trainer.step(parts.batch);
  trainer.save(folder.path().string());
  trainer.step(parts.batch);
  {
    const FileFault fault({.at = 1, .error = EACCES, .only = FileCall::kRename});  // rotation
    trainer.save(folder.path().string());
  }
  EXPECT_NE(told.find("cannot remove old checkpoints"), std::string::npos) << told;
  EXPECT_EQ(trainer.step(parts.batch).event, told);
}

}  // namespace
}  // namespace hybrid_trainer
