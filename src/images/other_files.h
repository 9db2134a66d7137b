#pragma once

#include <string>

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Throws the DataError for a file that is no `wanted` ("picture"): it names what the file is instead,
/// by its first bytes, and how to convert it.
[[noreturn]] void refuse_other_file(const InputFile& file, const std::string& wanted);

}  // namespace hybrid_trainer
