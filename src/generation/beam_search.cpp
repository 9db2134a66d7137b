#include "src/generation/beam_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hybrid_trainer {

namespace {

/// Score that transformers gives to a text that must not be chosen.
constexpr float kWorst = -1e9F;

using Tokens = std::vector<std::int32_t>;

/// A text of the search and the sum of its tokens' log-likelihoods.
struct Beam {
  Tokens text;
  float score = kWorst;
  std::int64_t parent = 0;  // index of the beam that it extends
  bool has_ended = false;
};

/// A finished text, or an empty slot; its score includes the length penalty.
struct FinishedBeam {
  Tokens text;
  float score = kWorst;
  bool has_ended = false;
};

void to_log_likelihoods(std::span<const float> logits, std::vector<float>& scores) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  const auto log_sum = static_cast<float>(std::log(sum));
  scores.resize(logits.size());
  std::ranges::transform(logits, scores.begin(),
                         [&](float logit) { return logit - largest - log_sum; });
}

bool contains(const Tokens& tokens, std::int32_t id) {
  return std::ranges::find(tokens, id) != tokens.end();
}

class Beams {
 public:
  Beams(std::span<const std::int32_t> prefix, std::int64_t count, const BeamSettings& settings)
      : settings_(settings), begun_(std::ssize(prefix)) {
    const Tokens text(prefix.begin(), prefix.end());
    running_.assign(static_cast<std::size_t>(count), {.text = text});
    running_.front().score = 0;  // the others would duplicate it
    ended_.assign(static_cast<std::size_t>(count), {.text = text});
  }

  const std::vector<Beam>& running() const { return running_; }
  const Tokens& best() const { return ended_.front().text; }

  /// Selects the next tokens of all beams. `scores` (beams · vocabulary) are total scores, which
  /// include the beams' previous scores. Returns whether the search continues.
  bool advance(std::span<const float> scores) {
    const std::vector<Beam> candidates = best_of(scores);
    select_running(candidates);
    select_finished(candidates);
    const auto ended = [](const auto& beam) { return beam.has_ended; };
    improves_ = improves_ && may_improve();
    const bool is_enough =
        settings_.end == EarlyStopping::kEnough && std::ranges::all_of(ended_, ended);
    return improves_ && !is_enough && !std::ranges::all_of(candidates, ended);
  }

 private:
  std::size_t count() const { return running_.size(); }
  std::int64_t length() const { return std::ssize(running_.front().text); }
  float penalty(std::int64_t tokens) const {
    return static_cast<float>(std::pow(static_cast<double>(tokens), settings_.length_penalty));
  }

  /// Returns the best candidates, enough to continue even if the best ones all end.
  std::vector<Beam> best_of(std::span<const float> scores) const {
    const std::size_t vocabulary = scores.size() / count();
    const std::size_t kept = std::min(
        scores.size(), std::max<std::size_t>(2, 1 + settings_.end_tokens.size()) * count());
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto is_better = [&](std::size_t a, std::size_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                      is_better);
    std::vector<Beam> best;
    for (std::size_t i = 0; i < kept; ++i) {
      const std::size_t parent = order[i] / vocabulary;
      const auto token = static_cast<std::int32_t>(order[i] % vocabulary);
      Beam& beam = best.emplace_back(Beam{.text = running_[parent].text,
                                          .score = scores[order[i]],
                                          .parent = static_cast<std::int64_t>(parent)});
      beam.text.push_back(token);
      beam.has_ended =
          std::ssize(beam.text) >= settings_.longest || contains(settings_.end_tokens, token);
    }
    return best;
  }

  void select_running(const std::vector<Beam>& candidates) {
    std::vector<Beam> next(candidates);
    for (Beam& beam : next) beam.score += beam.has_ended ? kWorst : 0;
    std::ranges::stable_sort(next, std::greater(), &Beam::score);
    next.resize(count());
    running_ = std::move(next);
  }

