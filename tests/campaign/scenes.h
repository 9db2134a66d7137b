#pragma once

#include <memory>

#include "tests/campaign/file_history.h"

namespace hybrid_trainer {

/// An action that writes files, and a check of each state that a crash can leave of them.
class Scene {
 public:
  virtual ~Scene() = default;
  virtual const char* name() const = 0;
  /// Makes the files in the empty folder that exist before the action.
  virtual void prepare(const std::filesystem::path&) {}
  /// The action. Marks its parts in the history.
  virtual void act(const std::filesystem::path& folder, FileHistory& history) = 0;
  /// Remembers the files after the action, with which states are compared.
  virtual void finish(const FolderContents&) {}
  /// Returns the problem of the files after a crash, or "". `marks` parts of the action were done.
  /// Each `thorough` check also continues the work. May use the empty folder.
  virtual std::string problem(const FolderContents& state, std::size_t marks, bool thorough,
                              const std::filesystem::path& folder) = 0;
  /// Returns the number of states between two thorough checks.
  virtual std::int64_t thoroughness() const { return 16; }
};

/// Returns all scenes. `folder` contains files that they share.
std::vector<std::unique_ptr<Scene>> make_scenes(const std::filesystem::path& folder);

}  // namespace hybrid_trainer
