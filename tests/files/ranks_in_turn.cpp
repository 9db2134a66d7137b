#include "tests/files/ranks_in_turn.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

class Turns {
 public:
  explicit Turns(int ranks) : gathers_(static_cast<std::size_t>(ranks)), given_(gathers_.size()) {}

  void wait_for_turn(int rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == rank; });
  }

  std::vector<std::string> gather(int rank, const std::string& mine) {
    const auto own = static_cast<std::size_t>(rank);
    given_[own] = mine;
    ++gathers_[own];
    pass_on();
    wait_for_turn(rank);
    require(*std::min_element(gathers_.begin(), gathers_.end()) >= gathers_[own],
            "all ranks gather as often");
    return all_;
  }

  void pass_on() {
    const std::lock_guard lock(mutex_);
    turn_ = (turn_ + 1) % static_cast<int>(given_.size());
    if (turn_ == 0) all_ = given_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
  std::vector<int> gathers_;
  std::vector<std::string> given_, all_;
};

}  // namespace

std::vector<std::string> run_ranks_in_turn(
    int ranks, const std::function<void(const CheckpointRanks&)>& rank) {
  Turns turns(ranks);
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  std::exception_ptr other;
  const auto one = [&](int number) {
    turns.wait_for_turn(number);
    try {
      rank({number, ranks,
            [&, number](const std::string& mine) { return turns.gather(number, mine); }});
    } catch (const IoError& error) {
      messages[static_cast<std::size_t>(number)] = error.what();
    } catch (...) {
      if (!other) other = std::current_exception();
    }
    turns.pass_on();
  };
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < ranks; ++number) threads.emplace_back(one, number);
  }
  if (other) std::rethrow_exception(other);
  return messages;
}

}  // namespace hybrid_trainer
