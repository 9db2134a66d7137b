#pragma once

#include "hybrid_trainer/models/language_model.h"
#include "src/files/safetensors.h"
#include "src/model_files/adapters/adapter_config.h"

namespace hybrid_trainer {

/// Prefix of all tensor names in a PEFT folder.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

/// A tensor of an adapter: its name in the file, and the rows that it fills in a parameter.
struct AdapterTensor {
  enum class Matrix { kA, kB, kMagnitudes };
  std::string name{}, module{};
  Matrix matrix = Matrix::kA;
  Parameter* parameter = nullptr;
  std::int64_t first_row = 0, rows = 0;
  double scale = 1;   // scale of B·A in the model
  RowGroups order{};  // order of these rows in the file; unchanged for A
  std::int64_t rank = 0;
  /// Members for a tensor of an expert's map: the expert's index, the number of experts, whether
  /// the map is the expert's last one, and the inputs and outputs of the whole map.
  std::int64_t expert = 0, experts = 1;
  bool is_last = false;
  std::int64_t inputs = 0, outputs = 0;
  /// True if the file stacks the tensor with the tensors of all other experts (see is_fused).
  bool is_fused = false;
};

/// Returns the index of a module's expert, 3 for "….experts.3.gate_proj", or -1 without an expert.
std::int64_t expert_of(const std::string& module);

std::vector<AdapterTensor> tensors_of_adapters(Network& model, std::int64_t experts);

/// An open PEFT folder. Uses the names of modules and weights in the base's folder.
class AdapterContents {
 public:
  /// Throws MissingInput; DataError for a tensor with another rank than configured, or without a
  /// configured module.
  explicit AdapterContents(const std::filesystem::path& folder);

  const AdapterConfig& config() const { return config_; }
  const SafetensorsFile& file() const { return file_; }
  const std::map<std::string, std::int64_t>& ranks() const { return ranks_; }

  /// Returns the rank of stacked experts, by module (see is_fused).
  const std::map<std::string, std::int64_t>& fused() const { return fused_; }

  double scale_of_fused(const std::string& module) const;

  /// Returns the weights that the folder replaces, and the embeddings and heads with a product B·A.
  std::set<std::string> extra_weights() const;
  std::map<std::string, std::int64_t> extra_weight_rows() const;
  bool is_extra_weight(const std::string& tensor) const { return extra_weights_.contains(tensor); }
  /// Returns the number of rows of the token table if the folder replaces it; else 0.
  std::int64_t vocabulary() const;
  /// Returns whether head and token table become separate weights although the base ties them.
  bool unties_head() const;
  /// Applies the folder's changes of a weight in extra_weights. `values`: (rows, columns) f32 on
  /// the host, the base's weight before the call.
  void change(const std::string& weight, const Tensor& values) const;
  /// Loads a tensor of the file in f32. Throws DataError if it is missing or has another shape.
  Tensor load(const std::string& name, const Shape& shape) const;

 private:
  std::int64_t rank_of_experts(const std::string& module, const SafetensorsEntry& entry) const;
  /// Returns the parameter whose rank and scale apply to stacked experts: "….experts.gate_up_proj".
  std::string parameter_of_experts(const std::string& module) const;
  void sort_tensor(const SafetensorsEntry& entry);
  void add_extra_weight(std::set<std::string>& modules, const std::string& module, const char* a,
                        const char* b);
  void add_product(const std::string& module, const Tensor& values) const;
  bool head_follows_table() const;

  AdapterConfig config_;
  SafetensorsFile file_;
  std::map<std::string, std::int64_t> ranks_, fused_;
  std::map<std::string, std::string> whole_;  // tensor in the file, by weight
  std::set<std::string> embeddings_, heads_;  // modules with a product B·A
  std::string table_;                         // the token table's module, among the embeddings
  std::set<std::string> extra_weights_;       // tensors of the file
};

/// Adapters of all experts in a layer, stacked by PEFT: "….experts.base_layer" for gate and up,
/// "….experts" for down. A is (E·r, inputs), by expert. B is (outputs, r·E); its columns are sorted
/// by rank index, then by expert. Source: PEFT 0.21, tuners/lora/layer.py, ParamWrapper.

/// Names of Granite's maps in transformers 4: "….input_linear" and "….output_linear".

/// Returns whether a module of an adapter stacks the adapters of all experts.
bool is_fused(const std::string& module, const AdapterConfig& config);
/// Returns whether a stacked module is the gate and up map. Requires that the folder has both maps.
bool is_gate_or_up(const std::string& module);

/// Returns the folder's stacked module that contains a tensor's expert; empty if there is none.
std::string fused_module_of(const AdapterTensor& tensor, const AdapterContents& contents);

/// Reads one expert's rows of A or B, with the file's rank. Throws DataError for other shapes.
Tensor read_expert(const AdapterTensor& tensor, const std::string& module,
                   const AdapterContents& contents);

/// Writes an expert's A or B to the stacked tensor `whole`, which has the shape whole_shape.
void write_expert(const Tensor& whole, const AdapterTensor& tensor, const Tensor& values);
Shape whole_shape(const AdapterTensor& tensor);

}  // namespace hybrid_trainer
