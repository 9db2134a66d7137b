#pragma once

#include <string>
#include <utility>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// The name of a module or parameter, here and in a Hugging Face folder.
struct ModuleName {
  ModuleName(const char* both) : ModuleName(std::string(both)) {}
  ModuleName(const std::string& both) : here(both), in_files(both) {}
  ModuleName(std::string here_, std::string in_files_)
      : here(std::move(here_)), in_files(std::move(in_files_)) {}
  std::string here, in_files;
};

/// The name of a part of a module: "h.0" / "attn" is "h.0.attn".
inline ModuleName operator/(const ModuleName& whole, const ModuleName& part) {
  return {whole.here + "." + part.here, whole.in_files + "." + part.in_files};
}

/// How a parameter, or consecutive rows of one, is stored in a Hugging Face folder.
struct FileTensor {
  std::string name;
  Shape shape;              // there
  bool transposed = false;  // (inputs, outputs) there, (outputs, inputs) here
  bool prefixed = true;     // bears the prefix of the folder's layout; an untied head does not
  std::int64_t rows() const { return shape[transposed ? 1 : 0]; }  // here
};

}  // namespace hybrid_trainer