  /// Updates the finished texts. Only candidates that are among the best count() ones can end.
  void select_finished(const std::vector<Beam>& candidates) {
    const bool is_full =
        settings_.end == EarlyStopping::kEnough &&
        std::ranges::all_of(ended_, [](const FinishedBeam& one) { return one.has_ended; });
    const float divisor = penalty(std::ssize(candidates.front().text) - begun_);
    std::vector<FinishedBeam> all(ended_);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const bool ends = candidates[i].has_ended && i < count();
      float score = candidates[i].score / divisor;
      for (const bool is_out : {is_full, !improves_, !ends}) score += is_out ? kWorst : 0;
      all.push_back({candidates[i].text, score, ends});
    }
    std::ranges::stable_sort(all, std::greater(), &FinishedBeam::score);
    all.resize(count());
    ended_ = std::move(all);
  }

  bool may_improve() const {
    const bool counts_to_end =
        settings_.end == EarlyStopping::kCertain && settings_.length_penalty > 0;
    const std::int64_t tokens = (counts_to_end ? settings_.longest : length()) - begun_;
    const float possible = running_.front().score / penalty(tokens);
    const float worst = std::ranges::min(ended_, {}, &FinishedBeam::score).score;
    return std::ranges::any_of(ended_, [&](const FinishedBeam& one) {
      return possible > (one.has_ended ? worst : kWorst);
    });
  }

  const BeamSettings& settings_;
  std::int64_t begun_;
  std::vector<Beam> running_;
  std::vector<FinishedBeam> ended_;
  bool improves_ = true;
};

}  // namespace

BeamSearch::BeamSearch(LanguageModel& model, DecodeCapacity room, DType dtype, const Stream& stream)
    : model_(model), decoder_(model, room, dtype, stream) {
  model_.set_texts_per_source(room.texts);
}

BeamSearch::~BeamSearch() { model_.set_texts_per_source(1); }

std::vector<std::int32_t> BeamSearch::greedy_search(std::span<const std::int32_t> prefix,
                                                    const BeamSettings& settings,
                                                    const ScoreRule& rule) {
  Tokens text(prefix.begin(), prefix.end());
  decoder_.begin(0, text);
  while (std::ssize(text) < settings.longest) {
    const std::span<const float> logits = decoder_.logits(0);
    std::vector<float> scores(logits.begin(), logits.end());
    rule(scores, text);
    const auto next = static_cast<std::int32_t>(std::ranges::max_element(scores) - scores.begin());
    text.push_back(next);
    if (contains(settings.end_tokens, next) || std::ssize(text) == settings.longest) break;
    const BatchDecoder::Next added{0, next};
    decoder_.add({&added, 1});
  }
  return {text.begin() + std::ssize(prefix), text.end()};
}

std::vector<std::int32_t> BeamSearch::write(std::span<const std::int32_t> prefix,
                                            const BeamSettings& settings, const ScoreRule& rule) {
  require(settings.longest <= decoder_.context(),
          "beam search: the texts are longer than the context");
  const std::int64_t count = decoder_.rows(), begun = std::ssize(prefix);
  if (begun >= settings.longest) return {};
  if (count == 1) return greedy_search(prefix, settings, rule);
  decoder_.begin(0, prefix);
  decoder_.branch(std::vector<std::int64_t>(static_cast<std::size_t>(count), 0));
  Beams beams(prefix, count, settings);
  std::vector<float> scores, of_beam;
  while (true) {
    scores.clear();
    for (std::int64_t row = 0; row < count; ++row) {
      const Beam& beam = beams.running()[static_cast<std::size_t>(row)];
      to_log_likelihoods(decoder_.logits(row), of_beam);
      rule(of_beam, beam.text);
      for (const float score : of_beam) scores.push_back(score + beam.score);
    }
    if (!beams.advance(scores)) break;
    std::vector<std::int64_t> parents;
    std::vector<BatchDecoder::Next> next;
    for (const Beam& beam : beams.running()) {
      next.push_back({std::ssize(parents), beam.text.back()});
      parents.push_back(beam.parent);
    }
    decoder_.branch(parents);
    decoder_.add(next);
  }
  return {beams.best().begin() + begun, beams.best().end()};
}

Seq2SeqGenerator::Seq2SeqGenerator(LanguageModel& model, const Seq2SeqSettings& writing,
                                   DType dtype, const Stream& stream)
    : model_(model),
      writing_(writing),
      pass_{.training = false, .dtype = dtype},
      stream_(stream),
      search_(model, {.texts = writing.beams, .tokens = writing.search.longest}, dtype, stream) {}

std::vector<std::int32_t> Seq2SeqGenerator::write(std::span<const std::int32_t> source) {
  require(!source.empty(), "source writer: want at least one source token");
  const std::int64_t length = std::ssize(source);
  std::vector<std::int32_t> positions(source.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<std::int32_t> lengths{static_cast<std::int32_t>(length)};
  model_.encode(Batch({{"source_tokens", device_tokens(source, {1, length}, stream_)},
                       {"source_positions", device_tokens(positions, {1, length}, stream_)},
                       {"source_lengths", device_tokens(lengths, {1}, stream_)}}),
                pass_, stream_);
  const std::vector<std::int32_t> start{writing_.start};
  return search_.write(start, writing_.search,
                       [&](std::span<float> scores, std::span<const std::int32_t> text) {
                         writing_.rules.apply(scores, text);
                       });
}

}  // namespace hybrid_trainer
