#include "src/observability/tensorboard_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <bit>
#include <boost/crc.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "src/files/output_file.h"
#include "src/files/text.h"
#include "src/observability/jsonl_sink.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;

/// Appends the lowest `count` bytes of a number, least significant first.
void append_little_endian(std::string& text, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFF);
}

/// Builds a message in the wire format of Protocol Buffers field by field.
class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, std::int64_t value) {
    key(field, Wire::kVarint);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  ProtobufMessage& real(int field, double value) {
    key(field, Wire::kFixed64);
    append_little_endian(text_, std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  ProtobufMessage& short_real(int field, float value) {
    key(field, Wire::kFixed32);
    append_little_endian(text_, std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  ProtobufMessage& bytes(int field, std::string_view value) {
    key(field, Wire::kBytes);
    varint(value.size());
    text_.append(value);
    return *this;
  }
  ProtobufMessage& message(int field, const ProtobufMessage& value) {
    return bytes(field, value.text());
  }
  const std::string& text() const { return text_; }

 private:
  enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  void key(int field, Wire wire) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>((value & 0x7F) | 0x80);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

constexpr const char* kWriter = "hybrid_trainer";

/// Field numbers of Event and of its parts.
struct EventField {
  static constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSession = 7,
                       kSource = 10;
};
struct ValueField {
  static constexpr int kTag = 1, kSimple = 2, kTensor = 8, kMetadata = 9;
};

std::uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8;
}

std::string framed(const ProtobufMessage& event) {
  std::string out;
  append_little_endian(out, event.text().size(), 8);
  append_little_endian(out, masked_checksum(out), 4);
  out += event.text();
  append_little_endian(out, masked_checksum(event.text()), 4);
  return out;
}

/// Returns a tensor of one string, which TensorBoard's text plug-in shows.
ProtobufMessage text_value(const char* tag, const std::string& text) {
  constexpr std::int64_t kStringType = 7;
  const auto size = ProtobufMessage().integer(1, 1);
  const auto shape = ProtobufMessage().message(2, size);
  const auto plugin = ProtobufMessage().bytes(1, "text");
  return ProtobufMessage()
      .bytes(ValueField::kTag, tag)
      .message(ValueField::kTensor,
               ProtobufMessage().integer(1, kStringType).message(2, shape).bytes(8, text))
      .message(ValueField::kMetadata, ProtobufMessage().message(1, plugin));
}

class SummaryMaker {
 public:
  void number(const char* tag, double value) {
    if (!std::isfinite(value)) return;  // no event; metrics.jsonl has null
    summary_.message(1, ProtobufMessage()
                            .bytes(ValueField::kTag, tag)
                            .short_real(ValueField::kSimple, static_cast<float>(value)));
  }
  void number(const char* tag, const std::optional<double>& value) {
    if (value) number(tag, *value);
  }
  void text(const char* tag, const std::string& text) {
    if (!text.empty()) summary_.message(1, text_value(tag, text));
  }
  const ProtobufMessage& summary() const { return summary_; }

 private:
  ProtobufMessage summary_;
};

ProtobufMessage event_at(double wall_time, std::int64_t step) {
  ProtobufMessage event;
  event.real(EventField::kWallTime, wall_time);
  if (step != 0) event.integer(EventField::kStep, step);
  return event;
}

/// Formats text as Markdown code, which TensorBoard shows unchanged. The result is valid UTF-8.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : well_formed_utf8(text)) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> sum;
  sum.process_bytes(bytes.data(), bytes.size());
  return sum.checksum();
}

/// Converts a run's records to records of a TensorBoard event file. Each has a length and an event,
/// both followed by their masked CRC-32C. The event is a message of
/// tensorflow/core/util/event.proto.
class TensorBoardEvents {
 public:
  explicit TensorBoardEvents(double begin) : begin_(begin) {}
  double begin() const { return begin_; }
  /// Returns a file's start: version, an event that makes readers discard earlier data, settings.
  std::string preface(const std::string& settings) const {
    constexpr std::int64_t kStart = 1;
    auto version = event_at(begin_, 0);
    version.bytes(EventField::kFileVersion, "brain.Event:2")
        .message(EventField::kSource, ProtobufMessage().bytes(1, kWriter));
    auto restart = event_at(begin_, 0);
    restart.message(EventField::kSession, ProtobufMessage().integer(1, kStart));
    SummaryMaker summary;
    summary.text("configuration", as_code(settings));
    auto configuration = event_at(begin_, 0);
    configuration.message(EventField::kSummary, summary.summary());
    return framed(version) + framed(restart) + framed(configuration);
  }
  /// Returns one event with every number of the record. Its time is the run's start plus the
  /// seconds of all records so far.
  std::string of(const StepRecord& record) {
    if (std::isfinite(record.seconds)) seconds_ += record.seconds;
    SummaryMaker summary;
    summary.number("loss/train", record.loss);
    summary.number("loss/validation", record.validation_loss);
    summary.number("loss/validation_of_average", record.average_validation_loss);
    summary.number("loss/predicted", record.predicted_loss);
    summary.number("learning_rate", record.learning_rate);
    summary.number("gradient_norm", record.gradient_norm);
    summary.number("tokens_per_second", record.tokens_per_second);
    summary.number("memory/device_peak_bytes",
                   static_cast<double>(record.device_memory.peak_total));
    summary.number("memory/host_bytes", static_cast<double>(record.host_memory.live_total));
    summary.number("phase", static_cast<double>(record.phase));
    summary.number("predictions/kept_fraction", record.kept_fraction);
    summary.number("predictions/confidence", record.confidence);
    summary.number("cost", record.cost);
    if (!record.event.empty()) summary.text("decisions", as_code(record.event));
    auto event = event_at(begin_ + seconds_, record.step);
    event.message(EventField::kSummary, summary.summary());
    return framed(event);
  }

 private:
  double begin_;
  double seconds_ = 0;
};

namespace {

struct EventFileStart {
  double begin = 0;       // start of the run
  std::size_t bytes = 0;  // size of the start, which alone is a valid file without steps
};

/// Parses the start of a file; nullopt if TensorBoardEvents did not write it.
std::optional<EventFileStart> start_of_events(std::string_view start) {
  constexpr std::size_t kHeader = 12, kTime = 9, kFooter = 4;  // kTime: key and 8 bytes of the time
  if (start.size() < kHeader + kTime) return {};
  std::uint64_t length = 0, time = 0;
  for (std::size_t i = 8; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(start[i]);
    time = time << 8 | static_cast<unsigned char>(start[kHeader + 1 + i]);
  }
  const std::string_view event = start.substr(kHeader, length);
  const char key = static_cast<char>(EventField::kWallTime << 3 | 1);
  if (event.size() < length || event.size() < kTime || event.front() != key ||
      event.find(kWriter) == event.npos)
    return {};
  return EventFileStart{std::bit_cast<double>(time), kHeader + event.size() + kFooter};
}

constexpr const char* kNameStart = "events.out.tfevents.";
constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
/// Seconds for which a file without steps is kept. If it were removed earlier, TensorBoard would
/// wait for it forever.
constexpr double kSecondsOfCutFiles = 600;

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

struct EventFile {
  fs::path path;
  EventFileStart start;
  std::int64_t made_at = 0;  // time in its name, in seconds
};

/// Returns the event files in the folder that this program wrote.
std::vector<EventFile> event_files_in(const fs::path& folder) {
  std::vector<EventFile> files;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kNameStart)) continue;
    std::string start(256, '\0');
    std::ifstream in(entry.path(), std::ios::binary);
    in.read(start.data(), static_cast<std::streamsize>(start.size()));
    start.resize(static_cast<std::size_t>(in.gcount()));
    const auto found = start_of_events(start);
    if (!found) continue;
    std::uint32_t made_at = 0;  // also 0 if the name has no such number
    std::from_chars(name.data() + std::strlen(kNameStart), name.data() + name.size(), made_at);
    files.push_back({entry.path(), *found, made_at});
  }
  return files;
}

/// Removes all steps from a file; the file itself is removed later. Throws IoError.
void cut(const EventFile& file) {
  struct stat found {};
  if (::stat(file.path.c_str(), &found) != 0) return;
  const bool is_cut = found.st_size == static_cast<off_t>(file.start.bytes);
  if (is_cut && now() - static_cast<double>(found.st_mtim.tv_sec) > kSecondsOfCutFiles) {
    fs::remove(file.path);
  } else if (!is_cut && ::truncate(file.path.c_str(), static_cast<off_t>(file.start.bytes)) != 0) {
    throw IoError(system_problem(file.path, "cannot remove its steps"));
  }
}

/// Returns the start of a run without event files, from its last record.
double begin_from_records(const fs::path& metrics) {
  double seconds = 0;
  std::int64_t records = 0;
  for_each_record(metrics, [&](const StepRecord& record) {
    if (std::isfinite(record.seconds)) seconds += record.seconds;
    ++records;
  });
  struct stat found {};
  if (records == 0 || ::stat(metrics.c_str(), &found) != 0) return now();
  return static_cast<double>(found.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(found.st_mtim.tv_nsec) - seconds;
}

/// Returns a name that follows `others`, because TensorBoard reads files in alphabetical order.
std::string name_after(const std::vector<EventFile>& others) {
  auto seconds = static_cast<std::int64_t>(now());
  for (const EventFile& other : others) seconds = std::max(seconds, other.made_at + 1);
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0 || host[0] == 0) std::strcpy(host, "localhost");
  return concat(kNameStart, seconds, ".", host, ".", ::getpid(), ".0");
}

std::int64_t write_events(const fs::path& path, TensorBoardEvents& events, const fs::path& metrics,
                          const std::string& settings) {
  std::int64_t records = 0;
  replace_file(path, [&](OutputFile& file) {
    std::string text = events.preface(settings);
    for_each_record(metrics, [&](const StepRecord& record) {
      text += events.of(record);
      ++records;
      if (text.size() < kBytesAtOnce) return;
      file.write(text);
      text.clear();
    });
    file.write(text);
  });
  return records;
}

}  // namespace

