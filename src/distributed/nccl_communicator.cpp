#include "src/distributed/nccl_communicator.h"

#include <cstring>
#include <type_traits>

#include "src/core/cuda_runtime.h"
#include "src/core/machine.h"
#include "src/core/threads.h"
#include "src/distributed/lost_rank.h"

namespace hybrid_trainer {

namespace {

using namespace std::chrono_literals;

constexpr int kSpins = 50;
constexpr auto kPollPause = 50us;

bool is_good(nccl::Result answer) {
  return answer == nccl::kSuccess || answer == nccl::kInProgress;
}

std::string text_of(nccl::Result answer, const nccl::Functions& functions) {
  std::string text = concat("NCCL failed with ", functions.ncclGetErrorString(answer));
  const char* const last = functions.ncclGetLastError(nullptr);
  if (last != nullptr && *last != '\0') text += concat(" (", last, ")");
  return text;
}

void pause_after(int polls) {
  if (polls < kSpins) return std::this_thread::yield();
  std::this_thread::sleep_for(kPollPause);
}

/// Counts the collectives that streams, not the host, have entered and left.
class StreamProgress {
 public:
  /// begin and end must be called before and after the code that enqueues a collective, from one
  /// thread. begin waits for the oldest collective if very many are pending.
  void begin(const Stream& stream);
  void end(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    pending_.back().left.record(stream);
    pending_.back().is_enqueued = true;
  }
  /// Thread-safe.
  RankProgress so_far() const;

 private:
  struct Collective {
    Event entered, left;
    bool is_enqueued = false;
    bool is_done() const { return is_enqueued && left.reached(); }
  };

  mutable std::mutex mutex_;
  std::deque<Collective> pending_;
  std::vector<Collective> spare_;
  std::uint64_t done_ = 0;
};

constexpr std::size_t kMaxPending = 256;

void StreamProgress::begin(const Stream& stream) {
  if (pending_.size() >= kMaxPending) pending_.front().left.synchronize();
  const std::lock_guard lock(mutex_);
  for (; !pending_.empty() && pending_.front().is_done(); ++done_) {
    spare_.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
  Collective next;
  if (!spare_.empty()) {
    next = std::move(spare_.back());
    spare_.pop_back();
  }
  next.is_enqueued = false;
  next.entered.record(stream);
  pending_.push_back(std::move(next));
}

RankProgress StreamProgress::so_far() const {
  const std::lock_guard lock(mutex_);
  RankProgress progress{0, done_, done_};
  try {
    for (const Collective& one : pending_) {
      progress.entered += one.entered.reached() ? 1 : 0;
      progress.left += one.is_done() ? 1 : 0;
    }
  } catch (const DeviceError&) {  // the thread that uses the device reports it
  }
  return progress;
}

char* element(const Tensor& tensor, std::int64_t index) {
  return static_cast<char*>(tensor.raw()) +
         static_cast<std::size_t>(index) * size_of(tensor.dtype());
}

std::size_t count_of(std::int64_t elements) { return static_cast<std::size_t>(elements); }

/// Collects the results of a group. Keeps the last result that is not success.
class Answers {
 public:
  void operator()(nccl::Result answer) {
    if (answer != nccl::kSuccess) last_ = answer;
  }
  nccl::Result last() const { return last_; }

 private:
  nccl::Result last_ = nccl::kSuccess;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> hosts, Device device, NcclLibrary library,
                   const nccl::UniqueId& id, const NcclLimits& limits)
      : hosts_(std::move(hosts)),
        device_(device),
        rank_(std::move(library), id, hosts_->rank(), hosts_->size(), limits) {}

  int rank() const override { return hosts_->rank(); }
  int size() const override { return hosts_->size(); }
  const char* name() const override { return "nccl"; }

  void all_gather(const Tensor& values, const Tensor& shard, const Stream& stream) override {
    if (is_host(stream)) return hosts_->all_gather(values, shard, stream);
    check_shard(shard, values, rank(), size());
    check_device(values);
    const std::uint64_t sent = shard.bytes() * static_cast<std::uint64_t>(size() - 1);
    call(values, sent, stream, [&](const auto& nccl, ncclComm* ranks) {
      if (values.elements() % size() == 0) {
        return nccl.ncclAllGather(shard.raw(), values.raw(), shard.bytes(), nccl::kUint8, ranks,
                                  stream.native());
      }
      Answers answers;
      for_each_shard(values, [&](int root, const Shard& part) {
        char* const to = element(values, part.first);
        const std::size_t bytes = count_of(part.elements()) * size_of(values.dtype());
        answers(nccl.ncclBroadcast(root == rank() ? shard.raw() : to, to, bytes, nccl::kUint8, root,
                                   ranks, stream.native()));
      });
      return answers.last();
    });
  }

  void gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                    const Stream& stream) override {
    if (is_host(stream)) return hosts_->gather_parts(values, counts, stream);
    check_counts(values, counts, size());
    check_device(values);
    const std::size_t each = size_of(values.dtype());
    const std::uint64_t sent = count_of(counts[at(rank())] * (size() - 1)) * each;
    call(values, sent, stream, [&](const auto& nccl, ncclComm* ranks) {
      Answers answers;
      std::int64_t first = 0;
      for (int root = 0; root < size(); ++root) {
        const std::int64_t count = counts[at(root)];
        char* const part = element(values, first);
        first += count;
        if (count == 0) continue;
        answers(nccl.ncclBroadcast(part, part, count_of(count) * each, nccl::kUint8, root, ranks,
                                   stream.native()));
      }
      return answers.last();
    });
  }

