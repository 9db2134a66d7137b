#pragma once

#include <filesystem>
#include <mutex>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"
#include "src/core/clock.h"

namespace hybrid_trainer {

class TraceFile;

/// Writes memory_timeline.json: every allocation of each phase's first steps, as a JSON array of
/// Chrome's trace events, for Perfetto and chrome://tracing. The trace has spans of phases and
/// steps and, for each pool, counters of live bytes by kind and a slice for each block. An instant
/// event gives the reason for the end of a recording. Each line has one event, and each step is one
/// write(2). The array is closed at the end of the run; neither the format nor the viewers require
/// it.
class MemoryTimeline {
 public:
  /// Writing stops when the file has this size.
  static constexpr std::int64_t kMaxBytes = std::int64_t{64} << 20;

  /// Creates or continues the file, for the first `steps` steps of each phase. Throws CannotCreate.
  MemoryTimeline(std::filesystem::path path, std::int64_t steps,
                 std::vector<std::shared_ptr<MemoryPool>> pools);
  ~MemoryTimeline();
  MemoryTimeline(const MemoryTimeline&) = delete;
  MemoryTimeline& operator=(const MemoryTimeline&) = delete;
  /// Removes a damaged end and the events after the step, and closes open slices. Must be called
  /// before the first step.
  void resume_after(std::int64_t step);
  void begin_step(Phase phase, std::int64_t step);
  void end_step();
  /// Writes the remaining events and closes the array. Throws IoError.
  void finish();

 private:
  class PoolTrack;
  std::int64_t now() const;  // microseconds, including earlier runs
  void begin_file();
  void begin_recording(Phase phase);
  void end_recording(const std::string& why);
  void on_phases(const char* type, const std::string& name, std::int64_t at);
  void instant(const std::string& text);
  void flush();

  std::unique_ptr<TraceFile> file_;
  std::int64_t steps_;
  std::vector<std::unique_ptr<PoolTrack>> tracks_;
  std::array<std::int64_t, kPhases> recorded_{};  // number of recorded steps
  std::mutex mutex_;                              // guards the file and the members below
  std::uint64_t next_block_ = 1;                  // unique number of each block's slice
  Clock::time_point began_ = Clock::now();
  std::int64_t offset_ = 0;  // duration of earlier runs in microseconds
  bool records_ = false;
  Phase phase_ = Phase::kWarmup;
  std::int64_t step_ = 0;
  std::int64_t step_began_ = 0;
};

/// Returns oom.json, which describes the out-of-memory failure that ended a run. Keys: phase and
/// step (null before the first step), pool, asked{bytes, kind, label, dtype, shape}, budget_bytes
/// (null if the system ran out of memory), live_bytes, cached_bytes, free_bytes (of the budget,
/// after returning cached blocks), live_by_kind[{kind, bytes}] and largest_blocks[{bytes, kind,
/// label, dtype, shape}], both largest first, and blocks, the number of all live blocks.
std::string to_json(const MemoryShortage& shortage, std::optional<Phase> phase, std::int64_t step);

}  // namespace hybrid_trainer
