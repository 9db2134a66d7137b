#pragma once

#include <filesystem>
#include <functional>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/nn/network.h"
#include "src/data/synthetic/synthetic_set.h"
#include "src/tasks/prediction.h"

namespace hybrid_trainer {

/// Facts about a class, tensor, column or example for display: name and description.
using DataFacts = std::vector<std::pair<std::string, std::string>>;

/// Training and validation examples of a network, with the tensors of Network::empty_batch.
class NetworkData {
 public:
  virtual ~NetworkData() = default;
  /// Returns a description for display: "drawn from the seed: falling bodies, 16 frames each".
  virtual std::string description() const = 0;
  virtual DatasetPart training(const HybridTrainerConfig& config) const = 0;
  /// Returns the validation examples, disjoint from `training`.
  virtual DatasetPart validation(const HybridTrainerConfig& config) const = 0;
  /// Returns the lowest mean loss possible on examples like `validation`, if it can be computed.
  virtual std::optional<double> best_loss(const HybridTrainerConfig& /*config*/) const {
    return {};
  }
  /// Completes the config from the data; by default unchanged. Throws ConfigError, DataError.
  virtual HybridTrainerConfig completed(HybridTrainerConfig config) const { return config; }
  /// Returns a checksum of the files, for a resumed run; empty for data drawn from the seed.
  virtual std::string checksum() const { return ""; }
  /// Returns the examples per epoch, or 0 for data drawn from the seed.
  virtual std::int64_t examples() const { return 0; }
  /// Describes how the data was interpreted. `config` must come from completed().
  virtual DataFacts contents(const HybridTrainerConfig& /*config*/) const { return {}; }
  /// Describes a file's line or row `number`, from 1, or an array's element. Throws DataError.
  virtual DataFacts example(std::int64_t number, const HybridTrainerConfig& config) const;
  /// Converts measures from the network's units to the data's; returns them unchanged by default.
  virtual std::vector<Measure> in_original_units(std::vector<Measure> measures,
                                                 const HybridTrainerConfig& /*config*/) const {
    return measures;
  }
  /// Makes the prediction for validation example `number`, counted from 0, from the network's
  /// outputs.
  using PredictionMaker =
      std::function<Prediction(std::int64_t number, const std::vector<NamedTensor>& outputs)>;
  /// Returns a maker for a config from completed(). By default, its predictions are the outputs.
  virtual PredictionMaker prediction_maker(const HybridTrainerConfig& config) const;
  /// Returns notes on the data to show before the first step.
  virtual std::vector<std::string> notes() const { return {}; }
  /// Writes files that make the run usable without its initial folder. Throws IoError.
  virtual void write_files(const std::filesystem::path& /*run*/) const {}
};

struct NetworkDataSource {
  const HybridTrainerConfig& config;
  std::filesystem::path data{};        // --data, or empty
  std::filesystem::path validation{};  // --validation; empty: a part of `data` is held back
  std::filesystem::path model{};  // folder of a run or a model, with the files next to the weights
  bool is_trained = false;        // the model is a run's: its classes are fixed
  bool is_measured = false;       // uses all of `data` for evaluation
  bool is_predicted = false;      // is_measured, and the rows need no labels but must all be usable
};

/// How to open the data of a family's networks.
struct NetworkDataKind {
  std::string family;  // a ModelFamily's name
  /// Throws UsageError if a file is missing or is not used; MissingInput, DataError.
  std::function<std::unique_ptr<NetworkData>(const NetworkDataSource& source)> open;
};
using NetworkDataKinds = std::vector<NetworkDataKind>;

/// Returns the data kinds of this build's families that are not language models.
const NetworkDataKinds& network_data_kinds();

/// Opens the data. Throws UsageError if the family has none, otherwise like NetworkDataKind::open.
std::unique_ptr<NetworkData> opened_data(const NetworkDataSource& source,
                                         const NetworkDataKinds& kinds = network_data_kinds());

/// Returns whether a folder has subfolders with images, one per class, and no row files.
bool is_folder_of_classes(const std::filesystem::path& path);

/// Valid range of a tensor's values, both ends included.
struct IntegerRange {
  std::string name;  // name of the tensor
  std::int64_t low = 0, high = 0;
};

/// Opens a folder source.data of .npy arrays: NAME.npy with shape (examples, …) for each tensor of
/// `form`, a batch of one example. Whole-number targets may have any dtype. Reads everything into
/// memory. Throws MissingInput, DataError if an array has a wrong shape or number of examples, or a
/// number that is not finite, or a target that is not whole or is outside of `ranges`.
std::unique_ptr<NetworkData> array_data(const NetworkDataSource& source, const Batch& form,
                                        const std::vector<IntegerRange>& ranges = {});

/// Opens images with classes for a ViT. Throws UsageError without a row file; MissingInput;
/// DataError if no row is usable or the model's folder processes images to another size.
std::unique_ptr<NetworkData> open_pictures(const NetworkDataSource& source);

/// Opens windows of the table source.data, with the columns of data.columns. Throws UsageError
/// without a table, ConfigError, MissingInput, DataError.
std::unique_ptr<NetworkData> series_data(const NetworkDataSource& source);

/// Examples drawn from the seed, numbered from 0; validation uses numbers that no run trains on.
class SyntheticData final : public NetworkData {
 public:
  /// The total mean loss is the sum of the set's losses.
  SyntheticData(std::unique_ptr<const SyntheticSet> set, std::string description,
                std::int64_t held_out)
      : set_(std::move(set)), description_(std::move(description)), held_out_(held_out) {}
  std::string description() const override { return description_; }
  DatasetPart training(const HybridTrainerConfig&) const override { return set_; }
  DatasetPart validation(const HybridTrainerConfig& config) const override;
  std::optional<double> best_loss(const HybridTrainerConfig& config) const override;

 private:
  std::shared_ptr<const SyntheticSet> set_;
  std::string description_;
  std::int64_t held_out_;  // number of validation examples
};

/// Opens scenes drawn from the seed, or array_data if source.data is given.
std::unique_ptr<NetworkData> trident_data(const NetworkDataSource& source);

}  // namespace hybrid_trainer
