#include "src/data/examples/clip_rows.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/audio/sound.h"
#include "src/data/tables/row_files.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kWantedClip = R"(want {"audio": "a.wav", "text": "…", "language": "en"})";
const std::vector<std::string> kClipKeys{"audio", "text", "language"};

std::string text_of_clip(const json::object& row) {
  const json::value* value = value_in_row(row, "text");
  if (value == nullptr) throw DataError(concat("it has no \"text\"; ", kWantedClip));
  if (!value->is_string()) throw DataError(concat("\"text\" is no text; ", kWantedClip));
  std::string text(value->get_string());
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    throw DataError("\"text\" is empty; write what is said in the clip");
  return text;
}

std::string language_of_clip(const json::object& row) {
  const json::value* value = value_in_row(row, "language");
  if (value == nullptr) return "";
  if (!value->is_string())
    throw DataError(R"("language" is no text; want a code such as "en", or leave it out)");
  return std::string(value->get_string());
}

constexpr RowFileWords kWords{
    .holds = "holds the sound as text; write it to WAV files and give their paths",
    .file = "a WAV file",
    .wanted = kWantedClip};

/// Reads files of clips one behind the other.
class ClipReader {
 public:
  explicit ClipReader(const ClipFormat& format) : format_(format) {}

  void read(const std::filesystem::path& path) {
    clips_.files.push_back({path, {}});
    const TableVisitor visitor{
        [&](std::int64_t line, const json::object& row, const WideIntegers&) {
          try {
            add(line, row);
          } catch (const DataError& error) {
            refuse(line, error.what());
          } catch (const MissingInput& error) {
            refuse(line, error.what());
          }
        },
        [&](std::int64_t line, const std::string& reason) { refuse(line, reason); }};
    clips_.files.back().form = visit_rows(path,
                                          {.columns = format_.columns,
                                           .wanted = kClipKeys,
                                           .called = format_.called,
                                           .takes_bytes = true},
                                          visitor);
  }

  ClipRows take() {
    for (const ClipRows::File& file : clips_.files)
      for (const std::string& name : file.form.unread) unread_.insert(concat('"', name, '"'));
    if (!unread_.empty())
      warn(name_of(clips_.files.front().path), concat("these keys of clips have no effect here: ",
                                                      join({unread_.begin(), unread_.end()})));
    return std::move(clips_);
  }

 private:
  std::string name_of(const std::filesystem::path& path) const {
    return format_.called.empty() ? path.string() : format_.called;
  }

  void add(std::int64_t line, const json::object& row) {
    for (const auto& member : row)
      if (std::ranges::find(kClipKeys, std::string_view(member.key())) == kClipKeys.end())
        unread_.insert(concat('"', std::string_view(member.key()), '"'));
    ClipRow clip{.text = text_of_clip(row),
                 .language = language_of_clip(row),
                 .file = clips_.files.size() - 1,
                 .line = line};
    const std::filesystem::path& rows = clips_.files.back().path;
    clip.sound = sounds_.file(row, "audio", kWords, folder_of_rows(rows),
                              concat("row ", line, " of ", name_of(rows)));
    const WavForm form = read_wav_form(clip.sound);
    clip.seconds = form.seconds();
    if (clip.seconds > format_.longest_seconds)
      throw DataError(concat(clip.sound.name, ": takes ", brief(clip.seconds),
                             " s, and a clip may take ", brief(format_.longest_seconds),
                             " s; cut it into shorter ones, each with its text"));
    if (is_floating(form.samples)) read_wav(clip.sound);  // throws if a sample is not finite
    clips_.rows.push_back(std::move(clip));
  }

  /// A file that is something else is not read to its end.
  void refuse(std::int64_t line, const std::string& reason) {
    constexpr std::size_t kManyRefused = 1000;
    clips_.refused.push_back({line, reason, clips_.files.size() - 1});
    if (!clips_.rows.empty() || clips_.refused.size() < kManyRefused) return;
    throw DataError(concat(name_of(clips_.files.back().path), ": none of its first ", kManyRefused,
                           " rows can be used; ", clips_.place(0, clips_.refused[0].line, false),
                           ": ", clips_.refused[0].reason));
  }

  const ClipFormat& format_;
  ClipRows clips_;
  FilesInRows sounds_;
  std::set<std::string> unread_;
};

}  // namespace

std::string ClipRows::place(std::size_t file, std::int64_t line, bool names_file) const {
  const File& of = files.at(file);
  const bool is_named = names_file || files.size() > 1;
  return concat(of.form.unit(), " ", line, is_named ? " of " + of.path.string() : "");
}

ClipRows read_clip_rows(const std::filesystem::path& path, const ClipFormat& format) {
  ClipReader reader(format);
  for (const std::filesystem::path& file : row_files(path, format.split)) reader.read(file);
  ClipRows clips = reader.take();
  if (clips.rows.empty() && clips.refused.empty())
    throw DataError(
        concat(format.called.empty() ? path.string() : format.called, ": holds no clips"));
  return clips;
}

}  // namespace hybrid_trainer
