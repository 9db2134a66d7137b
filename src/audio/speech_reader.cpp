#include "hybrid_trainer/audio/speech_reader.h"

#include <utility>

#include "hybrid_trainer/audio/wav_file.h"

namespace hybrid_trainer {

std::vector<float> SpeechReader::read(const FilePart& path) {
  Sound sound = read_wav(path);
  if (sound.rate == kSpeechRate) return std::move(sound.samples);
  return filters_.try_emplace(sound.rate, sound.rate, kSpeechRate).first->second.of(sound.samples);
}

}  // namespace hybrid_trainer
