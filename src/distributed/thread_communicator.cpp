
#include "src/core/threads.h"
#include "src/distributed/host_communicator.h"
#include "src/distributed/host_ranks.h"

namespace hybrid_trainer {

namespace {

/// A message that its receiver has not copied yet. Small messages are copied when sent, so that the
/// sender continues and call mismatches are detected even if ranks do not wait for each other.
struct ThreadMessage {
  static constexpr std::size_t kMaxCopied = 64;
  const void* data;
  std::size_t bytes;
  std::array<char, kMaxCopied> copy{};

  explicit ThreadMessage(const OutgoingBytes& message) : data(message.data), bytes(message.bytes) {
    if (is_copied(bytes)) std::memcpy(copy.data(), data, bytes);
  }
  static bool is_copied(std::size_t bytes) { return bytes <= kMaxCopied; }
  const void* source() const { return is_copied(bytes) ? copy.data() : data; }
};

class SharedThreadState {
 public:
  explicit SharedThreadState(int ranks)
      : ranks_(static_cast<std::size_t>(ranks)),
        changed_(ranks_),
        mailboxes_(ranks_ * ranks_),
        ended_(ranks_),
        interrupted_(ranks_) {}

  void transfer(int rank, std::span<const OutgoingBytes> sent,
                std::span<const IncomingBytes> received) {
    std::unique_lock lock(mutex_);
    for (const OutgoingBytes& message : sent) {
      mailbox(rank, message.peer).emplace_back(message);
      wake(message.peer);
    }
    try {
      for (const IncomingBytes& message : received) take(lock, rank, message);
      for (const OutgoingBytes& message : sent) {
        const auto& unread = mailbox(rank, message.peer);
        if (ThreadMessage::is_copied(message.bytes)) continue;
        wait(lock, rank, message.peer, [&] { return unread.empty(); });
      }
    } catch (const RankLost&) {
      for (const OutgoingBytes& message : sent) drop_uncopied(mailbox(rank, message.peer));
      throw;
    }
  }

  void end(int rank) {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(rank)] = true;
    wake_all();
  }

  void interrupt(int rank) {
    const std::lock_guard lock(mutex_);
    interrupted_[static_cast<std::size_t>(rank)] = true;
    wake(rank);
  }

  void abort(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (aborted_.empty()) aborted_ = why;
    wake_all();
  }

 private:
  std::deque<ThreadMessage>& mailbox(int from, int to) {
    return mailboxes_[static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)];
  }

  void wake(int rank) { changed_[static_cast<std::size_t>(rank)].notify_all(); }
  void wake_all() {
    for (std::condition_variable& one : changed_) one.notify_all();
  }

  /// Drops messages whose sender's memory is gone.
  static void drop_uncopied(std::deque<ThreadMessage>& unread) {
    std::erase_if(unread, [](const auto& one) { return !ThreadMessage::is_copied(one.bytes); });
  }

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, int rank, int peer, const Condition& holds) {
    const auto ended = [&] { return ended_[static_cast<std::size_t>(peer)]; };
    const auto interrupted = [&] { return interrupted_[static_cast<std::size_t>(rank)]; };
    std::condition_variable& changed = changed_[static_cast<std::size_t>(rank)];
    changed.wait(lock, [&] { return holds() || ended() || interrupted() || !aborted_.empty(); });
    if (interrupted()) throw RankLost(concat("rank ", rank, " stopped because of its own error"));
    if (holds()) return;
    if (!aborted_.empty()) throw RankLost(aborted_);
    throw RankLost(concat("rank ", peer, " has ended, and rank ", rank, " needs it"));
  }

  void take(std::unique_lock<std::mutex>& lock, int rank, const IncomingBytes& wanted) {
    std::deque<ThreadMessage>& from_peer = mailbox(wanted.peer, rank);
    wait(lock, rank, wanted.peer, [&] { return !from_peer.empty(); });
    const ThreadMessage message = from_peer.front();
    from_peer.pop_front();
    require(message.bytes == wanted.bytes, "a message must have the size that both ranks expect");
    std::memcpy(wanted.data, message.source(), message.bytes);
    wake(wanted.peer);
  }

  const std::size_t ranks_;
  std::mutex mutex_;
  std::vector<std::condition_variable> changed_;      // indexed by waiting rank
  std::vector<std::deque<ThreadMessage>> mailboxes_;  // indexed by sender, then receiver
  std::vector<bool> ended_, interrupted_;
  std::string aborted_;  // reason
};

class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(int rank, int size, std::shared_ptr<SharedThreadState> rendezvous)
      : HostCommunicator(rank, size), rendezvous_(std::move(rendezvous)) {}
  ~ThreadCommunicator() override { rendezvous_->end(rank()); }
  const char* name() const override { return "threads"; }
  void abort(const std::string& reason) override {
    rendezvous_->abort(concat("rank ", rank(), " gave up: ", reason));
  }
  void interrupt() override { rendezvous_->interrupt(rank()); }

 protected:
  void wait_for_transfer(std::span<const OutgoingBytes> sent,
                         std::span<const IncomingBytes> received) override {
    rendezvous_->transfer(rank(), sent, received);
  }

 private:
  std::shared_ptr<SharedThreadState> rendezvous_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks) {
  if (ranks < 1) throw Error(ExitCode::kInternal, concat("got ", ranks, " ranks, want at least 1"));
  const auto rendezvous = std::make_shared<SharedThreadState>(ranks);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < ranks; ++rank)
    all.push_back(std::make_unique<ThreadCommunicator>(rank, ranks, rendezvous));
  return all;
}

void run_thread_ranks(int ranks, const std::function<void(Communicator&)>& rank) {
  std::mutex mutex;
  std::exception_ptr first;  // of the first rank that failed
  const auto fail = [&](Communicator& communicator, const char* reason) {
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    communicator.abort(reason);
  };
  {
    std::vector<std::jthread> threads;
    for (auto& one : make_thread_communicators(ranks)) {
      const auto run = [&](std::shared_ptr<Communicator> communicator, const auto& body) {
        try {
          body(*communicator);
        } catch (const std::exception& error) {
          fail(*communicator, error.what());
        } catch (...) {
          fail(*communicator, "it threw an object that is not an exception");
        }
      };
      const std::shared_ptr<Communicator> own = std::move(one);
      run(own, [&](Communicator&) {  // a rank without a thread stops the others
        threads.push_back(start_thread([&] { return std::jthread(run, own, rank); }));
      });
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace hybrid_trainer
