#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// The state of a part of the campaign, stored in a file of lines "key value".
struct PartState {
  std::map<std::string, std::int64_t> numbers;  // positions and counts
  std::vector<std::string> finds;
};

PartState read_part_state(const std::filesystem::path& file);
void write_part_state(const PartState& state, const std::filesystem::path& file);

/// One invocation of a part: continues from `state` until the time is over.
struct PartRun {
  PartState state;
  std::uint64_t seed = 1;
  std::filesystem::path folder;  // empty folder for files, which is removed at the end
  std::chrono::steady_clock::time_point end;

  bool until_found = false;  // ends at the first find

  bool is_over() const {
    return std::chrono::steady_clock::now() >= end || (until_found && !state.finds.empty());
  }
  std::int64_t& count(const std::string& name) { return state.numbers[name]; }
  void find(const std::string& text);
};

/// Opens the states that a crash can leave of a save, a run, exports and a data folder.
void open_crash_states(PartRun& run);
/// Plants each fault of FileHistory and counts the states until it is found. Returns whether all
/// were found within `limit` states each.
bool find_planted_faults(PartRun& run, std::int64_t limit);

/// Damages files of checkpoints and records at random.
void damage_files(PartRun& run);

/// Writes NaN, infinity and the largest numbers into losses and gradients of a training.
void inject_numbers(PartRun& run);

}  // namespace hybrid_trainer
