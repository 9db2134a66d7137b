#include "tests/support/tiny_run.h"

#include <fstream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "src/data/text/prepare.h"
#include "src/files/checkpoint.h"
#include "src/observability/jsonl_sink.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

void prepare_tiny_data(const fs::path& folder, int count) {
  const fs::path text = folder.string() + ".txt";
  const std::vector<std::string> words{"the ",  "cat ", "sat ", "on ",  "a ",
                                       "mat\n", "and ", "saw ", "two ", "birds. "};
  {
    std::ofstream out(text);
    for (int i = 0; i < count; ++i)
      out << words[random_below({7}, static_cast<std::uint64_t>(i), words.size())];
  }
  prepare_data({.inputs = {text}, .output = folder, .tokenizer = "characters"}, {});
}

ModelConfig tiny_model(const std::string& family) {
  ModelConfig model{.family = family, .layers = 1, .heads = 2, .width = 16, .context = 16};
  if (family == "gpt2") return model;
  model.layers = 2;
  model.state_space = {.heads = 2, .head_size = 16, .state_size = 8};
  if (family == "mamba2") {
    model.heads = ModelConfig{}.heads;
  } else {
    model.mixers = family == "qwen3_5" ? "da" : "ma";
    model.kv_heads = 1;
  }
  return model;
}

HybridTrainerConfig tiny_config() {
  HybridTrainerConfig config;
  config.model = tiny_model("gpt2");
  config.data.batch_size = 4;
  config.data.sequence_length = 16;
  config.training.steps = 40;
  config.optimizer.learning_rate = 3e-3;
  config.schedule.warmup_steps = 4;
  config.phases.warmup_steps = 8;
  config.phases.full_steps = 6;
  config.phases.max_predict_steps = 6;
  config.phases.skip_backward.confidence_threshold = 0.0;
  config.phases.skip_backward.confidence_window = 3;
  config.phases.skip_backward.trial_share = 0.5;
  config.checkpoint.every_steps = 10;
  return config;
}

TrainingRunResult train_tiny(const HybridTrainerConfig& config, const fs::path& data,
                             const fs::path& run, bool resume, std::string* console) {
  std::ostringstream progress;
  const auto show = [&] {
    if (console != nullptr) *console = progress.str();
  };
  try {
    const TrainingRunResult result = run_training({.config = config,
                                                   .data = data,
                                                   .run = run,
                                                   .resume = resume,
                                                   .init_from = {},
                                                   .command = "test"},
                                                  progress);
    show();
    return result;
  } catch (...) {
    show();
    throw;
  }
}

std::vector<StepRecord> records_of(const fs::path& run) {
  std::vector<StepRecord> records;
  for_each_record(run / "metrics.jsonl",
                  [&](const StepRecord& record) { records.push_back(record); });
  return records;
}

void copy_up_to(const fs::path& run, const fs::path& copy, std::int64_t last, std::int64_t steps) {
  fs::copy(run, copy, fs::copy_options::recursive);
  for (std::int64_t step = last + 1; step <= steps; ++step) {
    char name[32];
    std::snprintf(name, sizeof name, "step-%010lld", static_cast<long long>(step));
    fs::remove_all(copy / "checkpoints" / name);
  }
}

std::string newest_checkpoint_digest(const fs::path& run) {
  const FoundCheckpoint found = find_newest_checkpoint((run / "checkpoints").string());
  if (!found.checkpoint) return "none";
  return concat("step ", found.checkpoint->step, "\n", digest_of(*found.checkpoint).all);
}

}  // namespace hybrid_trainer
