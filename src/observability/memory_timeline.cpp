#include "hybrid_trainer/observability/memory_timeline.h"

#include <cmath>
#include <map>

#include "hybrid_trainer/core/error.h"
#include "src/observability/trace_file.h"

namespace hybrid_trainer {

namespace json = boost::json;

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
    TraceFile::Open::Block block;  // named by the block's label, else its kind
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
  std::map<std::size_t, Slice> open_;  // by slot
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

/// Names of the tracks.
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
  instant(concat("goes on after step ", step));
}

void MemoryTimeline::on_phases(const char* type, const std::string& name, std::int64_t at) {
  file_->on_thread(type, name, TraceFile::kPhaseThread, at);
}

void MemoryTimeline::instant(const std::string& text) {
  file_->on_thread("i", text, TraceFile::kPhaseThread, now(), {{"s", "g"}});
}

void MemoryTimeline::begin_stretch(Phase phase) {
  {
    const std::lock_guard lock(mutex_);
    if (file_->bytes() == 0) begin_file();
    on_phases("B", name_of(phase), now());
  }
  for (const auto& track : tracks_) track->begin();
  records_ = true;
}

void MemoryTimeline::end_stretch(const std::string& why) {
  if (!records_) return;
  for (const auto& track : tracks_) track->end();
  records_ = false;
  const std::lock_guard lock(mutex_);
  on_phases("E", name_of(phase_), now());
  instant(why);
}

void MemoryTimeline::begin_step(Phase phase, std::int64_t step) {
  const bool full = file_->bytes() >= kMostBytes;
  const std::int64_t recorded = recorded_[static_cast<std::size_t>(phase)];
  if (full) {
    end_stretch(concat("cut: the file has ", kMostBytes >> 20, " MiB"));
  } else if (recorded == steps_) {
    end_stretch(concat("cut: ", steps_, " steps of ", name_of(phase), " are recorded"));
  } else if (!records_) {
    begin_stretch(phase);
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
  end_stretch("the run ended");
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

}  // namespace hybrid_trainer
