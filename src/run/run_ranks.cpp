#include "src/run/run_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <string_view>
#include <thread>

#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/core/progress.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/generation/evaluation.h"
#include "src/run/rank_agreement.h"

namespace hybrid_trainer {
namespace {

/// A rank that waits for a file is not stuck.
void wait_for(std::chrono::milliseconds pause) {
  count_progress();
  std::this_thread::sleep_for(pause);
}

/// What a rank tells after a step.
struct StepWord {
  double stops = 0, saves = 0, computed = 0;
};

template <class Word>
std::vector<Word> words_of(const std::vector<std::string>& all) {
  std::vector<Word> words(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    std::memcpy(&words[rank], all[rank].data(), sizeof(Word));
  return words;
}

template <class Word>
std::string bytes_of(const Word& word) {
  return {reinterpret_cast<const char*>(&word), sizeof(Word)};
}

}  // namespace

std::vector<std::string> RunRanks::gather(const std::string& mine) const {
  return ranks_ == nullptr ? std::vector{mine} : ranks_->host_gather(mine);
}

EvaluationResult RunRanks::evaluate(LossModel& model, EvaluationBatches& batches,
                                    const HybridTrainerConfig& config, const Stream& stream) const {
  EvaluationShare share;
  if (are_several()) {
    share = {.index = ranks_->rank(),
             .count = ranks_->size(),
             .gather = [&](std::string_view own) { return ranks_->host_gather(own); },
             .in_step = config.distributed.zero == 3};
  }
  return hybrid_trainer::evaluate(model, batches, DType::kF32, stream, share,
                                  config.memory.segment_length);
}

/// A rank of the job before this one may still be ending when its launcher has ended.
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

/// Whether the file gets this text: a folder of another machine may show it late (NFS).
static bool comes_to_hold(const std::string& file, const std::string& text) {
  constexpr std::chrono::milliseconds kLongest{10000}, kPause{100};
  for (const auto end = std::chrono::steady_clock::now() + kLongest;;) {
    try {
      if (read_file(file, 2 * text.size()) == text) return true;
    } catch (const Error&) {  // not there yet, or another's
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
  const bool sees = lead() || comes_to_hold(file, nonce);
  const std::vector<std::string> hosts = gather(sees ? "" : host_name());
  if (lead()) std::filesystem::remove(file);
  const auto blind = std::ranges::find_if(hosts, [](const auto& one) { return !one.empty(); });
  if (blind == hosts.end()) return;
  throw UsageError(concat("--run ", run, " is not one folder for all ranks: rank ",
                          blind - hosts.begin(), " on ", *blind, " does not see what rank 0 wrote ",
                          "into it; name a folder that all machines share, by the same path"));
}

RunDirectory RunRanks::open(const TrainingRunSettings& settings, const HybridTrainerConfig& config,
                            const Task& task) const {
  const std::string run = settings.run.string();
  const RunMode mode = settings.resume ? RunMode::kResume : RunMode::kNew;
  if (ranks_ == nullptr) return {run, mode};
  check_same_surroundings(*this, config, task.facts());
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

StepWish RunRanks::agree(StepWish here) {
  if (hosts_.empty()) hosts_ = gather(host_name());
  const StepWord mine{here.stops ? 1.0 : 0.0, here.saves ? 1.0 : 0.0, computed_};
  const std::vector<StepWord> words = words_of<StepWord>(gather(bytes_of(mine)));
  StepWish common{.saves = words.front().saves > 0};
  std::vector<double> computed;
  for (const StepWord& word : words) {
    common.stops |= word.stops > 0;
    computed.push_back(word.computed);
  }
  pace_.add(computed);
  has_heard_ = true;
  return common;
}

/// Of a device its streams wait, unseen.
std::optional<double> RunRanks::exposed_seconds() const {
  if (ranks_ == nullptr || ranks_->name() == std::string_view("nccl")) return {};
  return ranks_->use().exposed_seconds;
}

void RunRanks::begin_step() { exposed_before_ = exposed_seconds(); }

/// Of unequal shares of the micro-batches the seconds say nothing about a rank; with zero 2 and 3 one
/// that has fewer repeats one.
void RunRanks::end_step(const HybridTrainerConfig& config, StepRecord& record) {
  if (!are_several()) return;
  const std::optional<double> exposed = exposed_seconds();
  const bool is_even = config.distributed.zero >= 2 ||
                       config.gradient_accumulation.micro_batches % ranks_->size() == 0;
  computed_ =
      is_even && exposed && exposed_before_ ? record.seconds - (*exposed - *exposed_before_) : 0;
  if (!std::exchange(has_heard_, false)) return;
  if (const auto slow = pace_.lately()) {
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
                                  .imitated_link = imitated_link_text(config.distributed),
                                  .lost_rank = lost_rank};
  if (const auto slow = pace_.overall()) {
    summary.slowest_rank = name_of(*slow);
    summary.slowest_rank_ratio = slow->ratio;
  }
  return summary;
}

void RunRanks::agree_on_processor(std::ostream& console) const {
  if (!are_several()) return;
  const auto all = words_of<ProcessorUse>(ranks_->host_gather(bytes_of(processor_use())));
  const auto other = std::ranges::find_if(all, [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  const ProcessorUse common = common_processor_use(all);
  hold_processor_to(common);
  if (!lead()) return;
  console << concat("processors of ranks differ, and all compute with what all have (",
                    text_of(common), "): rank 0 has ", text_of(all[0]), ", rank ",
                    other - all.begin(), " ", text_of(*other), "\n")
          << std::flush;
}

std::int64_t RunRanks::of_first(std::int64_t here) const {
  return std::stoll(gather(std::to_string(here)).front());
}

}  // namespace hybrid_trainer