  void all_to_all(const Tensor& received, const std::vector<std::int64_t>& receive_counts,
                  const Tensor& sent, const std::vector<std::int64_t>& send_counts,
                  const Stream& stream) override {
    if (is_host(stream))
      return hosts_->all_to_all(received, receive_counts, sent, send_counts, stream);
    check_counts(received, receive_counts, size());
    check_counts(sent, send_counts, size());
    check_device(received);
    check_device(sent);
    const auto bytes = [](const Tensor& of, std::int64_t elements) {
      return count_of(elements) * size_of(of.dtype());
    };
    std::uint64_t bytes_sent = 0;
    for (int peer = 0; peer < size(); ++peer)
      bytes_sent += peer == rank() ? 0 : bytes(sent, send_counts[at(peer)]);
    enqueue(bytes_sent, stream, [&](const auto& nccl, ncclComm* ranks) {
      Answers answers;
      const char* from = static_cast<const char*>(sent.raw());
      char* to = static_cast<char*>(received.raw());
      for (int peer = 0; peer < size(); ++peer) {
        const std::size_t out = bytes(sent, send_counts[at(peer)]),
                          in = bytes(received, receive_counts[at(peer)]);
        if (out > 0) answers(nccl.ncclSend(from, out, nccl::kUint8, peer, ranks, stream.native()));
        if (in > 0) answers(nccl.ncclRecv(to, in, nccl::kUint8, peer, ranks, stream.native()));
        from += out;
        to += in;
      }
      return answers.last();
    });
  }

  void barrier() override { hosts_->barrier(); }
  std::vector<std::string> host_gather(std::string_view bytes) override {
    return hosts_->host_gather(bytes);
  }

  void abort(const std::string& reason) override {
    rank_.abort(concat("rank ", rank(), " gave up: ", reason));
    hosts_->abort(reason);
  }

  CommunicationUse use() const override {
    CommunicationUse use = hosts_->use();
    use.bytes_sent += device_use_.bytes_sent;
    use.calls += device_use_.calls;
    return use;
  }

