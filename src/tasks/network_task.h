#pragma once

#include <boost/json/object.hpp>

#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"
#include "src/tasks/network_data.h"
#include "src/tasks/task_kind.h"

namespace hybrid_trainer {

/// Makes the task of a network that is not a language model, trained on the data of its family.
/// Throws UsageError if the family has no data, and throws like NetworkDataKind::open.
std::unique_ptr<Task> network_task(const TrainingRunSettings& settings,
                                   const NetworkDataKinds& kinds = network_data_kinds(),
                                   const ReadInputs& read = {});

/// Opens the data that network_task trains on. Throws like network_task.
std::shared_ptr<const NetworkData> network_data(
    const TrainingRunSettings& settings, const NetworkDataKinds& kinds = network_data_kinds());

struct NetworkScore {
  double loss = 0;
  std::int64_t examples = 0;
  std::optional<double> best_loss{};  // lower bound for any network, if known
  /// Sums over all examples; for a regression also r_squared, the explained share of the variance.
  std::vector<Measure> measures{};

  /// Returns "loss 0.52 over 256 examples, the lowest possible loss is 0.5; events.accuracy 0.91",
  /// with `between` before each measure.
  std::string text(const std::string& between = "; ") const;
  boost::json::object json() const;
};

/// Evaluates the network on held-out examples in precision `dtype`. Throws OutOfMemory, Diverged.
NetworkScore score(Network& network, const NetworkData& data, const HybridTrainerConfig& config,
                   DType dtype, const Stream& stream);

/// Implements TaskKind::predict.
void predict_examples(const TrainedRun& run, const PredictionRequest& requested, DType dtype,
                      const Stream& stream, const PredictionHandler& use);

/// Evaluates an opened run or folder on its own data or, if given, on `data`.
NetworkScore score(const TrainedRun& run, const std::filesystem::path& data, DType dtype,
                   const Stream& stream, const NetworkDataKinds& kinds = network_data_kinds());

}  // namespace hybrid_trainer
