#include "src/distributed/decorated_communicator.h"

#include "src/core/clock.h"
#include "src/core/process.h"

namespace hybrid_trainer {

void DecoratedCommunicator::all_gather(const Tensor& values, const Tensor& shard,
                                       const Stream& stream) {
  make(&stream, [&] { ranks_.all_gather(values, shard, stream); });
}

void DecoratedCommunicator::gather_parts(const Tensor& values,
                                         const std::vector<std::int64_t>& counts,
                                         const Stream& stream) {
  make(&stream, [&] { ranks_.gather_parts(values, counts, stream); });
}

void DecoratedCommunicator::all_to_all(const Tensor& received,
                                       const std::vector<std::int64_t>& receive_counts,
                                       const Tensor& sent,
                                       const std::vector<std::int64_t>& send_counts,
                                       const Stream& stream) {
  make(&stream, [&] { ranks_.all_to_all(received, receive_counts, sent, send_counts, stream); });
}

void DecoratedCommunicator::barrier() {
  make(nullptr, [&] { ranks_.barrier(); });
}

std::vector<std::string> DecoratedCommunicator::host_gather(std::string_view bytes) {
  std::vector<std::string> all;
  make(nullptr, [&] { all = ranks_.host_gather(bytes); });
  return all;
}

namespace {

class ExposedTime {
 public:
  explicit ExposedTime(std::atomic<double>& seconds) : seconds_(seconds) {}
  ~ExposedTime() { seconds_ = seconds_ + seconds_since(begin_); }
  ExposedTime(const ExposedTime&) = delete;
  ExposedTime& operator=(const ExposedTime&) = delete;

 private:
  std::atomic<double>& seconds_;
  const Clock::time_point begin_ = Clock::now();
};

/// Maximum time between counts of progress, so that a slow link does not look like a stuck rank.
constexpr std::chrono::milliseconds kSlice{500};

constexpr int kBarriers = 101, kRounds = 7;
constexpr std::int64_t kBytesPerRank = 8 << 20;

template <class Call>
std::vector<double> seconds_of(int times, const Call& call) {
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    call();
    seconds.push_back(seconds_since(begin));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

double largest_of_all(double mine, Communicator& ranks) {
  double largest = mine;
  for (const auto& theirs : gather_numbers<double>({&mine, 1}, ranks))
    largest = std::max(largest, theirs.at(0));
  return largest;
}

}  // namespace

void BackgroundCommunicator::make(const Stream*, const std::function<void()>& call) {
  const ExposedTime exposed(exposed_seconds_);
  worker_.wait_until_idle();
  call();
}

BackgroundCommunicator::~BackgroundCommunicator() {
  if (std::uncaught_exceptions() > exceptions_) ranks().interrupt();
}

/// Does not store the caller's stream, because it may be destroyed after an error.
CollectiveTicket BackgroundCommunicator::begin(CollectiveJob job, const Stream& stream) {
  if (!background_) {
    make(&stream, [&] { job(ranks(), stream); });
    return 0;
  }
  if (worker_.submitted() == 0) worker_.submit([] { use_short_time_slices(); });
  worker_.submit([this, job = std::move(job), own = std::make_shared<Stream>(stream.pool())] {
    job(ranks(), *own);
  });
  return worker_.submitted();
}

void BackgroundCommunicator::wait_for(CollectiveTicket job, const Stream&) {
  const ExposedTime exposed(exposed_seconds_);
  worker_.wait_until_done(job);
}

CommunicationUse BackgroundCommunicator::use() const {
  CommunicationUse use = ranks().use();
  use.exposed_seconds = exposed_seconds_;
  return use;
}

SideStreamCommunicator::~SideStreamCommunicator() {
  if (!side_stream_ || std::uncaught_exceptions() > exceptions_) return;
  try {
    side_stream_->synchronize();
  } catch (const DeviceError&) {  // other users of the device report it
  }
}

CollectiveTicket SideStreamCommunicator::begin(CollectiveJob job, const Stream& stream) {
  if (!side_stream_) side_stream_.emplace(stream.pool());
  begin_.record(stream);
  side_stream_->order_after(begin_);
  job(ranks(), *side_stream_);
  Event end;
  end.record(*side_stream_);
  begun_.push_back({++last_, stream.native(), std::move(job), std::move(end)});
  return last_;
}

/// Jobs end in order, so waiting for one job also waits for all earlier ones. The last job's entry
/// is kept, without the job itself, for later calls on other streams.
void SideStreamCommunicator::wait_for(CollectiveTicket job, const Stream& stream) {
  const auto later = std::find_if(begun_.begin(), begun_.end(),
                                  [&](const Begun& one) { return one.ticket > job; });
  if (later == begun_.begin()) return;
  stream.order_after(std::prev(later)->end);
  std::for_each(begun_.begin(), later, [&](Begun& one) {
    if (one.caller == stream.native()) one.job = {};
  });
  while (begun_.size() > 1 && !begun_.front().job) begun_.pop_front();
}

void SideStreamCommunicator::make(const Stream* stream, const std::function<void()>& call) {
  if (stream != nullptr && stream->device().type == DeviceType::kCuda) wait_for(last_, *stream);
  call();
}

void SimulatedLink::make(const Stream*, const std::function<void()>& call) {
  const CommunicationUse before = ranks().use();
  call();
  const CommunicationUse after = ranks().use();
  const auto bytes = static_cast<double>(
      std::max(after.bytes_sent - before.bytes_sent, after.bytes_received - before.bytes_received));
  const double seconds = speed_.bytes_per_second > 0 ? bytes / speed_.bytes_per_second : 0;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      speed_.latency + std::chrono::duration<double>(seconds));
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    std::this_thread::sleep_for(std::min<Clock::duration>(end - now, kSlice));
    count_progress();
  }
}

LinkSpeed measure_link(Communicator& ranks, const Stream& stream) {
  require(ranks.size() > 1, "a simulated link needs at least two ranks");
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()), kBytesPerRank);
  counts[static_cast<std::size_t>(ranks.rank())] = 0;
  const std::int64_t bytes = kBytesPerRank * (ranks.size() - 1);
  const Tensor sent = Tensor::zeros({bytes}, DType::kU8, MemoryKind::kWorkspace, stream);
  const Tensor received = Tensor::zeros({bytes}, DType::kU8, MemoryKind::kWorkspace, stream);
  ranks.barrier();
  const auto barriers = seconds_of(kBarriers, [&] { ranks.barrier(); });
  const auto rounds =
      seconds_of(kRounds, [&] { ranks.all_to_all(received, counts, sent, counts, stream); });
  const double best = largest_of_all(rounds.front(), ranks);
  return {.bytes_per_second = static_cast<double>(bytes) / best,
          .latency =
              std::chrono::duration<double>(largest_of_all(barriers[barriers.size() / 2], ranks))};
}

}  // namespace hybrid_trainer