  RankProgress call_progress() const override {
    const RankProgress hosts = hosts_->call_progress(), streams = progress_.so_far();
    return {0, hosts.entered + streams.entered, hosts.left + streams.left};
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  bool is_host(const Stream& stream) const { return stream.device().type == DeviceType::kCpu; }

  void check_device(const Tensor& tensor) const {
    if (tensor.elements() == 0 || tensor.device() == device_) return;
    throw DeviceError(concat("rank ", rank(), " communicates on ", name_of(device_),
                             " with NCCL, but the tensor is on ", name_of(tensor.device()),
                             "; move the tensor to the rank's device"));
  }

  template <class Call>
  void for_each_shard(const Tensor& values, const Call& call) const {
    for (int root = 0; root < size(); ++root) {
      const Shard part = shard_of(values.elements(), root, size());
      if (part.elements() > 0) call(root, part);
    }
  }

  /// Enqueues a collective with the same number of elements on each rank.
  template <class Calls>
  void call(const Tensor& values, std::uint64_t bytes_sent, const Stream& stream,
            const Calls& calls) {
    if (values.elements() > 0) return enqueue(bytes_sent, stream, calls);
    ++device_use_.calls;
  }

  template <class Calls>
  void enqueue(std::uint64_t bytes_sent, const Stream& stream, const Calls& calls) {
    progress_.begin(stream);
    rank_.enqueue(calls);
    progress_.end(stream);
    device_use_.bytes_sent += bytes_sent;
    ++device_use_.calls;
  }

  const std::unique_ptr<Communicator> hosts_;
  const Device device_;
  CommunicationUse device_use_;
  StreamProgress progress_;
  NcclRank rank_;  // ends first
};

/// Returns "2.28.9" for 22809.
std::string nccl_version_text(int version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

RankIntroduction introduce(Device device, const WantedLibrary& wanted,
                           std::optional<NcclLibrary>& library) {
  RankIntroduction mine{.host = host_name(), .device = {}, .version = {}, .problem = {}};
  try {
    library = NcclLibrary::open(wanted);
    mine.version = nccl_version_text(library->version());
    mine.device = cuda_runtime().properties(device.index).identity;
  } catch (const DeviceError& error) {
    mine.problem = error.what();
  }
  return mine;
}

}  // namespace

NcclLibrary NcclLibrary::open(const WantedLibrary& wanted) {
  NcclLibrary found;
  found.library_ = SharedLibrary::open(wanted);
  const auto ask = found.library_.function<nccl::Result(int*)>("ncclGetVersion");
  if (ask(&found.version_) != nccl::kSuccess || found.version_ < kMinNcclVersion)
    throw DeviceError(concat("NCCL: ", found.library_.path(), " is version ",
                             nccl_version_text(found.version_), ", want ",
                             nccl_version_text(kMinNcclVersion), " or newer; ", wanted.hint));
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
    return std::thread([shared = shared_, functions = library_.functions(),
                        poll_interval = limits_.poll_interval, device = CallerDevice()] {
      device.use();
      watch(shared, functions, poll_interval);
    });
  });
  try {
    start(id, rank, size);
  } catch (const RankLost& error) {
    abort(error.what());
    end_thread();
    throw DeviceError(concat("rank ", rank, " of ", size, " cannot start: ", error.what()));
  }
}

NcclRank::~NcclRank() {
  const bool is_normal_exit = std::uncaught_exceptions() == exceptions_;
  if (!is_normal_exit || !end()) abort("it has ended");
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
      throw RankLost(concat("NCCL did not connect to all ranks within ",
                            static_cast<double>(limits_.start.count()) / 1000,
                            " s; NCCL_DEBUG=INFO shows the missing ranks"));
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
    shared_->is_aborted = shared_->ends = true;  // nothing is left to check
    mark_lost(*shared_, "it has ended");
    return true;
  } catch (const RankLost&) {
    return false;
  }
}

/// Detaches a thread that does not return from NCCL.
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
    if (shared->communicator != nullptr) check_for_error(*shared, functions);
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

void NcclRank::check_for_error(Shared& shared, const nccl::Functions& functions) {
  nccl::Result state = nccl::kSuccess;
  const nccl::Result answer = functions.ncclCommGetAsyncError(shared.communicator, &state);
  if (!is_good(answer)) mark_lost(shared, text_of(answer, functions));
  if (!is_good(state)) mark_lost(shared, text_of(state, functions));
}

void NcclRank::mark_lost(Shared& shared, const std::string& reason) {
  if (std::exchange(shared.is_lost, true)) return;
  shared.reason = reason;
  shared.changed.notify_all();
}

bool NcclRank::abort(const std::string& reason) {
  std::unique_lock lock(shared_->mutex);
  mark_lost(*shared_, reason);
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
  mark_lost(*shared_, text_of(answer, library_.functions()));
  throw RankLost(shared_->reason);
}

/// Waits until NCCL has put the work on the stream.
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

std::unique_ptr<Communicator> start_nccl_communicator(std::unique_ptr<Communicator> hosts,
                                                      Device device, const WantedLibrary& wanted,
                                                      const NcclLimits& limits) {
  std::optional<NcclLibrary> library;
  check_introductions(introduce(device, wanted, library), *hosts);
  nccl::UniqueId id{};
  bool has_id = true;
  if (hosts->rank() == 0) has_id = library->functions().ncclGetUniqueId(&id) == nccl::kSuccess;
  const std::string ids = hosts->host_gather({id.bytes, has_id ? sizeof id.bytes : 0}).front();
  if (ids.size() != sizeof id.bytes)
    throw DeviceError(
        "NCCL: rank 0 got no id for the job: ncclGetUniqueId failed; NCCL_DEBUG=WARN shows the "
        "reason");
  std::memcpy(id.bytes, ids.data(), sizeof id.bytes);
  cuda_runtime().use(device.index);
  return std::make_unique<NcclCommunicator>(std::move(hosts), device, std::move(*library), id,
                                            limits);
}

}  // namespace hybrid_trainer
