#pragma once

#include "hybrid_trainer/models/language_model.h"
#include "src/files/safetensors.h"
#include "src/model_files/adapters/adapter_config.h"

namespace hybrid_trainer {

/// What all names of tensors in a folder of PEFT begin with.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

/// A tensor of an adapter's part under its name in the file, as rows of the weight here.
struct AdapterTensor {
  enum class Matrix { kA, kB, kMagnitudes };
  std::string name{}, module{};
  Matrix matrix = Matrix::kA;
  Parameter* parameter = nullptr;
  std::int64_t first_row = 0, rows = 0;
  double scale = 1;   // of B·A here
  RowGroups order{};  // of these rows; A has one order
  std::int64_t rank = 0;
  /// Of an expert's map: which of how many it is, whether it is the last one of the expert, and the
  /// inputs and outputs of the whole map.
  std::int64_t expert = 0, experts = 1;
  bool is_last = false;
  std::int64_t inputs = 0, outputs = 0;
  /// The file has it among all experts' (see is_fused).
  bool is_fused = false;
};

/// The number of the expert that a module is of, "….experts.3.gate_proj"; -1 of none.
std::int64_t expert_of(const std::string& module);

std::vector<AdapterTensor> tensors_of_adapters(Network& model, std::int64_t experts);

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

  /// Of all experts of a layer together (see is_fused), likewise.
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
  void change(const std::string& weight, const Tensor& values) const;
  /// A tensor of the file in f32. Throws DataError where it is missing or of another shape.
  Tensor load(const std::string& name, const Shape& shape) const;

 private:
  std::int64_t rank_of_experts(const std::string& module, const SafetensorsEntry& entry) const;
  /// What its rank and scale go by: the name of the parameter, "….experts.gate_up_proj".
  std::string parameter_of_experts(const std::string& module) const;
  void sort_tensor(const SafetensorsEntry& entry);
  void add_beside(std::set<std::string>& modules, const std::string& module, const char* a,
                  const char* b);
  void add_product(const std::string& module, const Tensor& values) const;
  bool head_follows_table() const;

  AdapterConfig config_;
  SafetensorsFile file_;
  std::map<std::string, std::int64_t> ranks_, fused_;
  std::map<std::string, std::string> whole_;  // tensor in the file, by the weight
  std::set<std::string> embeddings_, heads_;  // modules with a product
  std::string table_;                         // of tokens, among the embeddings
  std::set<std::string> beside_;              // tensors of the file
};

/// Adapters that PEFT holds of all experts of a layer together: "….experts.base_layer" of gate and up,
/// "….experts" of down. A is (E·r, inputs), the experts one after the other; B is (outputs, r·E), the
/// experts of a number side by side. Source: PEFT 0.21, tuners/lora/layer.py, ParamWrapper.

/// Over transformers 4, Granite's are "….input_linear" and "….output_linear".

/// Whether a module of an adapter's tensor is one of these.
bool is_fused(const std::string& module, const AdapterConfig& config);
/// Whether it is of gates and ups where the folder has both, and not of the last maps.
bool is_of_first(const std::string& module);

/// The module in which the folder has a tensor's expert among others; empty where it has none.
std::string fused_module_of(const AdapterTensor& tensor, const AdapterContents& contents);

/// The expert's own rows of A or B, of as many columns as they are there. Throws DataError where the
/// file's tensors are of other shapes.
Tensor read_expert(const AdapterTensor& tensor, const std::string& module,
                   const AdapterContents& contents);

/// Puts an expert's A or B into the tensor of all of them; `whole` is made by whole_shape.
void write_expert(const Tensor& whole, const AdapterTensor& tensor, const Tensor& values);
Shape whole_shape(const AdapterTensor& tensor);

}  // namespace hybrid_trainer
