#pragma once

#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"
#include "src/tasks/network_data.h"

namespace hybrid_trainer {

/// The task of a run whose family is no language model: its network, trained on the family's data.
/// `model`: settings.init_from, which may have been opened before. Throws UsageError where no data of the
/// family are known, and as NetworkDataKind::open.
std::unique_ptr<Task> network_task(const TrainingRunSettings& settings,
                                   const NetworkDataKinds& kinds = network_data_kinds(),
                                   const ModelFolder& model = {});

/// Examples that such a run has in an epoch; 0: its data are drawn from the seed. Throws as network_task.
std::int64_t examples_in_epoch(const TrainingRunSettings& settings);

/// language_task or network_task, as the family of config.model is.
std::unique_ptr<Task> task_of_family(const TrainingRunSettings& settings);
/// Makes that task of inputs that were read already.
std::unique_ptr<Task> task_with_inputs(const TrainingRunSettings& settings, const ReadInputs& read);

/// Ends of an interval.
struct ShareInterval {
  double low = 0, high = 0;
};
/// Whether a measure is a share of examples, as accuracy is.
bool is_share(const Measure& measure);
/// Within which the share of all such examples lies, in 95 of 100 cases (Wilson).
ShareInterval interval_of_share(const Measure& measure);

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
};

/// Evaluates it on the data's held-out examples. `dtype` is that of activations and products. Throws
/// OutOfMemory, Diverged.
NetworkScore score(Network& network, const NetworkData& data, const HybridTrainerConfig& config,
                   DType dtype, const Stream& stream);

/// Of a run or folder that is open, on its own data or, if given, on `data`.
NetworkScore score(const TrainedRun& run, const std::filesystem::path& data, DType dtype,
                   const Stream& stream, const NetworkDataKinds& kinds = network_data_kinds());

}  // namespace hybrid_trainer
