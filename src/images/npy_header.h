#pragma once

#include <string_view>

#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/images/npy_file.h"

namespace hybrid_trainer {

/// The eight bytes by which a .npy file is known are six of these and its version.
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

/// What the file's header says, which is compared with its size. Throws what read_npy_form throws.
NpyForm npy_form_of(const InputFile& file);

}  // namespace hybrid_trainer
