#include "src/distributed/nccl_rank.h"

#include <exception>
#include <type_traits>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/cuda_libraries.h"
#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/started_thread.h"

namespace hybrid_trainer {
namespace {

using namespace std::chrono_literals;

constexpr int kSpins = 50;
constexpr auto kPollPause = 50us;

bool is_good(nccl::Result answer) {
  return answer == nccl::kSuccess || answer == nccl::kInProgress;
}

std::string text_of(nccl::Result answer, const nccl::Functions& functions) {
  std::string text = concat("NCCL answered ", functions.ncclGetErrorString(answer));
  const char* const last = functions.ncclGetLastError(nullptr);
  if (last != nullptr && *last != '\0') text += concat(" (", last, ")");
  return text;
}

void pause_after(int polls) {
  if (polls < kSpins) return std::this_thread::yield();
  std::this_thread::sleep_for(kPollPause);
}

}  // namespace

std::string nccl_version_text(int version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

NcclLibrary NcclLibrary::open(const WantedLibrary& wanted) {
  NcclLibrary found;
  found.library_ = SharedLibrary::open(wanted);
  const auto ask = found.library_.function<nccl::Result(int*)>("ncclGetVersion");
  if (ask(&found.version_) != nccl::kSuccess || found.version_ < kOldestNccl) {
    throw DeviceError(concat("NCCL: ", found.library_.path(), " is version ",
                             nccl_version_text(found.version_), ", want ",
                             nccl_version_text(kOldestNccl), " or newer; ", wanted.way_out));
  }
  visit_functions(found.functions_, [&](const char* name, auto& function) {
    using Function = std::remove_pointer_t<std::remove_reference_t<decltype(function)>>;
    function = found.library_.function<Function>(name);
  });
  return found;
}

NcclRank::NcclRank(NcclLibrary library, const nccl::UniqueId& id, int rank, int size,
                   const NcclLimits& limits)
    : library_(std::move(library)), limits_(limits) {
  thread_ = start_thread([this] {
    return std::thread([shared = shared_, functions = library_.functions(), look = limits_.look,
                        device = CallersDevice()] {
      device.use();
      watch(shared, functions, look);
    });
  });
  try {
    start(id, rank, size);
  } catch (const RankLost& error) {
    abort(error.what());
    end_thread();
    throw DeviceError(concat("rank ", rank, " of ", size, " does not start: ", error.what()));
  }
}

NcclRank::~NcclRank() {
  const bool is_orderly = std::uncaught_exceptions() == exceptions_;
  if (!is_orderly || !end()) abort("it has ended");
  end_thread();
}

void NcclRank::start(const nccl::UniqueId& id, int rank, int size) {
  const auto end = Clock::now() + limits_.start;
  const auto taken = [&](nccl::Result answer) {
    check(answer);
    return answer == nccl::kSuccess;
  };
  nccl::Config config;
  {
    const std::lock_guard lock(shared_->mutex);
    ncclComm*& communicator = shared_->communicator;
    check(library_.functions().ncclCommInitRankConfig(&communicator, size, id, rank, &config));
  }
  for (int polls = 0;; ++polls) {
    {
      const std::unique_lock lock = enter();
      if (taken(state())) return;
    }
    if (Clock::now() > end)
      throw RankLost(concat("NCCL has not met all ranks after ",
                            static_cast<double>(limits_.start.count()) / 1000,
                            " s; NCCL_DEBUG=INFO shows what it waits for"));
    pause_after(polls);
  }
}

bool NcclRank::end() {
  const auto latest = Clock::now() + limits_.end;
  try {
    std::unique_lock lock = enter();
    check(library_.functions().ncclCommFinalize(shared_->communicator));
    for (int polls = 0; state() == nccl::kInProgress; ++polls) {
      lock.unlock();
      if (Clock::now() > latest) return false;
      pause_after(polls);
      lock = enter();
    }
    check(state());
    library_.functions().ncclCommDestroy(std::exchange(shared_->communicator, nullptr));
    shared_->is_aborted = shared_->ends = true;  // nothing is left to look at
    lose(*shared_, "it has ended");
    return true;
  } catch (const RankLost&) {
    return false;
  }
}

/// A thread that does not come back from NCCL is left behind.
void NcclRank::end_thread() {
  bool comes_back = false;
  {
    const std::lock_guard lock(shared_->mutex);
    comes_back = !shared_->is_lost || shared_->is_aborted;
    shared_->ends = true;
    shared_->changed.notify_all();
  }
  comes_back ? thread_.join() : thread_.detach();
}

void NcclRank::watch(const std::shared_ptr<Shared>& shared, const nccl::Functions& functions,
                     std::chrono::milliseconds pause) {
  std::unique_lock lock(shared->mutex);
  while (!shared->ends) {
    shared->changed.wait_for(lock, pause, [&] { return shared->ends || shared->is_lost; });
    if (shared->communicator != nullptr) look_for_error(*shared, functions);
    if (!shared->is_lost || shared->is_aborted) continue;
    ncclComm* const lost = std::exchange(shared->communicator, nullptr);
    lock.unlock();
    if (lost != nullptr) functions.ncclCommAbort(lost);
    lock.lock();
    shared->is_aborted = true;
    shared->changed.notify_all();
    shared->changed.wait(lock, [&] { return shared->ends; });
  }
}

void NcclRank::look_for_error(Shared& shared, const nccl::Functions& functions) {
  nccl::Result state = nccl::kSuccess;
  const nccl::Result answer = functions.ncclCommGetAsyncError(shared.communicator, &state);
  if (!is_good(answer)) lose(shared, text_of(answer, functions));
  if (!is_good(state)) lose(shared, text_of(state, functions));
}

void NcclRank::lose(Shared& shared, const std::string& reason) {
  if (std::exchange(shared.is_lost, true)) return;
  shared.reason = reason;
  shared.changed.notify_all();
}

bool NcclRank::abort(const std::string& reason) {
  std::unique_lock lock(shared_->mutex);
  lose(*shared_, reason);
  return shared_->changed.wait_for(lock, limits_.end, [&] { return shared_->is_aborted; });
}

std::unique_lock<std::mutex> NcclRank::enter() const {
  std::unique_lock lock(shared_->mutex);
  if (shared_->is_lost) throw RankLost(shared_->reason);
  return lock;
}

nccl::Result NcclRank::state() const {
  nccl::Result state = nccl::kSuccess;
  check(library_.functions().ncclCommGetAsyncError(shared_->communicator, &state));
  return state;
}

void NcclRank::check(nccl::Result answer) const {
  if (is_good(answer)) return;
  lose(*shared_, text_of(answer, library_.functions()));
  throw RankLost(shared_->reason);
}

/// Until then the stream may not have the work yet.
void NcclRank::wait_until_taken(std::unique_lock<std::mutex>& lock) const {
  for (int polls = 0;; ++polls) {
    const nccl::Result now = state();
    check(now);
    if (now == nccl::kSuccess) return;
    lock.unlock();
    pause_after(polls);
    lock = enter();
  }
}

}  // namespace hybrid_trainer
