#pragma once

#include <filesystem>

#include "hybrid_trainer/run_folder/run_files.h"

namespace hybrid_trainer {

/// A file beside a GGUF file, by which Ollama makes a model of it: `Modelfile`, or where another
/// model's lies there already, `NAME.Modelfile` beside `NAME.gguf`.
class Modelfile {
 public:
  /// Throws CannotCreate where both names are taken.
  explicit Modelfile(const std::filesystem::path& gguf);

  /// Writes FROM, and by the run's chat template TEMPLATE and PARAMETER stop, where Ollama can express
  /// it; standard error says in one line what was written, or why not. Throws IoError.
  void write(const TrainedRun& run) const;

 private:
  std::filesystem::path gguf_, path_;
};

}  // namespace hybrid_trainer
