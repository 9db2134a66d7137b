#pragma once

#include <filesystem>
#include <functional>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/nn/network.h"
#include "src/data/synthetic/synthetic_set.h"

namespace hybrid_trainer {

/// What was read of a class, tensor or column, or of one example, for people: names and what they are.
using DataFacts = std::vector<std::pair<std::string, std::string>>;

/// What a network learns from and is measured on: examples with the tensors that its family reads, as
/// Network::empty_batch has them.
class NetworkData {
 public:
  virtual ~NetworkData() = default;
  /// For people: "drawn from the seed: falling bodies, 16 frames each".
  virtual std::string description() const = 0;
  /// Examples to train on.
  virtual DatasetPart training(const HybridTrainerConfig& config) const = 0;
  /// Examples to measure on, which `training` does not have.
  virtual DatasetPart validation(const HybridTrainerConfig& config) const = 0;
  /// The lowest mean loss that any network can reach on examples such as `validation` has, where it can
  /// be computed.
  virtual std::optional<double> best_loss(const HybridTrainerConfig& /*config*/) const {
    return {};
  }
  /// The config with what the data say of the model, such as the number of classes; by default as it
  /// is. Throws ConfigError, DataError where both do not go together.
  virtual HybridTrainerConfig completed(HybridTrainerConfig config) const { return config; }
  /// Of the content of files, which a resumed run compares; empty where data are drawn from the seed.
  virtual std::string checksum() const { return ""; }
  /// Examples in an epoch; 0 where data are drawn from the seed.
  virtual std::int64_t examples() const { return 0; }
  /// What the data were read as. `config`: completed.
  virtual DataFacts contents(const HybridTrainerConfig& /*config*/) const { return {}; }
  /// What one example teaches: that of this line or row of a file, from 1, of arrays that with this number.
  /// Throws DataError where it gives none.
  virtual DataFacts example(std::int64_t number, const HybridTrainerConfig& config) const;
  /// Measures in the units of the data, where the network learns other ones; by default as they are.
  virtual std::vector<Measure> in_own_units(std::vector<Measure> measures,
                                            const HybridTrainerConfig& /*config*/) const {
    return measures;
  }
  /// What the user should know of the data before the first step.
  virtual std::vector<std::string> notes() const { return {}; }
  /// Writes what the run's folder shall hold of the data, so that it can be used without the folder that it
  /// began with. Throws IoError.
  virtual void write_files(const std::filesystem::path& /*run*/) const {}
};

/// What data are opened for.
struct NetworkDataSource {
  const HybridTrainerConfig& config;
  std::filesystem::path data{};        // what --data gave, or empty
  std::filesystem::path validation{};  // likewise; empty: some of `data` is held back
  std::filesystem::path model{};  // folder of what lies beside the weights: of a run or a model
  bool is_trained = false;        // the model is a run's: what it tells apart stays
  bool is_measured = false;       // on all of `data`
};

/// Where the data of a family's networks come from.
struct NetworkDataKind {
  std::string family;  // a ModelFamily's name
  /// Throws UsageError where the family wants a file and there is none, or makes its own data and there
  /// is one; MissingInput, DataError.
  std::function<std::unique_ptr<NetworkData>(const NetworkDataSource& source)> open;
};
using NetworkDataKinds = std::vector<NetworkDataKind>;

/// Those of this build's families that are no language models.
const NetworkDataKinds& network_data_kinds();

/// The data of the config's family. Throws UsageError where none are known, and as NetworkDataKind::open.
std::unique_ptr<NetworkData> opened_data(const NetworkDataSource& source,
                                         const NetworkDataKinds& kinds = network_data_kinds());

/// Whether a folder has folders with pictures, each of which is a class, and no files of rows.
bool is_folder_of_classes(const std::filesystem::path& path);

/// Between which numbers those of a tensor must lie, both included.
struct WholeRange {
  std::string name;  // of the tensor
  std::int64_t low = 0, high = 0;
};

/// Examples in the folder source.data of .npy arrays: NAME.npy, (examples, …), for each tensor of `form`, a batch of one
/// example. Targets that are whole numbers may be of any dtype. All is read into memory. Throws
/// MissingInput, DataError where an array has another shape or number of examples than it should, or
/// numbers that are not finite, or not whole or out of `ranges` where they must be.
std::unique_ptr<NetworkData> array_data(const NetworkDataSource& source, const Batch& form,
                                        const std::vector<WholeRange>& ranges = {});

/// Pictures with classes, for a ViT. Throws UsageError without a file of rows; MissingInput; DataError
/// where no row can be used, or the model's folder makes pictures of another size than the model sees.
std::unique_ptr<NetworkData> open_pictures(const NetworkDataSource& source);

/// Windows of the table at source.data, whose columns data.columns names. Throws UsageError where no
/// table is given, ConfigError, MissingInput, DataError.
std::unique_ptr<NetworkData> series_data(const NetworkDataSource& source);

/// A set of examples that the seed draws. Training has number 0 and on, validation numbers that no run
/// trains on.
class SyntheticData final : public NetworkData {
 public:
  /// The mean loss of the whole is the sum of the set's losses.
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
  std::int64_t held_out_;  // examples
};

/// Scenes that the seed draws, or array_data where source.data is given.
std::unique_ptr<NetworkData> trident_data(const NetworkDataSource& source);

}  // namespace hybrid_trainer
