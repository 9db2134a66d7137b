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

/// What a rank wants between two steps.
struct StepWish {
  bool stops = false, saves = false;
};

/// A training run as one of several ranks, or alone. Rank 0 leads: the run's folder is its own;
/// that of another rank is ranks/N in it, with what that rank measured and, in log.txt, told.
class RunRanks {
 public:
  /// Null: alone. Must outlive it.
  explicit RunRanks(Communicator* ranks) : ranks_(ranks) {}
  Communicator* communicator() const { return ranks_; }
  bool are_several() const { return ranks_ != nullptr && ranks_->size() > 1; }
  int size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  bool lead() const { return ranks_ == nullptr || ranks_->rank() == 0; }
  /// For what its memory is simulated by.
  SimulatedRank as_simulated() const {
    return ranks_ == nullptr ? SimulatedRank{} : SimulatedRank{ranks_->rank(), ranks_->size()};
  }
  /// This rank's own folder, the leading one's first. A collective; throws as RunDirectory, and
  /// UsageError, which names the rank, where one found another configuration, machine or data than
  /// the others, or does not see the leading one's folder.
  RunDirectory open(const TrainingRunSettings& settings, const HybridTrainerConfig& config,
                    const Task& task) const;
  /// From now on all compute with what all their processors have, which `console` of the leading one
  /// is told where it is less than one has. Before anything is computed. A collective.
  void agree_on_processor(std::ostream& console) const;
  /// For the run's summary.
  RunSummary::Distributed summary(const HybridTrainerConfig& config,
                                  const std::string& lost_rank) const;
  /// Where this rank tells: `console` of the leading one, log.txt of others.
  std::ostream& console(std::ostream& console, const RunPaths& own);

  /// Around what ranks do together in a step: how long this one computed is known from what it
  /// waited for the others, and which is the slowest gets into the record, where all have told since
  /// the step before.
  void begin_step();
  void end_step(const HybridTrainerConfig& config, StepRecord& record);
  /// Whether any rank wants to stop, and whether rank 0 wants to save. The ranks tell each other how
  /// long the last step took them, too. A collective.
  StepWish agree(StepWish here);
  /// Whether it holds on rank 0. A collective.
  bool on_first(bool here) const { return of_first(here ? 1 : 0) == 1; }
  /// What rank 0 has. A collective.
  std::int64_t of_first(std::int64_t here) const;
  /// For what ranks send beside what they compute, too. A collective; blocks.
  void wait_for_all() const {
    if (are_several()) ranks_->barrier();
  }
  /// Loss over all batches, of which each rank evaluates some, with the bits of one rank. A
  /// collective; throws as hybrid_trainer::evaluate.
  EvaluationResult evaluate(LossModel& model, const OrderedBatches& batches,
                            const HybridTrainerConfig& config, const Stream& stream) const;
  /// What each rank has. A collective.
  std::vector<std::string> gather(const std::string& mine) const;

 private:
  void check_shared(const std::string& run) const;
  std::string name_of(const SlowRank& slow) const;
  std::optional<double> exposed_seconds() const;

  Communicator* ranks_;
  std::ofstream log_;
  std::vector<std::string> hosts_;  // by rank, once they have told each other
  RankPace pace_;
  std::optional<double> exposed_before_;  // this step, of several on processors
  double computed_ = 0;                   // seconds of the last step; 0: not known
  bool has_heard_ = false;                // since that
};

// Collectives that throw UsageError where ranks differ. It names the first difference, and the rank
// that differs from most others, or, where there are no most, from the first rank.

/// Of ranks that were not called alike, or are not the same program.
void check_same_call(const RunRanks& ranks, const HybridTrainerConfig& config, bool resume);
/// Of ranks that begin after different steps, or with different weights. Blocks.
void check_same_start(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                      const Stream& stream);
/// Throws RankLost where ranks that should have the same weights do not. Blocks.
void check_same_weights(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                        const Stream& stream);

}  // namespace hybrid_trainer
