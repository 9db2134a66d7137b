#pragma once

#include <fstream>

#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/files/run_directory.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/run/training_run.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/distributed/communicator.h"
#include "src/generation/evaluation.h"
#include "src/run/run_files.h"
#include "src/trainer/sharding/rank_links.h"

namespace hybrid_trainer {

/// Requests of a rank between two steps.
struct StepVote {
  bool stops = false, saves = false;
};

/// A training run as one of several ranks or as a single process. Rank 0 uses the run's folder;
/// rank N uses ranks/N in it.
class RunRanks {
 public:
  /// `ranks` must outlive this object. Null means a single process.
  explicit RunRanks(Communicator* ranks) : ranks_(ranks) {}
  Communicator* communicator() const { return ranks_; }
  bool are_several() const { return ranks_ != nullptr && ranks_->size() > 1; }
  int size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  bool lead() const { return ranks_ == nullptr || ranks_->rank() == 0; }
  SimulatedRank as_simulated() const {
    return ranks_ == nullptr ? SimulatedRank{} : SimulatedRank{ranks_->rank(), ranks_->size()};
  }
  /// Opens this rank's folder, after the lead has opened its own. Collective. Throws like
  /// RunDirectory. Throws UsageError, which names the rank, if a rank has a different
  /// configuration, machine or data than the other ranks, or does not see the lead's folder.
  RunDirectory open(const TrainingRunSettings& settings, const HybridTrainerConfig& config,
                    const Task& task) const;
  /// Limits all ranks to the CPU features that all machines have. If this reduces the features of a
  /// rank, reports it on the lead's `console`. Call it before any computation. Collective.
  void agree_on_processor(std::ostream& console) const;
  RunSummary::Distributed summary(const HybridTrainerConfig& config,
                                  const std::string& lost_rank) const;
  /// Returns the stream for messages: `console` on the lead, log.txt on other ranks.
  std::ostream& console(std::ostream& console, const RunPaths& own);

  /// Enclose the collective part of a step, so that this rank's compute time can be separated from
  /// its waiting. end_step records the slowest rank if all ranks have reported since the previous
  /// step.
  void begin_step();
  void end_step(const HybridTrainerConfig& config, StepRecord& record);
  /// Returns whether any rank wants to stop and whether rank 0 wants to save. Also exchanges the
  /// compute times of the last step. Collective.
  StepVote agree(StepVote here);
  /// Returns the value of rank 0. Collective.
  bool on_first(bool here) const { return value_of_first(here ? 1 : 0) == 1; }
  /// Returns the value of rank 0. Collective.
  std::int64_t value_of_first(std::int64_t here) const;
  /// Waits for all ranks, including their transfers in the background. Collective; blocks.
  void wait_for_all() const {
    if (are_several()) ranks_->barrier();
  }
  /// Returns the loss of all batches, bit-identical to one rank. Collective; throws as evaluate.
  EvaluationResult evaluate(LossModel& model, const OrderedBatches& batches,
                            const HybridTrainerConfig& config, const Stream& stream) const;
  /// Returns the string of each rank. Collective.
  std::vector<std::string> gather(const std::string& mine) const;

 private:
  void check_shared(const std::string& run) const;
  std::string name_of(const SlowRank& slow) const;
  std::optional<double> exposed_seconds() const;

  Communicator* ranks_;
  std::ofstream log_;
  std::vector<std::string> hosts_;  // host of each rank; empty before the first exchange
  StragglerDetector stragglers_;
  std::optional<double> exposed_before_;  // at the start of this step; only for CPU ranks
  double computed_ = 0;                   // compute time of the last step in seconds; 0 if unknown
  bool has_exchanged_ = false;            // an exchange has happened since that step
};

// Collectives that throw UsageError if ranks differ. The message names the first difference, and
// the rank that differs from the majority. If there is no majority, it names the rank that differs
// from the first rank.

/// Checks that all ranks run the same program with the same arguments.
void check_same_call(const RunRanks& ranks, const HybridTrainerConfig& config, bool resume);
/// Checks that all ranks start after the same step with the same weights. Blocks.
void check_same_start(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                      const Stream& stream);
/// Throws RankLost if ranks that should have equal weights do not. Blocks.
void check_same_weights(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                        const Stream& stream);

}  // namespace hybrid_trainer
