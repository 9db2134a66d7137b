#include "hybrid_trainer/observability/memory_timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/json_writer.h"

namespace hybrid_trainer {
namespace {

constexpr int kTraining =
    1;  // the trace's "process" of phases and steps; one for each pool follows
constexpr int kPhaseThread = 1, kStepThread = 2;
constexpr const char* kBlockCategory = "block";

/// The event of one line, which may end in the comma before the next.
std::optional<boost::json::object> event_of(std::string line) {
  while (!line.empty() && (line.back() == ',' || line.back() == '\n')) line.pop_back();
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(line, error);
  if (error || !value.is_object()) return std::nullopt;
  return std::move(value.get_object());
}

std::string text_at(const boost::json::object& event, const char* key) {
  const boost::json::value* const value = event.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

}  // namespace

/// What is recorded of one pool.
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
    const Slice& slice =
        open_[slot] = {timeline_.next_block_++, named ? block.label.data() : name_of(block.kind)};
    write("b", slice, [&](JsonWriter& out) {
      out.begin_object("args");
      out.string("kind", name_of(block.kind));
      if (block.content.shape.rank() > 0) {
        out.string("dtype", name_of(block.content.dtype));
        out.string("shape", block.content.shape.text());
      }
      out.number("bytes", block.bytes);
      out.end_object();
    });
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
    std::string name;  // the block's label, else its kind
  };

  void write(const char* type, const Slice& slice, const EventParts& more = {}) {
    timeline_.event(type, slice.name, process_, timeline_.now(), [&](JsonWriter& out) {
      out.string("cat", kBlockCategory);
      out.number("id", slice.number);
      if (more) more(out);
    });
  }
  void count(MemoryKind kind, std::int64_t bytes) {
    std::int64_t& live = live_[static_cast<std::size_t>(kind)];
    live += bytes;
    timeline_.event("C", name_of(kind), process_, timeline_.now(), [&](JsonWriter& out) {
      out.begin_object("args");
      out.number("bytes", live);
      out.end_object();
    });
  }

  MemoryTimeline& timeline_;
  std::shared_ptr<MemoryPool> pool_;
  int process_;
  std::map<std::size_t, Slice> open_;  // by slot
  std::array<std::int64_t, kMemoryKinds> live_{};
};

MemoryTimeline::MemoryTimeline(std::filesystem::path path, std::int64_t steps,
                               std::vector<std::shared_ptr<MemoryPool>> pools)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)),
      steps_(steps) {
  if (file_.number() < 0)
    throw CannotCreate(
        concat("cannot open ", path_.string(), " to append: ", std::strerror(errno)));
  int process = kTraining;
  for (std::shared_ptr<MemoryPool>& pool : pools)
    tracks_.push_back(std::make_unique<PoolTrack>(*this, std::move(pool), ++process));
}

MemoryTimeline::~MemoryTimeline() = default;

std::int64_t MemoryTimeline::now() const {
  return offset_ + std::llround(1e6 * seconds_since(began_));
}

void MemoryTimeline::event(const char* type, const std::string& name, int process, std::int64_t at,
                           const EventParts& more) {
  JsonWriter out;
  out.begin_object();
  out.string("ph", type);
  out.string("name", name);
  out.number("pid", process);
  out.number("ts", at);
  if (more) more(out);
  out.end_object();
  text_ += (bytes_ == 0 && text_.empty() ? "[\n" : ",\n") + out.text();
}

void MemoryTimeline::on_thread(const char* type, const std::string& name, int thread,
                               std::int64_t at, const EventParts& more) {
  event(type, name, kTraining, at, [&](JsonWriter& out) {
    out.number("tid", thread);
    if (more) more(out);
  });
}

/// Names of the tracks.
void MemoryTimeline::begin_file() {
  const auto name = [&](const char* what, int process, int thread, const std::string& text) {
    event("M", what, process, 0, [&](JsonWriter& out) {
      out.number("tid", thread);
      out.begin_object("args");
      out.string("name", text);
      out.end_object();
    });
  };
  name("process_name", kTraining, 0, "training");
  name("thread_name", kTraining, kPhaseThread, "phases");
  name("thread_name", kTraining, kStepThread, "steps");
  for (const auto& track : tracks_)
    name("process_name", track->process(), 0, track->name() + " memory");
}

/// What a file has left open, up to one of its events.
struct MemoryTimeline::Open {
  struct Block {
    std::string name;
    int process;
  };
  std::map<std::int64_t, Block> blocks;  // by number
  std::int64_t blocks_begun = 0;
  std::string phase;      // "" for none
  std::int64_t last = 0;  // time of an event
  std::array<std::int64_t, kPhases> steps{};

