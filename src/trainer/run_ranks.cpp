#include "src/trainer/run_ranks.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/io/checksum.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {
namespace {

constexpr char kFactEnd = '\0';

/// The value of fact number `index`.
std::string value_in(const std::string& facts, std::size_t index) {
  std::size_t begin = 0;
  for (; index > 0 && begin < facts.size(); --index) begin = facts.find(kFactEnd, begin) + 1;
  return facts.substr(begin, facts.find(kFactEnd, begin) - begin);
}

/// A long value, such as a whole configuration, from where it begins to differ.
std::string shown(const std::string& value, const std::string& other) {
  constexpr std::ptrdiff_t kMost = 60, kBefore = 20;
  const auto differs = std::mismatch(value.begin(), value.end(), other.begin(), other.end()).first;
  const auto begin = std::max<std::ptrdiff_t>(0, differs - value.begin() - kBefore);
  return value.size() <= kMost
             ? value
             : concat("...", value.substr(static_cast<std::size_t>(begin), kMost), "...");
}

}  // namespace

std::vector<std::string> RunRanks::gather(const std::string& mine) const {
  return ranks_ == nullptr ? std::vector{mine} : ranks_->host_gather(mine);
}

/// A rank of the job before this one may still be ending when its launcher has ended.
static RunDirectory open_when_free(const std::string& folder) {
  constexpr std::chrono::milliseconds kLongest{15000}, kPause{50};
  for (const auto end = std::chrono::steady_clock::now() + kLongest;;) {
    try {
      return {folder, RunMode::kResume};
    } catch (const InUse&) {
      if (std::chrono::steady_clock::now() > end) throw;
      std::this_thread::sleep_for(kPause);
    }
  }
}

RunDirectory RunRanks::open(const std::string& run, RunMode mode) const {
  if (ranks_ == nullptr) return {run, mode};
  if (lead()) {
    RunDirectory directory =
        mode == RunMode::kResume ? open_when_free(run) : RunDirectory(run, mode);
    ranks_->barrier();
    return directory;
  }
  ranks_->barrier();
  return open_when_free(concat(run, "/ranks/", ranks_->rank()));
}

std::ostream& RunRanks::console(std::ostream& console, const RunPaths& own) {
  if (lead()) return console;
  log_.open(own.root + "/log.txt", std::ios::app);
  return log_;
}

bool RunRanks::on_any(bool here) const {
  const std::vector<std::string> all = gather(here ? "1" : "0");
  return std::find(all.begin(), all.end(), "1") != all.end();
}

std::int64_t RunRanks::of_first(std::int64_t here) const {
  return std::stoll(gather(std::to_string(here)).front());
}

std::optional<std::string> RunRanks::first_difference(const std::vector<RankFact>& facts) const {
  std::string mine;
  for (const auto& [name, value] : facts) mine += value + kFactEnd;
  const std::vector<std::string> all = gather(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (std::size_t i = 0; i < facts.size(); ++i) {
      const std::string first = value_in(all.front(), i), other = value_in(all[rank], i);
      if (first == other) continue;
      return concat("rank ", rank, " differs from rank 0 in ", facts[i].first, ": ",
                    shown(other, first), ", want ", shown(first, other));
    }
  }
  return {};
}

void RunRanks::check_same(const std::vector<RankFact>& facts) const {
  if (const auto difference = first_difference(facts)) throw UsageError(*difference);
}

static std::vector<RankFact> weights_after(std::int64_t steps_done, LossModel& model,
                                           const Stream& stream) {
  Checksum weights;
  model.visit_parameters([&](Parameter& parameter) {
    if (!parameter.trainable()) return;
    const Weight master = parameter.acquire_master(stream);
    const Tensor values = wait_for_host(master, stream);
    weights.add(values.raw(), values.bytes());
  });
  return {{"the step that it goes on from", concat(steps_done)},
          {"the checksum of its weights", weights.text()}};
}

void RunRanks::check_same_start(std::int64_t steps_done, LossModel& model,
                                const Stream& stream) const {
  if (are_several()) check_same(weights_after(steps_done, model, stream));
}

void RunRanks::check_same_weights(std::int64_t steps_done, LossModel& model,
                                  const Stream& stream) const {
  if (!are_several()) return;
  if (const auto difference = first_difference(weights_after(steps_done, model, stream))) {
    throw RankLost(concat("after step ", steps_done, " ", *difference,
                          ": memory or processor of one of them has failed; --resume goes on from "
                          "the checkpoint before"));
  }
}

void check_same_run_of(const RunRanks& ranks, const HybridTrainerConfig& config,
                       const RunData& data, bool resumes) {
  ranks.check_same({{"its version", project_version()},
                    {"the configuration", config_json(config)},
                    {"threads", concat(threads())},
                    {"the instruction set", name_of(instruction_set())},
                    {"tokens of the data", concat(data.train_tokens)},
                    {"the data's checksum", data.checksum},
                    {"whether the run's folder holds a run", resumes ? "yes" : "no"}});
}

}  // namespace hybrid_trainer
