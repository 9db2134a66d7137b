#pragma once

#include "hybrid_trainer/audio/wav_file.h"
#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// The form of an open WAV file. Throws DataError, IoError.
WavForm wav_form_of(const InputFile& file);

}  // namespace hybrid_trainer
