#pragma once

#include <cstdint>
#include <vector>

namespace hybrid_trainer {

/// Chooses the number of tokens to draft next: as many as make the most tokens a second by what
/// earlier rounds took and gave. Drafts that do not pay are charged to a credit of a few tokens'
/// time, which grows by a small share of the time without drafts, and without credit there are
/// none: whatever the draft, a text of 800 tokens takes at most a twentieth longer, but for the
/// first round.
class DraftLength {
 public:
  static constexpr std::int64_t kLongest = 7;  // 8 rows are what products read weights once for

  /// From 0 to kLongest, for the round that begins.
  std::int64_t next();
  /// Records the result of a round: the tokens drafted and those of them taken, and the seconds of
  /// drafting and of seeing them by the model that is asked, which made one token more than were
  /// taken.
  void learn(std::int64_t drafted, std::int64_t taken, double seconds);

 private:
  std::int64_t fastest() const;
  void learn_plain(double seconds);
  void learn_shares(std::int64_t drafted, std::int64_t taken);
  std::vector<double> first_{};           // seconds of the rounds before the first draft, by size
  bool has_drafted_ = false;              // once: what is measured then is not what it costs later
  double plain_ = 0;                      // seconds of a token without drafts, lately
  double extra_ = 0;                      // seconds that a drafted token adds, lately; 0: not known
  double taken_ = 4.8, tried_ = 6;        // tokens lately, at first a guess
  double credit_ = 0;                     // seconds that drafts may still lose
  std::int64_t idle_ = 0, patience_ = 0;  // rounds without a draft until the next try
};

}  // namespace hybrid_trainer
