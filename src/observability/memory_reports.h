#pragma once

#include <filesystem>
#include <mutex>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"
#include "src/core/clock.h"

namespace hybrid_trainer {

class TraceFile;

/// memory_timeline.json: every allocation of the first steps of each phase, in the JSON array
/// format of Chrome's trace events, which Perfetto and chrome://tracing open. Per pool, it has
/// counters of live bytes by kind and a slice for each block from its allocation to its release (or
/// to the end of the recording), and also spans of phases and steps. An instant event gives the
/// reason for the end of a recording.
///
/// One event per line, a whole step in one write(2). The array's closing bracket is written at the
/// end of the run: the format, and both viewers, do not require it.
class MemoryTimeline {
 public:
  /// Writing stops when the file has this size.
  static constexpr std::int64_t kMaxBytes = std::int64_t{64} << 20;

  /// Creates or continues the file. Records `steps` steps of each phase. Throws CannotCreate.
  MemoryTimeline(std::filesystem::path path, std::int64_t steps,
                 std::vector<std::shared_ptr<MemoryPool>> pools);
  ~MemoryTimeline();
  MemoryTimeline(const MemoryTimeline&) = delete;
  MemoryTimeline& operator=(const MemoryTimeline&) = delete;
  /// Removes what follows the step, and a damaged end; ends open slices. Call once, before any
  /// step.
  void resume_after(std::int64_t step);
  void begin_step(Phase phase, std::int64_t step);
  /// Writes the recorded events. Throws IoError.
  void end_step();
  /// Writes the rest and closes the array. Throws IoError.
  void finish();

 private:
  class PoolTrack;
  std::int64_t now() const;  // in microseconds over all runs
  void begin_file();
  void begin_recording(Phase phase);
  void end_recording(const std::string& why);
  void on_phases(const char* type, const std::string& name, std::int64_t at);
  void instant(const std::string& text);
  void flush();

  std::unique_ptr<TraceFile> file_;
  std::int64_t steps_;
  std::vector<std::unique_ptr<PoolTrack>> tracks_;
  std::array<std::int64_t, kPhases> recorded_{};  // steps
  std::mutex mutex_;                              // of the file and the members below
  std::uint64_t next_block_ = 1;                  // unique number of each block's slice
  Clock::time_point began_ = Clock::now();
  std::int64_t offset_ = 0;  // microseconds of earlier runs
  bool records_ = false;
  Phase phase_ = Phase::kWarmup;
  std::int64_t step_ = 0;
  std::int64_t step_began_ = 0;
};

/// Returns oom.json: the out-of-memory failure that ended a run. Keys: phase and step (null before
/// the first step), pool, asked{bytes, kind, label, dtype, shape}, budget_bytes (null: the system
/// had no more), live_bytes, cached_bytes, free_bytes (of the budget, after returning cached
/// blocks), live_by_kind[{kind, bytes}] and largest_blocks[{bytes, kind, label, dtype, shape}],
/// largest first, and blocks, the number of all live ones.
std::string to_json(const MemoryShortage& shortage, std::optional<Phase> phase, std::int64_t step);

}  // namespace hybrid_trainer
