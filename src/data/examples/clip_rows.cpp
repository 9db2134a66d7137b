#include "src/data/examples/clip_rows.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/audio/sound.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kWantedClip = R"(want {"audio": "a.wav", "text": "…", "language": "en"})";
const std::vector<std::string> kClipKeys{"audio", "text", "language"};

std::string text_of_clip(const json::object& row) {
  const json::value* value = value_in_row(row, "text");
  if (value == nullptr) throw DataError(concat("it has no \"text\"; ", kWantedClip));
  if (!value->is_string()) throw DataError(concat("\"text\" is not a string; ", kWantedClip));
  std::string text(value->get_string());
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    throw DataError("\"text\" is empty; want the words spoken in the clip");
  return text;
}

std::string language_of_clip(const json::object& row) {
  const json::value* value = value_in_row(row, "language");
  if (value == nullptr) return "";
  if (!value->is_string())
    throw DataError(R"("language" is not a string; want a code such as "en", or leave it out)");
  return std::string(value->get_string());
}

constexpr RowFileWords kWords{
    .holds = "contains the sound as text; write it to WAV files and give their paths",
    .file = "a WAV file",
    .wanted = kWantedClip};

void check_sound(const FilePart& sound, double longest) {
  const WavForm form = read_wav_form(sound);
  if (form.seconds() > longest)
    throw DataError(concat(sound.name, ": lasts ", brief(form.seconds()), " s, want at most ",
                           brief(longest), " s; cut it into shorter clips, each with its text"));
  if (is_floating(form.samples)) read_wav(sound);  // throws if a sample is not finite
}

}  // namespace

void read_clip_rows(const RowSource& source, double longest_seconds, ReadRows& read,
                    const std::function<void(const ClipRow&)>& use) {
  FilesInRows sounds;
  const auto use_row = [&](const GivenRow& row) {
    ClipRow clip{.text = text_of_clip(row.object),
                 .language = language_of_clip(row.object),
                 .file = row.file,
                 .line = row.line};
    clip.sound = file_in_row(sounds, row, "audio", kWords, read);
    check_sound(clip.sound, longest_seconds);
    use(clip);
  };
  read_rows(source, {.rows = "clips", .keys = kClipKeys, .allows_bytes = true, .use = use_row},
            read);
}

}  // namespace hybrid_trainer
