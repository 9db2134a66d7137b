#include "src/audio/sound_kinds.h"

#include <cstdio>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/shell_word.h"
#include "hybrid_trainer/files/text_file.h"

namespace hybrid_trainer {
namespace {

using namespace std::string_view_literals;

/// A kind of file by some of its first bytes.
struct SoundKind {
  std::size_t at;
  std::string_view bytes;
  const char* name;
};

constexpr SoundKind kSoundKinds[] = {
    {0, "fLaC"sv, "a FLAC file"},
    {0, "OggS"sv, "an Ogg file (Vorbis or Opus)"},
    {0, "ID3"sv, "an MP3 file"},
    {0, "\xFF\xFB"sv, "an MP3 file"},
    {0, "\xFF\xFA"sv, "an MP3 file"},
    {0, "\xFF\xF3"sv, "an MP3 file"},
    {0, "\xFF\xF2"sv, "an MP3 file"},
    {0, "\xFF\xF1"sv, "an AAC file"},
    {0, "\xFF\xF9"sv, "an AAC file"},
    {4, "ftyp"sv, "an M4A or MP4 file"},
    {0, "FORM"sv, "an AIFF file"},
    {0, ".snd"sv, "an AU file"},
    {0, "caff"sv, "a Core Audio file"},
    {0, "RIFX"sv, "a WAV file with bytes in the other order (RIFX)"},
    {0, "riff"sv, "a Wave64 file"},
    {0, "wvpk"sv, "a WavPack file"},
    {0, "MAC "sv, "a Monkey's Audio file"},
    {0, "#!AMR"sv, "an AMR file"},
    {0, "\x30\x26\xB2\x75"sv, "a WMA file"},
    {0, "\x1A\x45\xDF\xA3"sv, "a WebM or Matroska file"},
    {8, "AVI "sv, "an AVI file"},
};

struct WavFormat {
  std::uint32_t code;
  const char* name;
};

constexpr WavFormat kCompressedFormats[] = {
    {0x0002, "Microsoft ADPCM"},
    {0x0006, "A-law"},
    {0x0007, "µ-law"},
    {0x0011, "IMA ADPCM"},
    {0x0014, "G.723 ADPCM"},
    {0x0031, "GSM 6.10"},
    {0x0040, "G.721 ADPCM"},
    {0x0045, "G.726 ADPCM"},
    {0x0050, "MPEG"},
    {0x0055, "MP3"},
    {0x0064, "G.726 ADPCM"},
    {0x00FF, "AAC"},
    {0x0092, "AC-3"},
    {0x0160, "Windows Media Audio"},
    {0x0161, "Windows Media Audio"},
    {0x0162, "Windows Media Audio"},
    {0x1610, "AAC"},
    {0x2000, "AC-3"},
    {0x674F, "Vorbis"},
    {0x704F, "Opus"},
    {0xF1AC, "FLAC"},
};

}  // namespace

std::string way_to_wav(const std::filesystem::path& path) {
  return concat("convert it first: ffmpeg -i ", shell_path(path), " -ar 16000 -ac 1 ",
                shell_path(path.stem().native() + "-16k.wav"));
}

void refuse_other_sound(std::string_view begin, const std::filesystem::path& path) {
  const bool is_wav =
      begin.starts_with("RIFF"sv) || begin.starts_with("RF64"sv) || begin.starts_with("BW64"sv);
  if (is_wav && begin.size() >= 12 && begin.substr(8, 4) == "WAVE"sv) return;
  for (const SoundKind& kind : kSoundKinds)
    if (begin.size() > kind.at && begin.substr(kind.at).starts_with(kind.bytes))
      throw DataError(concat(path.native(), ": is ", kind.name, ", not WAV; ", way_to_wav(path)));
  refuse_container(begin, path);
  if (is_wav && begin.size() < 12)
    throw DataError(concat(path.native(),
                           ": is truncated: it ends within the header of a WAV file "
                           "after ",
                           begin.size(), " bytes; copy it again"));
  throw DataError(concat(path.native(),
                         ": is not a WAV file: it does not begin with RIFF and WAVE; "
                         "if it is sound, ",
                         way_to_wav(path)));
}

std::string name_of_wav_format(std::uint32_t code) {
  for (const WavFormat& format : kCompressedFormats)
    if (format.code == code) return format.name;
  char text[24];
  std::snprintf(text, sizeof text, "format 0x%04X", code);
  return text;
}

}  // namespace hybrid_trainer
