#pragma once

#include <filesystem>
#include <mutex>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"
#include "src/core/clock.h"

namespace hybrid_trainer {

class TraceFile;

/// memory_timeline.json: every allocation of the first steps of each phase, in the JSON array format
/// of Chrome's trace events, which Perfetto and chrome://tracing open. Per pool, counters of live
/// bytes by kind and a slice for each block from its allocation to its release (a block that lives
/// longer ends where recording does); beside them spans of phases and steps. Where recording ends,
/// an instant event says why.
///
/// One event a line, a whole step in one write(2). The array's closing bracket comes with the end of
/// the run: the format, and both viewers, do without it.
class MemoryTimeline {
 public:
  /// The file is not written to any further once it is as long.
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

  /// Makes the file, or goes on with one. Records `steps` steps of each phase. Throws CannotCreate.
  MemoryTimeline(std::filesystem::path path, std::int64_t steps,
                 std::vector<std::shared_ptr<MemoryPool>> pools);
  ~MemoryTimeline();
  MemoryTimeline(const MemoryTimeline&) = delete;
  MemoryTimeline& operator=(const MemoryTimeline&) = delete;
  /// Drops what follows the step, and a damaged end; what was open then ends there. To be called
  /// once, before the first step.
  void resume_after(std::int64_t step);
  void begin_step(Phase phase, std::int64_t step);
  /// Writes what was recorded. Throws IoError.
  void end_step();
  /// Writes the rest and closes the array. Throws IoError.
  void finish();

 private:
  class PoolTrack;
  std::int64_t now() const;  // in microseconds of all runs
  void begin_file();
  void begin_stretch(Phase phase);
  void end_stretch(const std::string& why);
  void on_phases(const char* type, const std::string& name, std::int64_t at);
  void instant(const std::string& text);
  void flush();

  std::unique_ptr<TraceFile> file_;
  std::int64_t steps_;
  std::vector<std::unique_ptr<PoolTrack>> tracks_;
  std::array<std::int64_t, kPhases> recorded_{};  // steps
  std::mutex mutex_;                              // of the file and what follows
  std::uint64_t next_block_ = 1;                  // each block's slice has a number of its own
  Clock::time_point began_ = Clock::now();
  std::int64_t offset_ = 0;  // microseconds of the runs before
  bool records_ = false;
  Phase phase_ = Phase::kWarmup;
  std::int64_t step_ = 0;
  std::int64_t step_began_ = 0;
};

/// oom.json: what ended a run for want of memory. Keys: phase and step (null before the first step),
/// pool, asked{bytes, kind, label, dtype, shape}, budget_bytes (null: the system had no more),
/// live_bytes, cached_bytes, free_bytes (of the budget, if what is cached were returned),
/// live_by_kind[{kind, bytes}] and largest_blocks[{bytes, kind, label, dtype, shape}], the largest
/// first, and blocks, the number of all live ones.
std::string to_json(const MemoryShortage& shortage, std::optional<Phase> phase, std::int64_t step);

}  // namespace hybrid_trainer
