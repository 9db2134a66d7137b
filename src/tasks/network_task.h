#pragma once

#include <boost/json/object.hpp>

#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"
#include "src/tasks/network_data.h"

namespace hybrid_trainer {

/// The task of a run whose family is no language model: its network, trained on the family's data.
/// Throws UsageError where no data of the family are known, and as NetworkDataKind::open.
std::unique_ptr<Task> network_task(const TrainingRunSettings& settings,
                                   const NetworkDataKinds& kinds = network_data_kinds(),
                                   const ReadInputs& read = {});

/// Opens the data of such a run. Throws as network_task.
std::shared_ptr<const NetworkData> network_data(
    const TrainingRunSettings& settings, const NetworkDataKinds& kinds = network_data_kinds());

/// How good a network is on held-out examples.
struct NetworkScore {
  double loss = 0;
  std::int64_t examples = 0;
  std::optional<double> best_loss{};  // that any network can reach, where it is known
  /// Summed over all examples; of a regression r_squared, the share of the variance that it explains.
  std::vector<Measure> measures{};

  /// "loss 0.52 over 256 examples, the best that can be reached is 0.5; events.accuracy 0.91".
  /// Measures stand between texts of `between`.
  std::string text(const std::string& between = "; ") const;
  boost::json::object json() const;
};

/// Evaluates it on the data's held-out examples. `dtype` is that of activations and products. Throws
/// OutOfMemory, Diverged.
NetworkScore score(Network& network, const NetworkData& data, const HybridTrainerConfig& config,
                   DType dtype, const Stream& stream);

/// Of a run or folder that is open, on its own data or, if given, on `data`.
NetworkScore score(const TrainedRun& run, const std::filesystem::path& data, DType dtype,
                   const Stream& stream, const NetworkDataKinds& kinds = network_data_kinds());

}  // namespace hybrid_trainer
