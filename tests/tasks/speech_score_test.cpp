#include "src/data/audio/word_errors.h"
#include "src/run/run_files.h"
#include "src/tasks/task_kind.h"
#include "tests/run/speech_runs.h"

namespace hybrid_trainer {
namespace {

class SpeechScore : public SpeechRuns {};

TEST_F(SpeechScore, CountsEachKindOfWordError) {
  HybridTrainerConfig config = SpeechRuns::config();
  config.training.steps = 2;
  train(config, "run");
  std::filesystem::copy_file(scratch_ / "clips.jsonl", scratch_ / "others.jsonl");
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream);
  const Findings found =
      task_kind(config.model)
          .score(run, {.folder = (scratch_ / "run").string(), .data = scratch_ / "others.jsonl"},
                 DType::kF32, stream);
  const auto count = [&](const char* key) { return found.json.at(key).to_number<std::int64_t>(); };
  const WordErrors errors{.words = count("words"),
                          .substitutions = count("substitutions"),
                          .deletions = count("deletions"),
                          .insertions = count("insertions")};
  EXPECT_EQ(errors.words, kToneClips);
  EXPECT_GT(errors.errors(), 0) << "after two steps";
  EXPECT_EQ(found.json.at("word_error_rate").to_number<double>(), errors.rate());
  EXPECT_TRUE(contains(found.text, concat("24 words (", errors.text(), ")")));
}

}  // namespace
}  // namespace hybrid_trainer
