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
  std::string name, module;
  Matrix matrix;
  Parameter* parameter;
  std::int64_t first_row, rows;
  double scale;       // of B·A here
  RowGroups order{};  // of these rows; A has one order
};

std::vector<AdapterTensor> tensors_of_adapters(LanguageModel& model);

}  // namespace hybrid_trainer