  void add(const boost::json::object& event) {
    const auto number = [&](const char* key) { return event.at(key).to_number<std::int64_t>(); };
    const std::string type = text_at(event, "ph"), name = text_at(event, "name");
    last = std::max(last, number("ts"));
    if (type == "B") phase = name;
    if (type == "E") phase.clear();
    if (type == "b") {
      blocks[number("id")] = {name, static_cast<int>(number("pid"))};
      blocks_begun = std::max(blocks_begun, number("id"));
    }
    if (type == "e") blocks.erase(number("id"));
    if (type != "X") return;
    last = std::max(last, number("ts") + number("dur"));
    const std::string of = text_at(event.at("args").as_object(), "phase");
    for (const Phase each : kAllPhases)
      steps[static_cast<std::size_t>(each)] += of == name_of(each);
  }
};

void MemoryTimeline::resume_after(std::int64_t step) {
  Open open, kept_open;
  std::int64_t end = 0, kept = 0;
  std::ifstream in(path_, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const std::int64_t begin = end;
    end += static_cast<std::int64_t>(line.size()) + 1;
    if (begin == 0 && line == "[") continue;
    const auto event = event_of(line);
    if (!event) break;
    open.add(*event);
    if (text_at(*event, "ph") != "X") continue;
    if (event->at("args").at("step").to_number<std::int64_t>() > step) break;
    kept = begin + static_cast<std::int64_t>(line.find_last_of('}')) + 1;
    kept_open = open;
  }
  if (::ftruncate(file_.number(), kept) != 0)
    throw IoError(concat("cannot shorten ", path_.string(), ": ", std::strerror(errno)));
  bytes_ = kept;
  if (kept == 0) return;
  offset_ = kept_open.last;
  recorded_ = kept_open.steps;
  next_block_ = static_cast<std::uint64_t>(kept_open.blocks_begun) + 1;
  for (const auto& [number, block] : kept_open.blocks)
    event("e", block.name, block.process, offset_, [id = number](JsonWriter& out) {
      out.string("cat", kBlockCategory);
      out.number("id", id);
    });
  if (!kept_open.phase.empty()) on_thread("E", kept_open.phase, kPhaseThread, offset_);
  instant(concat("goes on after step ", step));
}

void MemoryTimeline::instant(const std::string& text) {
  on_thread("i", text, kPhaseThread, now(), [](JsonWriter& out) { out.string("s", "g"); });
}

void MemoryTimeline::begin_stretch(Phase phase) {
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ == 0) begin_file();
    on_thread("B", name_of(phase), kPhaseThread, now());
  }
  for (const auto& track : tracks_) track->begin();
  records_ = true;
}

void MemoryTimeline::end_stretch(const std::string& why) {
  if (!records_) return;
  for (const auto& track : tracks_) track->end();
  records_ = false;
  const std::lock_guard lock(mutex_);
  on_thread("E", name_of(phase_), kPhaseThread, now());
  instant(why);
}

void MemoryTimeline::begin_step(Phase phase, std::int64_t step) {
  const bool full = bytes_ >= kMostBytes;
  const std::int64_t recorded = recorded_[static_cast<std::size_t>(phase)];
  if (full) {
    end_stretch(concat("cut: the file has ", kMostBytes >> 20, " MiB"));
  } else if (recorded == steps_) {
    end_stretch(concat("cut: ", steps_, " steps of ", name_of(phase), " are recorded"));
  } else if (!records_) {
    begin_stretch(phase);
  } else if (phase != phase_) {
    const std::lock_guard lock(mutex_);
    on_thread("E", name_of(phase_), kPhaseThread, now());
    on_thread("B", name_of(phase), kPhaseThread, now());
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
      on_thread("X", concat("step ", step_), kStepThread, step_began_, [&](JsonWriter& out) {
        out.number("dur", end - step_began_);
        out.begin_object("args");
        out.number("step", step_);
        out.string("phase", name_of(phase_));
        out.end_object();
      });
    }
  }
  flush();
}

void MemoryTimeline::finish() {
  end_stretch("the run ended");
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ == 0 && text_.empty()) text_.push_back('[');
    text_ += "\n]\n";
  }
  flush();
}

void MemoryTimeline::flush() {
  const std::lock_guard lock(mutex_);
  if (text_.empty()) return;
  const ssize_t written = ::write(file_.number(), text_.data(), text_.size());
  if (written != static_cast<ssize_t>(text_.size()))
    throw IoError(concat("cannot write ", path_.string(), ": ",
                         written < 0 ? std::strerror(errno) : "the disk is full"));
  bytes_ += written;
  text_.clear();
}

}  // namespace hybrid_trainer
