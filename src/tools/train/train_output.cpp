#include "src/tools/train/train_output.h"

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

namespace {

std::string text_or_not_measured(const std::optional<double>& value) {
  return value ? brief(*value) : "not measured";
}

std::string no_predictions_text(const RunSummary& summary, const HybridTrainerConfig& config) {
  const std::int64_t full = summary.phase(Phase::kFull).steps;
  if (config.phases.max_predict_steps == 0) return "off (phases.max_predict_steps=0)";
  if (full == 0) return concat("none; all ", summary.steps, " steps were Warmup");
  return concat("none; Full had ", full,
                " steps, and no predicted direction had enough confidence for a probe");
}

/// Returns "predictions: 4 made, 1 accepted, …; they cost …".
std::string predictions_text(const RunSummary& summary, const HybridTrainerConfig& config) {
  const PredictionCounts& counts = summary.predictions;
  if (counts.made == 0) return "predictions: " + no_predictions_text(summary, config);
  std::string text = concat("predictions: ", counts.made, " made, ", counts.accepted, " accepted, ",
                            counts.shrunk, " shrunk, ", counts.reverted, " reverted");
  const double cost = summary.prediction_cost(), share = cost / static_cast<double>(summary.steps);
  if (!std::isfinite(cost)) return text;
  return text + concat("; they ", cost < 0 ? "saved " : "cost ", brief(std::abs(cost)),
                       " Full steps (", brief(std::abs(100 * share)), " % of the run)");
}

std::string best_text(const BestCheckpoint& best, const std::string& run) {
  const HybridTrainerConfig config = config_of_run(RunPaths{run});
  return concat("\n  best: validation loss ", brief(best.validation_loss), " at step ", best.step,
                "; hybrid export ", shell_path(run), " --checkpoint best --output FOLDER",
                config.lora.is_on() ? " --adapter"
                : config.freezes()  ? " --merge"
                                    : "");
}

void print_end(const RunSummary& summary, const std::string& run) {
  std::cerr << "validation loss " << text_or_not_measured(summary.final_validation_loss)
            << " after " << summary.steps << " steps";
  if (const auto& before = summary.sum.initial_validation_loss)
    std::cerr << ", " << brief(*before) << " before them";
  std::cerr << "; " << units::duration(summary.total_seconds()) << "\n  steps:";
  for (Phase phase : kAllPhases)
    if (const std::int64_t steps = summary.phase(phase).steps; steps > 0)
      std::cerr << ' ' << name_of(phase) << ' ' << steps;
  if (summary.best) std::cerr << best_text(*summary.best, run);
  if (summary.learning_rate_finder) {
    const RunSummary::RateFinder& finder = *summary.learning_rate_finder;
    std::cerr << "\n  learning rate found: " << brief(finder.learning_rate) << ", "
              << brief(finder.factor) << " times the configured one, after " << finder.probes
              << " probes that cost " << brief(finder.cost) << " Full steps";
  }
  if (const auto& ranks = summary.distributed; ranks && ranks->ranks > 1) {
    std::cerr << "\n  ranks: " << ranks->ranks << ", rank 0 sent "
              << units::bytes(ranks->bytes_sent)
              << (ranks->exposed_seconds
                      ? concat(" and waited ", brief(*ranks->exposed_seconds), " s")
                      : "")
              << (ranks->slowest_rank_ratio
                      ? concat("; rank ", ranks->slowest_rank, " took ",
                               brief(*ranks->slowest_rank_ratio), " times as long as the others")
                      : "")
              << (ranks->simulated_link.empty() ? ""
                                                : "; simulated link: " + ranks->simulated_link);
  }
  if (summary.speculation) {
    const RunSummary::Speculation& late = *summary.speculation;
    std::cerr << "\n  asynchronous updates: " << late.steps
              << " steps, relative error of their predictions "
              << text_or_not_measured(late.mean_error());
    if (late.worker_seconds > 0) {  // 0: only waits for other ranks
      std::cerr << "; the worker took " << brief(late.worker_seconds) << " s, steps waited "
                << brief(late.wait_seconds) << " s for it";
    }
  } else {
    std::cerr << "\n  " << predictions_text(summary, config_of_run(RunPaths{run}));
  }
  std::cerr << "\n  report: " << run << "/report.html\n";
}

}  // namespace

bool is_quiet(bool json) { return json && isatty(STDERR_FILENO) == 0; }

bool is_folder_setting(const std::string& setting) {
  constexpr const char* kOfTraining[] = {
      "model.dropout=",           "model.experts.balance_loss=", "model.experts.z_loss=",
      "model.experts.bias_rate=", "model.attention_pattern.",    "model.encoder.source_length=",
      "model.context=",           "model.rope_scaling.",         "model.pooling="};
  return setting.starts_with("model.") && std::ranges::none_of(kOfTraining, [&](const char* key) {
           return setting.starts_with(key);
         });
}

void check_model_is_not_set(const std::string& command, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    if (!is_folder_setting(setting)) continue;
    throw UsageError(
        concat(command, ": --set ", setting, ": the model comes from the folder that --",
               command == "train" ? "init-from" : "model",
               " names; only these keys of model.* can be set: dropout, experts.balance_loss, ",
               "experts.z_loss, experts.bias_rate, encoder.source_length, ",
               "attention_pattern, context, rope_scaling and pooling"));
  }
}

int report_training(const TrainingRunResult& result, const std::string& run, bool json) {
  if (json) {
    std::cout << result.summary_json;
  } else if (result.end == RunEnd::kFinished) {
    print_end(result.summary, run);
  }
  return static_cast<int>(result.end == RunEnd::kInterrupted ? ExitCode::kInterrupted
                                                             : ExitCode::kSuccess);
}

}  // namespace hybrid_trainer
