#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/models/language_model.h"

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
  /// The file has it among all experts' (see fused_adapters.h).
  bool is_fused = false;
};

/// The number of the expert that a module is of, "….experts.3.gate_proj"; -1 of none.
std::int64_t expert_of(const std::string& module);

std::vector<AdapterTensor> tensors_of_adapters(Network& model, std::int64_t experts);

}  // namespace hybrid_trainer