TensorBoardSink::TensorBoardSink(fs::path folder, fs::path metrics, std::string settings)
    : folder_(std::move(folder)), metrics_(std::move(metrics)), settings_(std::move(settings)) {
  rewrite_file();
}

TensorBoardSink::~TensorBoardSink() = default;

void TensorBoardSink::rewrite_file() {
  make_folders(folder_);
  const std::vector<EventFile> before = event_files_in(folder_);
  const double begin = before.empty() ? begin_from_records(metrics_) : before.front().start.begin;
  events_ = std::make_unique<TensorBoardEvents>(begin);
  path_ = folder_ / name_after(before);
  write_events(path_, *events_, metrics_, settings_);
  file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (file_.number() < 0) throw IoError(system_problem(path_, "cannot open it to append"));
  for (const EventFile& file : before) cut(file);
}

void TensorBoardSink::write(const StepRecord& record) {
  const std::string event = events_->of(record);
  const off_t before = ::lseek(file_.number(), 0, SEEK_END);
  const ssize_t written = ::write(file_.number(), event.data(), event.size());
  if (written == static_cast<ssize_t>(event.size())) return;
  if (written >= 0) errno = ENOSPC;
  const std::string problem = system_problem(path_, "writing failed");
  if (written > 0 && before >= 0 && ::ftruncate(file_.number(), before) != 0)
    throw IoError(problem + "; its last event is incomplete");
  throw IoError(problem);
}

std::int64_t write_tensorboard(const fs::path& folder, const fs::path& metrics,
                               const std::string& settings) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    const std::string name = entry.path().filename().string();
    if (name.find("tfevents") != name.npos)
      throw CannotCreate(concat(folder.string(), ": contains event files already (", name,
                                "), so steps would occur twice; give an empty or a new folder"));
  }
  TensorBoardEvents events(begin_from_records(metrics));
  make_folders(folder);
  return write_events(folder / name_after({}), events, metrics, settings);
}

}  // namespace hybrid_trainer
