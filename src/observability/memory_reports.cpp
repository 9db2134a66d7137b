#include "src/observability/memory_reports.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/narrow.h"
#include "src/files/json.h"

namespace hybrid_trainer {

namespace {

/// Parses the event of one line, which may end in the comma before the next.
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

json::object block_json(const MemoryBlock& block) {
  const Shape& shape = block.content.shape;
  json::array sizes;
  for (int i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i]);
  return {{"bytes", block.bytes},
          {"kind", name_of(block.kind)},
          {"label", block.label.data()},
          {"dtype", shape.rank() > 0 ? name_of(block.content.dtype) : ""},
          {"shape", sizes}};
}

}  // namespace

/// A file of trace events, one per line. Not thread-safe.
class TraceFile {
 public:
  static constexpr int kTraining = 1;  // id of the trace's "process" for phases and steps
  static constexpr int kPhaseThread = 1, kStepThread = 2;

  struct Open {
    struct Block {
      std::string name;
      int process;
    };
    std::map<std::int64_t, Block> blocks;  // open slices of blocks, by slice number
    std::int64_t blocks_begun = 0;
    std::string phase;      // open slice of a phase; "" if there is none
    std::int64_t last = 0;  // time of the last event
    std::array<std::int64_t, kPhases> steps{};

    void add(const boost::json::object& event) {
      const auto number = [&](const char* key) {
        constexpr std::int64_t kMax = 1'000'000'000'000'000;  // microseconds: 31 years
        const auto found = event.at(key).to_number<std::int64_t>();
        if (found < 0 || found > kMax) throw DataError(concat(key, " is out of range"));
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
      for (const Phase each : kAllPhases)
        steps[static_cast<std::size_t>(each)] += of == name_of(each);
    }
  };

  explicit TraceFile(std::filesystem::path path);
  /// Removes a damaged end and all events after the step. Returns the slices that are open at this
  /// position. Throws IoError.
  Open cut_after(std::int64_t step) {
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
      } catch (const std::exception&) {  // from Boost.JSON: this program did not write the event
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
  std::int64_t bytes() const { return bytes_; }
  bool is_empty() const { return bytes_ == 0 && text_.empty(); }

  void event(const char* type, const std::string& name, int process, std::int64_t at,
             const boost::json::object& more) {
    boost::json::object event{{"ph", type}, {"name", name}, {"pid", process}, {"ts", at}};
    event.insert(more.begin(), more.end());
    text_ += (is_empty() ? "[\n" : ",\n") + json_line(event);
  }
  void on_thread(const char* type, const std::string& name, int thread, std::int64_t at,
                 const boost::json::object& more = {}) {
    boost::json::object of_thread{{"tid", thread}};
    of_thread.insert(more.begin(), more.end());
    event(type, name, kTraining, at, of_thread);
  }
  void slice(const char* type, const Open::Block& block, std::uint64_t number, std::int64_t at,
             const boost::json::object& more = {}) {
    boost::json::object of_slice{{"cat", "block"}, {"id", number}};
    of_slice.insert(more.begin(), more.end());
    event(type, block.name, block.process, at, of_slice);
  }
  void close() { text_ += is_empty() ? "[\n]\n" : "\n]\n"; }
  /// Writes all added text with one write(2). Throws IoError.
  void flush() {
    if (text_.empty()) return;
    const ssize_t written = ::write(file_.number(), text_.data(), text_.size());
    if (written != static_cast<ssize_t>(text_.size()))
      throw IoError(concat("cannot write ", path_.string(), ": ",
                           written < 0 ? std::strerror(errno) : "the disk is full"));
    bytes_ += written;
    text_.clear();
  }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::string text_;  // text that is not written yet
  std::int64_t bytes_ = 0;
};

TraceFile::TraceFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (file_.number() < 0)
    throw CannotCreate(
        concat("cannot open ", path_.string(), " to append: ", std::strerror(errno)));
}

class MemoryTimeline::PoolTrack final : public MemoryListener {
 public:
  PoolTrack(MemoryTimeline& timeline, std::shared_ptr<MemoryPool> pool, int process)
      : timeline_(timeline), pool_(std::move(pool)), process_(process) {}
  ~PoolTrack() override { pool_->set_listener(nullptr); }
  const std::string& name() const { return pool_->name(); }
  int process() const { return process_; }

