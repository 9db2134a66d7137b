#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// "convert it first: ffmpeg -i … out.wav", for this file.
std::string way_to_wav(const std::filesystem::path& path);

/// Throws DataError where the first bytes of `path` are not those of a WAV file: it names the kind of
/// file, where they tell it, and how to convert it.
void refuse_other_sound(std::string_view begin, const std::filesystem::path& path);

/// Name of a WAV file's format of samples that is not read: "µ-law", "MP3"; "format 0x1234" where it
/// is not known.
std::string name_of_wav_format(std::uint32_t code);

}  // namespace hybrid_trainer
