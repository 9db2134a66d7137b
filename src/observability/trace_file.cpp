#include "src/observability/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/files/pretty_json.h"

namespace hybrid_trainer {
namespace {

/// The event of one line, which may end in the comma before the next.
std::optional<boost::json::object> event_of(std::string line) {
  while (!line.empty() && (line.back() == ',' || line.back() == '\n')) line.pop_back();
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(line, error);
  if (error || !value.is_object()) return std::nullopt;
  return std::move(value.get_object());
}

std::string text_of(const boost::json::object& event, const char* key) {
  const boost::json::value* const value = event.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

}  // namespace

void TraceFile::Open::add(const boost::json::object& event) {
  const auto number = [&](const char* key) {
    constexpr std::int64_t kMost = 1'000'000'000'000'000;  // microseconds: 31 years
    const auto found = event.at(key).to_number<std::int64_t>();
    if (found < 0 || found > kMost) throw DataError(concat(key, " is out of range"));
    return found;
  };
  const std::string type = text_of(event, "ph"), name = text_of(event, "name");
  last = std::max(last, number("ts"));
  if (type == "B") phase = name;
  if (type == "E") phase.clear();
  if (type == "b") {
    blocks[number("id")] = {name, narrow<int>(number("pid"))};
    blocks_begun = std::max(blocks_begun, number("id"));
  }
  if (type == "e") blocks.erase(number("id"));
  if (type != "X") return;
  last = std::max(last, number("ts") + number("dur"));
  const std::string of = text_of(event.at("args").as_object(), "phase");
  for (const Phase each : kAllPhases) steps[static_cast<std::size_t>(each)] += of == name_of(each);
}

TraceFile::TraceFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (file_.number() < 0)
    throw CannotCreate(
        concat("cannot open ", path_.string(), " to append: ", std::strerror(errno)));
}

TraceFile::Open TraceFile::cut_after(std::int64_t step) {
  Open open, kept_open;
  std::int64_t end = 0, kept = 0;
  std::ifstream in(path_, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const std::int64_t begin = end;
    end += static_cast<std::int64_t>(line.size()) + 1;
    if (begin == 0 && line == "[") continue;
    const auto event = event_of(line);
    if (!event) break;
    try {
      open.add(*event);
      if (text_of(*event, "ph") != "X") continue;
      if (event->at("args").at("step").to_number<std::int64_t>() > step) break;
    } catch (const std::exception&) {  // of Boost.JSON: the event is none of ours
      break;
    }
    kept = begin + static_cast<std::int64_t>(line.find_last_of('}')) + 1;
    kept_open = open;
  }
  if (::ftruncate(file_.number(), kept) != 0)
    throw IoError(concat("cannot shorten ", path_.string(), ": ", std::strerror(errno)));
  bytes_ = kept;
  return kept_open;
}

void TraceFile::event(const char* type, const std::string& name, int process, std::int64_t at,
                      const boost::json::object& more) {
  boost::json::object event{{"ph", type}, {"name", name}, {"pid", process}, {"ts", at}};
  event.insert(more.begin(), more.end());
  text_ += (is_empty() ? "[\n" : ",\n") + json_line(event);
}

void TraceFile::on_thread(const char* type, const std::string& name, int thread, std::int64_t at,
                          const boost::json::object& more) {
  boost::json::object of_thread{{"tid", thread}};
  of_thread.insert(more.begin(), more.end());
  event(type, name, kTraining, at, of_thread);
}

void TraceFile::slice(const char* type, const Open::Block& block, std::uint64_t number,
                      std::int64_t at, const boost::json::object& more) {
  boost::json::object of_slice{{"cat", "block"}, {"id", number}};
  of_slice.insert(more.begin(), more.end());
  event(type, block.name, block.process, at, of_slice);
}

void TraceFile::close() { text_ += is_empty() ? "[\n]\n" : "\n]\n"; }

void TraceFile::flush() {
  if (text_.empty()) return;
  const ssize_t written = ::write(file_.number(), text_.data(), text_.size());
  if (written != static_cast<ssize_t>(text_.size()))
    throw IoError(concat("cannot write ", path_.string(), ": ",
                         written < 0 ? std::strerror(errno) : "the disk is full"));
  bytes_ += written;
  text_.clear();
}

}  // namespace hybrid_trainer
