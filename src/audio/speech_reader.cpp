#include "hybrid_trainer/audio/speech_reader.h"

#include <utility>

#include "hybrid_trainer/audio/wav_file.h"
#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::vector<float> SpeechReader::read(const FilePart& path) {
  Sound sound = read_wav(path);
  if (sound.rate == kSpeechRate) return std::move(sound.samples);
  constexpr std::size_t kMostFilters = 4;  // of up to 32 MB
  if (filters_.size() == kMostFilters && !filters_.contains(sound.rate)) filters_.clear();
  try {
    return filters_.try_emplace(sound.rate, sound.rate, kSpeechRate)
        .first->second.of(sound.samples);
  } catch (const DataError& error) {
    throw DataError(concat(path.native(), ": ", error.what()));
  }
}

}  // namespace hybrid_trainer
