#pragma once

#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Number of steps that are averaged to estimate the remaining time.
inline constexpr std::int64_t kStepsOfMean = 300;

/// Totals of one phase over a run.
struct PhaseUse {
  std::int64_t steps = 0;
  StepRecord sum;   // all steps folded into one record; see RunSummary::sum
  double cost = 0;  // in Full steps
  /// Peak device memory while the phase is active: from the end of the transition to it until the
  /// end of the transition to the next phase.
  std::size_t peak_bytes = 0;
  std::string precision;
};

/// Device memory saved by one option; negative if the option needs more memory.
struct MemorySaving {
  std::string option, value;
  std::int64_t device_bytes = 0;
  std::array<std::int64_t, kPhases> by_phase{};  // saved bytes of each phase's peak
};

/// A checkpoint kept for its validation loss.
struct BestCheckpoint {
  std::int64_t step = 0;
  double validation_loss = 0;
  bool operator==(const BestCheckpoint&) const = default;
};

/// Outcome of a run: summary.json.
struct RunSummary {
  std::string version;        // version of this program
  std::string command;        // command line as typed
  std::string first_command;  // command that began the run, if `command` resumed it
  std::int64_t parameters = 0;
  std::int64_t effective_batch = 0;  // examples per optimizer step, all micro-batches
  bool masked = false;               // losses of masked tokens, not of next tokens
  bool counts_examples = false;      // StepRecord::counts_examples of the last step
  std::optional<double> final_train_loss;
  std::optional<double> final_validation_loss;
  std::optional<double> final_average_validation_loss;  // loss with the mean of the weights
  std::optional<BestCheckpoint> best;                   // kept by checkpoint.keep_best
  bool stopped_early = false;                           // stopped by training.patience
  std::int64_t steps = 0;
  /// All steps in one record: sums of tokens, seconds and planning_cost, peaks, and last values.
  StepRecord sum;
  std::array<PhaseUse, kPhases> phases;
  double total_seconds() const { return sum.seconds + sum.overhead_seconds; }
  PredictionCounts predictions;
  /// Number of steps by their most severe recovery action. Each rollback counts once.
  std::array<std::int64_t, kAllRecoveries.size()> recoveries{};
  /// Steps discarded by rollbacks, excluded from sums, and the resulting rate factor.
  std::int64_t rolled_back_steps = 0;
  double learning_rate_factor = 1;
  /// Peak memory taken from the system, in use or cached, since the program began.
  std::size_t device_peak_bytes = 0, host_peak_bytes = 0;
  struct Offload {
    std::int64_t times = 0;
    std::size_t bytes = 0;
    double restore_seconds = 0;
    double waited_seconds = 0;  // part of restore_seconds that delayed steps
  } offload;
  /// Statistics of delayed updates over the run. Waits and worker time count since the program
  /// began.
  struct Speculation {
    std::int64_t steps = 0, waits = 0;
    std::int64_t errors = 0;  // number of errors in error_sum
    double error_sum = 0;
    std::size_t device_bytes = 0;
    double worker_seconds = 0, wait_seconds = 0;
    std::optional<double> mean_error() const {
      return errors == 0 ? std::nullopt : std::optional(error_sum / static_cast<double>(errors));
    }
  };
  std::optional<Speculation> speculation;
  struct RateFinder {
    double factor = 1;         // factor on the schedule's rate
    double learning_rate = 0;  // highest learning rate of a step
    std::int64_t probes = 0;
    double cost = 0;  // cost of the probes, in Full steps
  };
  std::optional<RateFinder> learning_rate_finder;
  /// Measured peak of each kind in host memory and in the scratch file.
  std::array<std::size_t, kMemoryKinds> host_peak_by_kind{}, file_peak_by_kind{};
  std::vector<MemorySaving> savings;  // computed by simulation
  struct Distributed {
    std::int64_t ranks = 1;
    std::int64_t zero = 0;
    std::string backend;
    std::uint64_t bytes_sent = 0;
    std::optional<double> exposed_seconds{};  // waits for other ranks; not on CUDA
    /// The simulated link, such as "125MB a second, 50 us a call"; empty if there is none.
    std::string simulated_link{};
    std::string lost_rank{};  // message of the RankLost that ended the run
    /// See StepRecord. Computed over all steps since the program began.
    std::string slowest_rank{};
    std::optional<double> slowest_rank_ratio{};
  };
  std::optional<Distributed> distributed;
  std::string end;

  /// Adds a step. A resumed run adds the records in metrics.jsonl first.
  void add(const StepRecord& record);
  /// Returns the cost of predictions, in Full steps, beyond the same number of plain steps.
  double prediction_cost() const;
  std::int64_t& count(Recovery kind) { return recoveries[static_cast<std::size_t>(kind)]; }
  std::int64_t count(Recovery kind) const { return recoveries[static_cast<std::size_t>(kind)]; }
  PhaseUse& phase(Phase phase) { return phases[static_cast<std::size_t>(phase)]; }
  const PhaseUse& phase(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }

 private:
  void add_delayed_step(const StepRecord& record);
  void add_probe(const StepRecord& record);
};

/// Returns a JSON object on one line, with a newline at the end.
std::string to_json(const RunSummary& summary);

}  // namespace hybrid_trainer
