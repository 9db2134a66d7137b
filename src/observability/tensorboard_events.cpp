#include "src/observability/tensorboard_events.h"

#include <bit>
#include <cmath>
#include <utility>

#include "hybrid_trainer/files/utf8.h"
#include "src/observability/crc32c.h"
#include "src/observability/protobuf_message.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kWriter = "hybrid_trainer";

/// Field numbers of Event and of what it holds.
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

/// A tensor of one string, which TensorBoard's text plug-in shows.
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
    if (!std::isfinite(value)) return;  // metrics.jsonl has null
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

/// Text that TensorBoard shows as it is: it takes text for Markdown. Protocol buffers hold UTF-8.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : well_formed_utf8(text)) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

}  // namespace

std::string TensorBoardEvents::preface(const std::string& settings) const {
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

std::string TensorBoardEvents::of(const StepRecord& record) {
  if (std::isfinite(record.seconds)) seconds_ += record.seconds;
  SummaryMaker summary;
  summary.number("loss/train", record.loss);
  summary.number("loss/validation", record.validation_loss);
  summary.number("loss/validation_of_average", record.average_validation_loss);
  summary.number("loss/predicted", record.predicted_loss);
  summary.number("learning_rate", record.learning_rate);
  summary.number("gradient_norm", record.gradient_norm);
  summary.number("tokens_per_second", record.tokens_per_second);
  summary.number("memory/device_peak_bytes", static_cast<double>(record.device_memory.peak_total));
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

std::optional<EventFileStart> start_of_events(std::string_view start) {
  constexpr std::size_t kHeader = 12, kTime = 9, kFooter = 4;  // of the time: its key and 8 bytes
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

}  // namespace hybrid_trainer