  void begin() {
    live_ = {};
    pool_->set_listener(this);
  }
  void end() {
    pool_->set_listener(nullptr);
    const std::lock_guard lock(timeline_.mutex_);
    for (const auto& [slot, slice] : open_) write("e", slice);
    open_.clear();
  }

  void allocated(std::size_t slot, const MemoryBlock& block) override {
    const std::lock_guard lock(timeline_.mutex_);
    const bool named = block.label[0] != 0;
    const Slice& slice = open_[slot] = {
        timeline_.next_block_++, {named ? block.label.data() : name_of(block.kind), process_}};
    json::object args{{"kind", name_of(block.kind)}};
    if (block.content.shape.rank() > 0) {
      args["dtype"] = name_of(block.content.dtype);
      args["shape"] = block.content.shape.text();
    }
    args["bytes"] = block.bytes;
    write("b", slice, {{"args", args}});
    count(block.kind, static_cast<std::int64_t>(block.bytes));
  }
  void released(std::size_t slot, const MemoryBlock& block) override {
    const std::lock_guard lock(timeline_.mutex_);
    const auto found = open_.find(slot);
    write("e", found->second);
    open_.erase(found);
    count(block.kind, -static_cast<std::int64_t>(block.bytes));
  }

 private:
  struct Slice {
    std::uint64_t number = 0;
    TraceFile::Open::Block block;  // its name is the block's label, else the memory kind
  };

  void write(const char* type, const Slice& slice, const json::object& more = {}) {
    timeline_.file_->slice(type, slice.block, slice.number, timeline_.now(), more);
  }
  void count(MemoryKind kind, std::int64_t bytes) {
    std::int64_t& live = live_[static_cast<std::size_t>(kind)];
    live += bytes;
    timeline_.file_->event("C", name_of(kind), process_, timeline_.now(),
                           {{"args", {{"bytes", live}}}});
  }

