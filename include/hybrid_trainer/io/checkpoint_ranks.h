#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// The processes that save or read a checkpoint together, as one of them sees them. They share the
/// checkpoint's folder. By default there is one.
class CheckpointRanks {
 public:
  /// Gives the bytes that each rank gave, by rank; all ranks call it equally often.
  using Gather = std::function<std::vector<std::string>(const std::string&)>;

  CheckpointRanks() = default;
  CheckpointRanks(int rank, int size, Gather gather);
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool lead() const { return rank_ == 0; }
  bool are_several() const { return size_ > 1; }
  /// By rank. A collective of several.
  std::vector<std::string> gather(const std::string& mine) const;
  /// Calls `attempt` and gathers the result of each rank. Where it fails on one for want of a file
  /// or of memory, all ranks throw the IoError "rank 2: PROBLEM"; a single rank throws what it met.
  /// A collective of several.
  std::vector<std::string> attempt(const std::function<std::string()>& attempt) const;

 private:
  int rank_ = 0, size_ = 1;
  Gather gather_;
};

}  // namespace hybrid_trainer
