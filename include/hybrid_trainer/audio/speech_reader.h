#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "hybrid_trainer/audio/resampling.h"
#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Reads WAV files of any rate as 16,000 samples a second. It keeps the filter of each rate that it
/// met, and serves one thread.
class SpeechReader {
 public:
  /// Throws what read_wav throws.
  std::vector<float> read(const FilePart& path);

 private:
  std::map<std::int64_t, Resampling> filters_;  // by the rate of the file
};

}  // namespace hybrid_trainer