  MemoryTimeline& timeline_;
  std::shared_ptr<MemoryPool> pool_;
  int process_;
  std::map<std::size_t, Slice> open_;  // open slices, by slot
  std::array<std::int64_t, kMemoryKinds> live_{};
};

MemoryTimeline::MemoryTimeline(std::filesystem::path path, std::int64_t steps,
                               std::vector<std::shared_ptr<MemoryPool>> pools)
    : file_(std::make_unique<TraceFile>(std::move(path))), steps_(steps) {
  int process = TraceFile::kTraining;
  for (std::shared_ptr<MemoryPool>& pool : pools)
    tracks_.push_back(std::make_unique<PoolTrack>(*this, std::move(pool), ++process));
}

MemoryTimeline::~MemoryTimeline() = default;

std::int64_t MemoryTimeline::now() const {
  return offset_ + std::llround(1e6 * seconds_since(began_));
}

void MemoryTimeline::begin_file() {
  const auto name = [&](const char* what, int process, int thread, const std::string& text) {
    file_->event("M", what, process, 0, {{"tid", thread}, {"args", {{"name", text}}}});
  };
  name("process_name", TraceFile::kTraining, 0, "training");
  name("thread_name", TraceFile::kTraining, TraceFile::kPhaseThread, "phases");
  name("thread_name", TraceFile::kTraining, TraceFile::kStepThread, "steps");
  for (const auto& track : tracks_)
    name("process_name", track->process(), 0, track->name() + " memory");
}

void MemoryTimeline::resume_after(std::int64_t step) {
  const TraceFile::Open open = file_->cut_after(step);
  if (file_->is_empty()) return;
  offset_ = open.last;
  recorded_ = open.steps;
  next_block_ = static_cast<std::uint64_t>(open.blocks_begun) + 1;
  for (const auto& [number, block] : open.blocks)
    file_->slice("e", block, static_cast<std::uint64_t>(number), offset_);
  if (!open.phase.empty()) on_phases("E", open.phase, offset_);
  instant(concat("resumes after step ", step));
}

void MemoryTimeline::on_phases(const char* type, const std::string& name, std::int64_t at) {
  file_->on_thread(type, name, TraceFile::kPhaseThread, at);
}

void MemoryTimeline::instant(const std::string& text) {
  file_->on_thread("i", text, TraceFile::kPhaseThread, now(), {{"s", "g"}});
}

void MemoryTimeline::begin_recording(Phase phase) {
  {
    const std::lock_guard lock(mutex_);
    if (file_->bytes() == 0) begin_file();
    on_phases("B", name_of(phase), now());
  }
  for (const auto& track : tracks_) track->begin();
  records_ = true;
}

void MemoryTimeline::end_recording(const std::string& why) {
  if (!records_) return;
  for (const auto& track : tracks_) track->end();
  records_ = false;
  const std::lock_guard lock(mutex_);
  on_phases("E", name_of(phase_), now());
  instant(why);
}

void MemoryTimeline::begin_step(Phase phase, std::int64_t step) {
  const bool full = file_->bytes() >= kMaxBytes;
  const std::int64_t recorded = recorded_[static_cast<std::size_t>(phase)];
  if (full) {
    end_recording(concat("truncated: the file has reached ", kMaxBytes >> 20, " MiB"));
  } else if (recorded == steps_) {
    end_recording(concat("stopped: ", steps_, " steps of ", name_of(phase), " are recorded"));
  } else if (!records_) {
    begin_recording(phase);
  } else if (phase != phase_) {
    const std::lock_guard lock(mutex_);
    on_phases("E", name_of(phase_), now());
    on_phases("B", name_of(phase), now());
  }
  phase_ = phase;
  step_ = step;
  step_began_ = now();
}

void MemoryTimeline::end_step() {
  {
    const std::lock_guard lock(mutex_);
    if (records_) {
      ++recorded_[static_cast<std::size_t>(phase_)];
      const std::int64_t end = now();
      file_->on_thread(
          "X", concat("step ", step_), TraceFile::kStepThread, step_began_,
          {{"dur", end - step_began_}, {"args", {{"step", step_}, {"phase", name_of(phase_)}}}});
    }
  }
  flush();
}

void MemoryTimeline::finish() {
  end_recording("the run ended");
  {
    const std::lock_guard lock(mutex_);
    file_->close();
  }
  flush();
}

void MemoryTimeline::flush() {
  const std::lock_guard lock(mutex_);
  file_->flush();
}

std::string to_json(const MemoryShortage& shortage, std::optional<Phase> phase, std::int64_t step) {
  const MemoryUse& use = shortage.use;
  const std::size_t budget = shortage.budget_bytes.value_or(0);
  json::array kinds, largest;
  for (const auto& [bytes, name] : kinds_by_size(use))
    kinds.push_back({{"kind", name}, {"bytes", bytes}});
  for (const MemoryBlock& block : shortage.largest) largest.push_back(block_json(block));
  const json::object line{
      {"phase", phase ? json::value(name_of(*phase)) : json::value()},
      {"step", phase ? json::value(step) : json::value()},
      {"pool", shortage.pool},
      {"asked", block_json(shortage.asked)},
      {"budget_bytes", shortage.budget_bytes ? json::value(*shortage.budget_bytes) : json::value()},
      {"live_bytes", use.live_total},
      {"cached_bytes", use.cached},
      {"free_bytes", budget - std::min(budget, use.live_total)},
      {"live_by_kind", kinds},
      {"blocks", shortage.blocks},
      {"largest_blocks", largest}};
  return json_line(line) + "\n";
}

}  // namespace hybrid_trainer
