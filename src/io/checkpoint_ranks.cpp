#include "hybrid_trainer/io/checkpoint_ranks.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr char kDone = '+', kFailed = '-';

/// What `attempt` gave, or the problem that it met.
std::string outcome_of(const std::function<std::string()>& attempt) {
  try {
    return kDone + attempt();
  } catch (const Error& problem) {
    constexpr ExitCode kOfThisRank[] = {ExitCode::kIo, ExitCode::kMemory, ExitCode::kCannotCreate};
    if (std::ranges::find(kOfThisRank, problem.code()) == std::end(kOfThisRank)) throw;
    return kFailed + std::string(problem.what());
  } catch (const std::filesystem::filesystem_error& problem) {
    return kFailed + std::string(problem.what());
  }
}

}  // namespace

CheckpointRanks::CheckpointRanks(int rank, int size, Gather gather)
    : rank_(rank), size_(size), gather_(std::move(gather)) {
  require(rank >= 0 && rank < size && gather_ != nullptr,
          "CheckpointRanks: want a rank below their number, and a way to gather");
}

std::vector<std::string> CheckpointRanks::gather(const std::string& mine) const {
  return are_several() ? gather_(mine) : std::vector{mine};
}

std::vector<std::string> CheckpointRanks::attempt(
    const std::function<std::string()>& attempt) const {
  if (!are_several()) return {attempt()};
  std::vector<std::string> all = gather(outcome_of(attempt));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == kFailed)
      throw IoError(concat("rank ", rank, ": ", all[rank].substr(1)));
  }
  for (std::string& one : all) one.erase(0, 1);
  return all;
}

}  // namespace hybrid_trainer
