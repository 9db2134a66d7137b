#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/models/model_config.h"
#include "src/trainer/model_trainable.h"

namespace hybrid_trainer::benchmarks {

struct CycleSettings {
  ModelConfig model;
  std::int64_t batch = 64, sequence = 1024;
  bool bf16 = true;
  std::int64_t passes = 10;    // forward passes in Predict
  std::int64_t lookahead = 5;  // number of them after the restore has begun
  std::int64_t rounds = 3;     // repetitions of the copies; the median counts
};

/// One timed span and the memory that is live once the device has finished it.
struct Mark {
  std::string what;
  double begin_seconds = 0;  // since the start of the first span
  double seconds = 0;
  MemoryUse device;            // with the peaks of this span
  std::size_t host_bytes = 0;  // live in the host pool
};

/// Median times in seconds to copy an optimizer state. "Alone": nothing else runs.
struct CopyTimes {
  std::size_t state_bytes = 0;
  double out_call = 0;       // until move_out returns
  double out = 0;            // until the device memory is free
  double restore_call = 0;   // until begin_return returns
  double restore_alone = 0;  // until the state is restored
  std::int64_t passes = 1;   // enough passes to take twice as long as a restore
  double passes_without = 0;
  double exposed = 0;  // time that a concurrent restore adds to them, up to its end
  double hidden_share() const { return 1 - exposed / restore_alone; }
};

/// Takes a GPT-2 through a phase cycle on random tokens.
class PhaseCycle {
 public:
  PhaseCycle(const CycleSettings& settings, const Stream& stream);
  /// Runs Full, Predict with a background restore, and Correct. Records from the second cycle on.
  std::vector<Mark> run();
  /// Times copies of an optimizer state of the model's size while the model is in Predict.
  CopyTimes time_copies();

 private:
  void cycle();
  void mark(const std::string& what, const std::function<void()>& work);
  void train_step();
  void predict(std::int64_t passes);

  CycleSettings settings_;
  const Stream& stream_;
  std::shared_ptr<MemoryPool> host_pool_;
  std::unique_ptr<LossModel> model_;
  HybridTrainerConfig config_;
  std::unique_ptr<ModelTrainable> trainable_;
  Batch batch_;
  double begin_seconds_ = 0;
  std::vector<Mark> marks_;
};

}  // namespace hybrid_trainer::benchmarks
