#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "hybrid_trainer/io/safetensors.h"
#include "hybrid_trainer/models/language_model.h"
#include "src/hugging_face/adapter_config.h"

namespace hybrid_trainer {

/// An open folder of PEFT: what its configuration says, and which of the base's modules its tensors
/// belong to. Names of modules and weights are those of the base's folder.
class AdapterContents {
 public:
  /// Throws MissingInput, and DataError where a tensor belongs to no module that the configuration
  /// tells of, or is of another rank.
  explicit AdapterContents(const std::filesystem::path& folder);

  const AdapterConfig& config() const { return config_; }
  const SafetensorsFile& file() const { return file_; }
  /// Of each linear map with an adapter, by its module.
  const std::map<std::string, std::int64_t>& ranks() const { return ranks_; }

  /// Of all experts of a layer together (see fused_adapters.h), likewise.
  const std::map<std::string, std::int64_t>& fused() const { return fused_; }

  /// On B·A of one of those.
  double scale_of_fused(const std::string& module) const;

  /// Weights that are held whole, and those of embeddings and head, to which a product is added.
  std::set<std::string> weights_beside() const;
  /// Rows of those that are held whole.
  std::map<std::string, std::int64_t> rows_beside() const;
  /// Whether a tensor of the file belongs to one of them.
  bool is_beside(const std::string& tensor) const { return beside_.contains(tensor); }
  /// Rows of the token table, if that is held whole; else 0.
  std::int64_t vocabulary() const;
  /// Whether head and token table are to be two weights, though the base has one.
  bool unties_head() const;
  /// Puts what the folder has of weights_beside() into `values` (rows, columns) f32 on the host, which
  /// holds the base's weight of that name.
  void change(const std::string& weight, const Tensor& values, const Stream& host) const;
  /// A tensor of the file in f32. Throws DataError where it is missing or of another shape.
  Tensor load(const std::string& name, const Shape& shape, const Stream& host) const;

 private:
  std::int64_t rank_of_experts(const std::string& module, const SafetensorsEntry& entry) const;
  /// What its rank and scale go by: the name of the parameter, "….experts.gate_up_proj".
  std::string parameter_of_experts(const std::string& module) const;
  void sort_tensor(const SafetensorsEntry& entry);
  void add_beside(std::set<std::string>& modules, const std::string& module, const char* a,
                  const char* b);
  void add_product(const std::string& module, const Tensor& values, const Stream& host) const;
  bool head_follows_table() const;

  AdapterConfig config_;
  SafetensorsFile file_;
  std::map<std::string, std::int64_t> ranks_, fused_;
  std::map<std::string, std::string> whole_;  // tensor in the file, by the weight
  std::set<std::string> embeddings_, heads_;  // modules with a product
  std::string table_;                         // of tokens, among the embeddings
  std::set<std::string> beside_;              // tensors of the file
};

}  // namespace hybrid_trainer
