#include <limits>
#include <random>
#include <unordered_set>

#include "hybrid_trainer/core/error.h"
#include "src/files/checksum.h"
#include "tests/campaign/campaign.h"
#include "tests/campaign/scenes.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kExhaustive = 6, kRandom = 24;
constexpr std::size_t kMostFinds = 3;           // of one scene
constexpr std::int64_t kUnplantedStates = 200;  // of one scene, none of which may be a find

std::string fingerprint(const FolderContents& contents, std::size_t marks) {
  Checksum sum;
  for (const auto& [path, bytes] : contents) {
    const std::string head = concat(path, "\n", bytes.size(), "\n");
    sum.add(head.data(), head.size());
    sum.add(bytes.data(), bytes.size());
  }
  return concat(sum.text(), marks);
}

FileHistory record(Scene& scene, const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  scene.prepare(folder);
  FileHistory history =
      FileHistory::record(folder, [&](FileHistory& made) { scene.act(folder, made); });
  scene.finish(history.contents(history.size()));
  return history;
}

/// Opens the states of one history that were not opened before.
class States {
 public:
  States(Scene& scene, const FileHistory& history, const fs::path& folder)
      : scene_(scene), history_(history), folder_(folder) {}
  std::int64_t opened() const { return opened_; }
  std::int64_t continued() const { return continued_; }

  /// Opens the states of crashes at `position`. Returns the first problem, or "".
  std::string open(std::size_t position, std::mt19937_64& generator, std::int64_t limit) {
    const std::size_t marks = history_.marks_before(position);
    for (const FileHistory::Crash& crash :
         history_.crashes(position, kExhaustive, kRandom, generator)) {
      if (opened_ >= limit) return "";
      const FolderContents contents = history_.contents(crash);
      if (!seen_.insert(fingerprint(contents, marks)).second) continue;
      const bool thorough = opened_++ % scene_.thoroughness() == 0;
      continued_ += thorough ? 1 : 0;
      std::string problem;
      try {
        problem = scene_.problem(contents, marks, thorough, folder_);
      } catch (const std::exception& error) {
        problem = error.what();
      }
      if (!problem.empty())
        return concat(scene_.name(), ": ", problem, "\n  ", history_.text(crash));
    }
    return "";
  }

 private:
  Scene& scene_;
  const FileHistory& history_;
  fs::path folder_;
  std::unordered_set<std::string> seen_;
  std::int64_t opened_ = 0, continued_ = 0;
};

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

}  // namespace

void open_crash_states(PartRun& run) {
  fs::create_directory(run.folder / "shared");
  const auto scenes = make_scenes(run.folder / "shared");
  for (; !run.is_over(); ++run.count("round"), run.count("scene") = 0) {
    for (; run.count("scene") < std::ssize(scenes);
         ++run.count("scene"), run.count("position") = 0) {
      Scene& scene = *scenes[static_cast<std::size_t>(run.count("scene"))];
      const FileHistory history = record(scene, run.folder / "recorded");
      States states(scene, history, run.folder / "state");
      std::size_t finds = 0;
      for (; run.count("position") <= static_cast<std::int64_t>(history.size()) && !run.is_over();
           ++run.count("position")) {
        const auto position = static_cast<std::size_t>(run.count("position"));
        std::mt19937_64 generator(
            run.seed + 1'000'003 * static_cast<std::uint64_t>(run.count("round")) + position);
        const std::string problem = states.open(position, generator, kNoLimit);
        if (problem.empty()) continue;
        run.find(problem);
        if (++finds == kMostFinds) break;
      }
      run.count("count.states") += states.opened();
      run.count(concat("count.states_of_", scene.name())) += states.opened();
      run.count("count.continued") += states.continued();
      if (run.is_over()) return;
    }
  }
}

bool find_planted_faults(PartRun& run, std::int64_t limit) {
  using Planted = FileHistory::Planted;
  struct Fault {
    Planted planted;
    const char* name;
  };
  constexpr Fault kFaults[] = {{Planted::kNothing, "nothing"},
                               {Planted::kNoFileSync, "no_fsync_of_files"},
                               {Planted::kNoSyncOfOneFile, "no_fsync_of_one_file"},
                               {Planted::kNoFolderSync, "no_fsync_of_folders"},
                               {Planted::kNoLastFolderSync, "no_last_fsync_of_folder"},
                               {Planted::kRenameBeforeSync, "rename_before_fsync"},
                               {Planted::kLastWriteUnsynced, "write_after_fsync"},
                               {Planted::kWriteInPlace, "written_in_place"}};
  fs::create_directory(run.folder / "shared");
  const auto scenes = make_scenes(run.folder / "shared");
  bool all = true;
  std::map<const Scene*, FileHistory> histories;
  for (const auto& scene : scenes)
    histories.emplace(scene.get(), record(*scene, run.folder / "recorded"));
  for (const Fault& fault : kFaults) {
    const bool is_planted = fault.planted != Planted::kNothing;
    const std::int64_t most = is_planted ? limit : kUnplantedStates;
    std::int64_t tries = 0;
    bool is_found = false;
    for (const auto& scene : scenes) {
      const FileHistory history = histories.at(scene.get()).with(fault.planted);
      States states(*scene, history, run.folder / "state");
      std::mt19937_64 generator(run.seed);
      std::string problem;
      for (std::size_t at = history.size() + 1; at-- > 0 && problem.empty();)
        problem = states.open(at, generator, most);
      tries += states.opened();
      is_found = !problem.empty();
      if (is_found) break;
    }
    run.count(concat("count.", fault.name)) = tries;
    if (is_found == is_planted) continue;
    all = false;
    run.find(is_planted ? concat("the planted fault ", fault.name, " is not found within ", limit,
                                 " states")
                        : std::string("a fault is found although none is planted"));
  }
  return all;
}

}  // namespace hybrid_trainer
