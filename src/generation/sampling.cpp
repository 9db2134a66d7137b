#include "hybrid_trainer/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

namespace {

struct Candidate {
  double weight;  // unnormalized probability
  std::int32_t id;
};

bool less_likely(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight < b.weight : a.id > b.id;
}

std::int32_t likeliest(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

double sum_of_weights(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

/// Returns the likeliest candidates in descending order, up to `count` or a total of `weight`.
std::vector<Candidate> take_likeliest(std::vector<Candidate> heap, std::size_t count,
                                      double weight) {
  std::make_heap(heap.begin(), heap.end(), less_likely);
  std::vector<Candidate> taken;
  for (double sum = 0; taken.size() < count && (taken.empty() || sum < weight);) {
    std::pop_heap(heap.begin(), heap.end(), less_likely);
    taken.push_back(heap.back());
    sum += heap.back().weight;
    heap.pop_back();
  }
  return taken;
}

/// Penalizes each token once, however often it occurs.
std::vector<float> penalized(std::span<const float> logits, std::span<const std::int32_t> text,
                             double penalty) {
  std::vector<float> result(logits.begin(), logits.end());
  for (const std::int32_t token : text) {
    const auto at = static_cast<std::size_t>(token);
    const double logit = logits[at];
    result[at] = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
  return result;
}

/// Generates the standard exponential random numbers of a position, one per token.
class Exponentials {
 public:
  Exponentials(std::uint64_t seed, std::uint64_t position)
      : key_{seed, position, kSamplingSequence}, words_(philox(key_, 0)) {}
  double of(std::int32_t token) {
    const auto at = static_cast<std::uint64_t>(token);
    if (at / 4 != block_) words_ = philox(key_, block_ = at / 4);
    return -std::log((words_[at % 4] + 0.5) * 0x1p-32);
  }

 private:
  static constexpr std::uint64_t kSamplingSequence = 0x73616d706c65;
  RandomKey key_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> words_;
};

/// Returns the candidate with the smallest exponentially distributed time, whose rate is the
/// candidate's weight. This chooses each candidate with its probability.
std::int32_t first_to_come(const std::vector<Candidate>& candidates, Exponentials times) {
  Candidate first{-1, 0};
  for (const Candidate& candidate : candidates) {
    const Candidate rate{candidate.weight / times.of(candidate.id), candidate.id};
    if (less_likely(first, rate)) first = rate;
  }
  return first.id;
}

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

void forbid(std::span<float> scores, std::int32_t id) {
  if (id >= 0 && id < std::ssize(scores)) scores[static_cast<std::size_t>(id)] = kForbidden;
}

void demand(std::span<float> scores, std::int32_t id) {
  std::ranges::fill(scores, kForbidden);
  if (id >= 0 && id < std::ssize(scores)) scores[static_cast<std::size_t>(id)] = 0;
}

void penalize(std::span<float> scores, std::span<const std::int32_t> text, double penalty) {
  const auto factor = static_cast<float>(penalty);
  for (const std::int32_t id : std::set<std::int32_t>(text.begin(), text.end())) {
    if (id < 0 || id >= std::ssize(scores)) continue;
    float& score = scores[static_cast<std::size_t>(id)];
    score = score > 0 ? score / factor : score * factor;
  }
}

/// Forbids tokens that would repeat an n-gram of `count` tokens of the text.
void forbid_repetitions(std::span<float> scores, std::span<const std::int32_t> text,
                        std::int64_t count) {
  const std::int64_t length = std::ssize(text), before = count - 1;
  const auto end = text.last(static_cast<std::size_t>(std::min(before, length)));
  for (std::int64_t first = 0; first + before < length; ++first)
    if (std::ranges::equal(text.subspan(static_cast<std::size_t>(first), end.size()), end))
      forbid(scores, text[static_cast<std::size_t>(first + before)]);
}

}  // namespace

void check(const SamplingSettings& settings) {
  std::string problems;
  const auto add = [&](const std::string& problem) {
    problems += (problems.empty() ? "" : "\n") + problem;
  };
  if (!(settings.temperature >= 0 && std::isfinite(settings.temperature)))
    add(concat("temperature: got ", settings.temperature, ", want 0 (greedy) or more"));
  if (settings.top_k < 0)
    add(concat("top-k: got ", settings.top_k, ", want 0 (all tokens) or more"));
  if (!(settings.top_p > 0 && settings.top_p <= 1))
    add(concat("top-p: got ", settings.top_p, ", want (0, 1]; 1 keeps all tokens"));
  if (!(settings.min_p >= 0 && settings.min_p <= 1))
    add(concat("min-p: got ", settings.min_p, ", want [0, 1]; 0 keeps all tokens"));
  if (!(settings.repetition_penalty > 0 && std::isfinite(settings.repetition_penalty))) {
    add(concat("repetition-penalty: got ", settings.repetition_penalty,
               ", want more than 0; 1 disables it, above 1 reduces repetition"));
  }
  if (!problems.empty()) throw UsageError(problems);
}

std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings,
                          std::uint64_t position, std::span<const std::int32_t> text) {
  require(!logits.empty(), "sample_token: no logits");
  for (float logit : logits) {
    if (!(logit < INFINITY))
      throw DataError("the model's logits are not finite; its weights are damaged");
  }
  std::vector<float> changed;
  if (settings.repetition_penalty != 1) {
    changed = penalized(logits, text, settings.repetition_penalty);
    logits = changed;
  }
  const std::int32_t best = likeliest(logits);
  if (settings.temperature == 0) return best;

  const double highest = logits[static_cast<std::size_t>(best)];
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates[i] = {std::exp((logits[i] - highest) / settings.temperature),
                     static_cast<std::int32_t>(i)};
  }
  const auto top_k = static_cast<std::size_t>(settings.top_k);
  if (top_k > 0 && top_k < candidates.size())
    candidates = take_likeliest(std::move(candidates), top_k, INFINITY);
  if (settings.top_p < 1) {
    const double weight = settings.top_p * sum_of_weights(candidates);
    const std::size_t count = candidates.size();
    candidates = take_likeliest(std::move(candidates), count, weight);
  }
  std::erase_if(candidates, [&](const Candidate& one) { return one.weight < settings.min_p; });

  return first_to_come(candidates, {settings.seed, position});
}

void TokenConstraints::apply(std::span<float> scores, std::span<const std::int32_t> text) const {
  const std::int64_t length = std::ssize(text);
  for (std::int64_t id = words > 0 ? words : std::ssize(scores); id < std::ssize(scores); ++id)
    scores[static_cast<std::size_t>(id)] = kForbidden;
  if (repetition_penalty != 1) penalize(scores, text, repetition_penalty);
  if (no_repeat_ngram > 0 && length >= no_repeat_ngram)
    forbid_repetitions(scores, text, no_repeat_ngram);
  if (length < std::max(min_new_tokens > 0 ? begun + min_new_tokens : 0, least))
    for (const std::int32_t id : end_tokens) forbid(scores, id);
  if (first && length == 1) demand(scores, *first);
  if (last && length == longest - 1) demand(scores, *last);
  for (const std::int32_t id : suppressed) forbid(scores, id);
  const bool follows_first = begun == 1 && first.has_value();
  if (length == begun + (follows_first ? 1 : 0))
    for (const std::int32_t id : suppressed_first) forbid(scores, id);
}

}  // namespace hybrid_trainer
