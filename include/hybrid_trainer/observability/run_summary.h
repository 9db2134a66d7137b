#pragma once

#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Steps whose mean time gives the time left.
inline constexpr std::int64_t kStepsOfMean = 300;

/// Use of one phase over a run.
struct PhaseUse {
  std::int64_t steps = 0;
  StepRecord sum;   // its steps as one: the highest peak of each kind, not all at the same moment
  double cost = 0;  // charged, in Full steps
  /// Highest total of device memory, from the end of its entry to the end of the next phase's.
  std::size_t peak_bytes = 0;
  std::string precision;  // "fp32", "bf16"
};

/// Bytes that one option keeps out of the device's memory; below 0 where it takes more.
struct MemorySaving {
  std::string option, value;  // "memory.weights", "host"
  std::int64_t device_bytes = 0;
  std::array<std::int64_t, kPhases> by_phase{};  // of each phase's peak
};

/// A checkpoint that a run keeps for its validation loss.
struct BestCheckpoint {
  std::int64_t step = 0;
  double validation_loss = 0;
  bool operator==(const BestCheckpoint&) const = default;
};

/// summary.json: the outcome of a run.
struct RunSummary {
  std::string version;        // of this program
  std::string command;        // as it was typed
  std::string first_command;  // that began the run, if `command` resumed it
  std::int64_t parameters = 0;
  std::int64_t effective_batch = 0;  // examples per optimizer step, all micro-batches
  bool masked = false;               // losses are of masked tokens, not of next ones
  bool counts_examples = false;      // of the last step; see StepRecord
  std::optional<double> final_train_loss;
  std::optional<double> final_validation_loss;
  std::optional<double> final_average_validation_loss;  // of the mean of the weights
  std::optional<BestCheckpoint> best;                   // that was kept (checkpoint.keep_best)
  bool stopped_early = false;                           // by training.patience
  std::int64_t steps = 0;
  /// All steps folded into one: sums of tokens, seconds and planning_cost, the highest peak of each
  /// kind of memory, and what the last step that has a field says in it.
  StepRecord sum;
  std::array<PhaseUse, kPhases> phases;
  double total_seconds() const { return sum.seconds + sum.overhead_seconds; }
  PredictionCounts predictions;
  /// Steps by the gravest that was done about what went wrong in them; times that the run went back.
  std::array<std::int64_t, kAllRecoveries.size()> recoveries{};
  /// Steps given up by going back to a checkpoint, in no other sum; and what that left of the
  /// schedule's learning rate.
  std::int64_t rolled_back_steps = 0;
  double learning_rate_factor = 1;
  /// The most that was taken from the system at once, in use or kept for reuse, since the program
  /// began.
  std::size_t device_peak_bytes = 0, host_peak_bytes = 0;
  /// How often Predict moved the optimizer state out, how much, and what bringing it back took,
  /// since the program began.
  struct Offload {
    std::int64_t times = 0;
    std::size_t bytes = 0;
    double restore_seconds = 0;
    double waited_seconds = 0;  // of them, those that a step waited
  } offload;
  /// Steps with exact updates under way and what their predictions came to, of the whole run; waits
  /// for those updates and the worker's time, since the program began. Absent where updates never
  /// are late.
  struct Speculation {
    std::int64_t steps = 0, waits = 0;
    std::int64_t errors = 0;  // that the mean is of
    double error_sum = 0;
    std::size_t device_bytes = 0;  // most for state, masters and predictions in Predict, by kind
    double worker_seconds = 0, wait_seconds = 0;
    std::optional<double> mean_error() const {
      return errors == 0 ? std::nullopt : std::optional(error_sum / static_cast<double>(errors));
    }
  };
  std::optional<Speculation> speculation;
  /// Work of a learning-rate finder, by the records; absent where there is none.
  struct RateFinder {
    double factor = 1;         // of the schedule's rate
    double learning_rate = 0;  // the highest of a step
    std::int64_t probes = 0;
    double cost = 0;  // of them, in Full steps
  };
  std::optional<RateFinder> learning_rate_finder;
  /// Measured: the most of each kind that lay in host memory and in the scratch file.
  std::array<std::size_t, kMemoryKinds> host_peak_by_kind{}, file_peak_by_kind{};
  std::vector<MemorySaving> savings;  // by simulation
  /// Figures of a run that is one rank of several: how many, what they share, by what, and what
  /// this one sent and waited, since the program began.
  struct Distributed {
    std::int64_t ranks = 1;
    std::int64_t zero = 0;
    std::string backend;  // "mpi", "nccl", "threads", "single"
    std::uint64_t bytes_sent = 0;
    /// In which this one waited for others, or for what they send; not counted on CUDA devices.
    std::optional<double> exposed_seconds{};
    /// The simulated link, such as "125MB a second, 50 us a call"; empty: none.
    std::string imitated_link{};
    std::string lost_rank{};  // what ended the run, in words
    /// See StepRecord; over all steps since the program began.
    std::string slowest_rank{};
    std::optional<double> slowest_rank_ratio{};
  };
  std::optional<Distributed> distributed;
  std::string end;  // "finished", "interrupted", "diverged", "failed"

  /// Adds a step. A resumed run first adds the records that metrics.jsonl already holds.
  void add(const StepRecord& record);
  /// Extra cost of predictions over as many steps of plain training, in Full steps: below 0 where
  /// they saved some.
  double prediction_cost() const;
  /// Times that something of a kind was done.
  std::int64_t& count(Recovery kind) { return recoveries[static_cast<std::size_t>(kind)]; }
  std::int64_t count(Recovery kind) const { return recoveries[static_cast<std::size_t>(kind)]; }
  PhaseUse& phase(Phase phase) { return phases[static_cast<std::size_t>(phase)]; }
  const PhaseUse& phase(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }

 private:
  void add_late_step(const StepRecord& record);
  void add_probe(const StepRecord& record);
};

/// One JSON object on one line, with its line end.
std::string to_json(const RunSummary& summary);

}  // namespace hybrid_trainer
