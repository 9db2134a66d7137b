#include "src/run/run_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "hybrid_trainer/files/input_file.h"
#include "src/core/machine.h"
#include "src/core/process.h"
#include "src/files/checksum.h"
#include "src/files/config_fields.h"
#include "src/files/output_file.h"

namespace hybrid_trainer {

namespace {

/// Sleeps and reports progress, because a rank that waits for a file is not stuck.
void wait_for(std::chrono::milliseconds pause) {
  count_progress();
  std::this_thread::sleep_for(pause);
}

struct StepMessage {
  double stops = 0, saves = 0, computed = 0;
};

template <class Message>
std::vector<Message> messages_of(const std::vector<std::string>& all) {
  std::vector<Message> messages(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    std::memcpy(&messages[rank], all[rank].data(), sizeof(Message));
  return messages;
}

template <class Message>
std::string bytes_of(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof(Message)};
}

constexpr char kFactEnd = '\0';

std::string value_in(const std::string& facts, std::size_t index) {
  std::size_t begin = 0;
  for (; index > 0 && begin < facts.size(); --index) begin = facts.find(kFactEnd, begin) + 1;
  return facts.substr(begin, facts.find(kFactEnd, begin) - begin);
}

/// Returns an excerpt of a long value, such as a whole configuration, around the first difference.
std::string shown(const std::string& value, const std::string& other) {
  constexpr std::ptrdiff_t kMax = 60, kBefore = 20;
  const auto differs = std::mismatch(value.begin(), value.end(), other.begin(), other.end()).first;
  const auto begin = std::max<std::ptrdiff_t>(0, differs - value.begin() - kBefore);
  return value.size() <= kMax
             ? value
             : concat("...", value.substr(static_cast<std::size_t>(begin), kMax), "...");
}

void add_keys(const std::string& path, const FieldNode& group, std::vector<NamedText>& facts) {
  for (const FieldNode& field : group.fields) {
    const std::string at = path.empty() ? field.name : path + "." + field.name;
    if (field.is_group()) {
      add_keys(at, field, facts);
    } else {
      facts.emplace_back("the configuration: " + at,
                         field.left_out ? "left out" : field_text(field));
    }
  }
}

std::vector<NamedText> with_keys_of(const HybridTrainerConfig& config,
                                    std::vector<NamedText> facts) {
  add_keys("", field_tree(config), facts);
  facts.emplace_back("the configuration", config_json(config));  // exact to the last digit
  return facts;
}

/// Describes the first fact in which a rank differs from the majority or, if there is no majority,
/// from the first rank. Returns nullopt if the ranks are equal.
std::optional<std::string> first_difference(const RunRanks& ranks,
                                            const std::vector<NamedText>& facts) {
  std::string mine;
  for (const auto& [name, value] : facts) mine += value + kFactEnd;
  const std::vector<std::string> all = ranks.gather(mine);
  const auto count_equal = [&](const std::string& one) { return std::ranges::count(all, one); };
  const auto most = std::ranges::max_element(all, {}, count_equal);
  const auto outlier = std::ranges::find_if(all, [&](const auto& one) { return one != *most; });
  if (outlier == all.end()) return {};
  const std::vector<std::string> hosts = ranks.gather(host_name());
  std::size_t i = 0;
  while (i + 1 < facts.size() && value_in(*outlier, i) == value_in(*most, i)) ++i;
  const auto name_of_rank = [&](const auto& one) {
    const auto rank = one - all.begin();
    return concat("rank ", rank, " (", hosts[static_cast<std::size_t>(rank)], ")");
  };
  const std::string got = value_in(*outlier, i), want = value_in(*most, i);
  const std::string agreement =
      count_equal(*most) > 1 ? concat(" (", count_equal(*most), " of ", all.size(), " ranks agree)")
                             : "";
  return concat(name_of_rank(outlier), " differs from ", name_of_rank(most), " in ", facts[i].first,
                ": ", shown(got, want), ", want ", shown(want, got), agreement);
}

void check_same(const RunRanks& ranks, const std::vector<NamedText>& facts) {
  if (const auto difference = first_difference(ranks, facts)) throw UsageError(*difference);
}

std::vector<NamedText> weights_after(std::int64_t steps_done, LossModel& model,
                                     const Stream& stream) {
  std::vector<NamedText> facts{{"the step to resume from", concat(steps_done)}};
  model.visit_parameters([&](Parameter& parameter) {
    if (!parameter.trainable()) return;
    const Weight master = parameter.acquire_master(stream);
    const Tensor values = wait_for_host(master, stream);
    Checksum checksum;
    checksum.add(values.raw(), values.bytes());
    facts.emplace_back("the weight " + parameter.name(), checksum.text());
  });
  return facts;
}

std::string program_checksum() {
  static const std::string once =
      checksum_of(read_file("/proc/self/exe", std::numeric_limits<std::size_t>::max()));
  return once;
}

}  // namespace

std::vector<std::string> RunRanks::gather(const std::string& mine) const {
  return ranks_ == nullptr ? std::vector{mine} : ranks_->host_gather(mine);
}

EvaluationResult RunRanks::evaluate(LossModel& model, const OrderedBatches& batches,
                                    const HybridTrainerConfig& config, const Stream& stream) const {
  EvaluationShare share;
  if (are_several()) {
    share = {.index = ranks_->rank(),
             .count = ranks_->size(),
             .gather = [&](std::string_view own) { return ranks_->host_gather(own); },
             .in_step = config.distributed.zero == 3};
  }
  return hybrid_trainer::evaluate(model, batches, DType::kF32, stream, share,
                                  config.memory.segment_length,
                                  config.evaluation_batch() / config.data.batch_size);
}

/// Opens the folder. First waits for ranks of a previous job that outlived their launcher.
static RunDirectory open_when_free(const std::string& folder) {
  constexpr std::chrono::milliseconds kLongest{15000}, kPause{50};
  for (const auto end = std::chrono::steady_clock::now() + kLongest;;) {
    try {
      return {folder, RunMode::kResume};
    } catch (const InUse&) {
      if (std::chrono::steady_clock::now() > end) throw;
      wait_for(kPause);
    }
  }
}

/// Waits until the file has this text, which may take time on NFS. Returns false after a timeout.
static bool wait_for_content(const std::string& file, const std::string& text) {
  constexpr std::chrono::milliseconds kLongest{10000}, kPause{100};
  for (const auto end = std::chrono::steady_clock::now() + kLongest;;) {
    try {
      if (read_file(file, 2 * text.size()) == text) return true;
    } catch (const Error&) {  // not visible yet, or another file
    }
    if (std::chrono::steady_clock::now() > end) return false;
    wait_for(kPause);
  }
}

void RunRanks::check_shared(const std::string& run) const {
  const std::string file = run + "/.tmp-ranks";
  std::random_device device;
  std::string nonce = concat(device(), "-", device());
  if (lead()) replace_file(file, nonce);
  nonce = gather(lead() ? nonce : "").front();
  const bool sees = lead() || wait_for_content(file, nonce);
  const std::vector<std::string> hosts = gather(sees ? "" : host_name());
  if (lead()) std::filesystem::remove(file);
  const auto failing_host =
      std::ranges::find_if(hosts, [](const auto& one) { return !one.empty(); });
  if (failing_host == hosts.end()) return;
  throw UsageError(concat("--run ", run, " is not a shared folder: rank ",
                          failing_host - hosts.begin(), " on ", *failing_host,
                          " does not find rank 0's files in it; use a folder that all machines "
                          "share under the same path"));
}

static void check_same_environment(const RunRanks& ranks, const HybridTrainerConfig& config,
                                   std::vector<NamedText> facts) {
  facts.insert(facts.begin(),
               {{"threads", concat(threads())}, {"ONEDNN_MAX_CPU_ISA", onednn_limit_of_user()}});
  check_same(ranks, with_keys_of(config, std::move(facts)));
}

RunDirectory RunRanks::open(const TrainingRunSettings& settings, const HybridTrainerConfig& config,
                            const Task& task) const {
  const std::string run = settings.run.string();
  const RunMode mode = settings.resume ? RunMode::kResume : RunMode::kNew;
  if (ranks_ == nullptr) return {run, mode};
  check_same_environment(*this, config, task.facts());
  if (lead()) {
    RunDirectory directory =
        mode == RunMode::kResume ? open_when_free(run) : RunDirectory(run, mode);
    check_shared(run);
    return directory;
  }
  check_shared(run);
  return open_when_free(concat(run, "/ranks/", ranks_->rank()));
}

std::ostream& RunRanks::console(std::ostream& console, const RunPaths& own) {
  if (lead()) return console;
  log_.open(own.root + "/log.txt", std::ios::app);
  return log_;
}

StepVote RunRanks::agree(StepVote here) {
  if (hosts_.empty()) hosts_ = gather(host_name());
  const StepMessage mine{here.stops ? 1.0 : 0.0, here.saves ? 1.0 : 0.0, computed_};
  const std::vector<StepMessage> messages = messages_of<StepMessage>(gather(bytes_of(mine)));
  StepVote common{.saves = messages.front().saves > 0};
  std::vector<double> computed;
  for (const StepMessage& message : messages) {
    common.stops |= message.stops > 0;
    computed.push_back(message.computed);
  }
  stragglers_.add(computed);
  has_exchanged_ = true;
  return common;
}

/// Returns nullopt for NCCL, which waits on the device's streams: that time is not measured.
std::optional<double> RunRanks::exposed_seconds() const {
  if (ranks_ == nullptr || ranks_->name() == std::string_view("nccl")) return {};
  return ranks_->use().exposed_seconds;
}

void RunRanks::begin_step() { exposed_before_ = exposed_seconds(); }

/// Measures this rank's seconds only if the ranks have equal shares of the micro-batches. With zero
/// 2 and 3 they always have equal shares, because a rank with fewer micro-batches repeats one.
void RunRanks::end_step(const HybridTrainerConfig& config, StepRecord& record) {
  if (!are_several()) return;
  const std::optional<double> exposed = exposed_seconds();
  const bool is_even = config.distributed.zero >= 2 ||
                       config.gradient_accumulation.micro_batches % ranks_->size() == 0;
  computed_ =
      is_even && exposed && exposed_before_ ? record.seconds - (*exposed - *exposed_before_) : 0;
  if (!std::exchange(has_exchanged_, false)) return;
  if (const auto slow = stragglers_.recent()) {
    record.slowest_rank = name_of(*slow);
    record.slowest_rank_ratio = slow->ratio;
  }
}

std::string RunRanks::name_of(const SlowRank& slow) const {
  return concat(slow.rank, " on ", hosts_.at(static_cast<std::size_t>(slow.rank)));
}

RunSummary::Distributed RunRanks::summary(const HybridTrainerConfig& config,
                                          const std::string& lost_rank) const {
  RunSummary::Distributed summary{.ranks = ranks_->size(),
                                  .zero = config.distributed.zero,
                                  .backend = ranks_->name(),
                                  .bytes_sent = ranks_->use().bytes_sent,
                                  .exposed_seconds = exposed_seconds(),
                                  .simulated_link = simulated_link_text(config.distributed),
                                  .lost_rank = lost_rank};
  if (const auto slow = stragglers_.overall()) {
    summary.slowest_rank = name_of(*slow);
    summary.slowest_rank_ratio = slow->ratio;
  }
  return summary;
}

void RunRanks::agree_on_processor(std::ostream& console) const {
  if (!are_several()) return;
  const auto all = messages_of<ProcessorUse>(ranks_->host_gather(bytes_of(processor_use())));
  const auto other = std::ranges::find_if(all, [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  const ProcessorUse common = common_processor_use(all);
  limit_instruction_set(common);
  if (!lead()) return;
  console << concat("the ranks' CPUs differ, and all ranks use the common instruction set (",
                    text_of(common), "): rank 0 has ", text_of(all[0]), ", rank ",
                    other - all.begin(), " ", text_of(*other), "\n")
          << std::flush;
}

std::int64_t RunRanks::value_of_first(std::int64_t here) const {
  return std::stoll(gather(std::to_string(here)).front());
}

void check_same_call(const RunRanks& ranks, const HybridTrainerConfig& config, bool resume) {
  if (!ranks.are_several()) return;
  check_same(ranks, with_keys_of(config, {{"its version", project_version()},
                                          {"the checksum of its program", program_checksum()},
                                          {"--resume", resume ? "given" : "not given"}}));
}

void check_same_start(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                      const Stream& stream) {
  if (ranks.are_several()) check_same(ranks, weights_after(steps_done, model, stream));
}

void check_same_weights(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                        const Stream& stream) {
  if (!ranks.are_several()) return;
  if (const auto difference = first_difference(ranks, weights_after(steps_done, model, stream))) {
    throw RankLost(concat("after step ", steps_done, " ", *difference,
                          ", so the memory or CPU of one of them is faulty; --resume continues "
                          "from the last checkpoint"));
  }
}

}  // namespace hybrid_trainer
