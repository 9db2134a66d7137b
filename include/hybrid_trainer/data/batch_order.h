#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hybrid_trainer {

struct BatchShape {
  std::int64_t batch_size = 0;       // B, sequences in a batch
  std::int64_t sequence_length = 0;  // T, tokens in a sequence
  std::int64_t tokens() const { return batch_size * sequence_length; }
  bool operator==(const BatchShape&) const = default;
};

/// So many batches of another shape than the rest of a run.
struct BatchStretch {
  std::int64_t batches = 0;
  BatchShape shape;
  bool operator==(const BatchStretch&) const = default;
};

struct BatchSettings {
  std::int64_t batch_size = 0;       // B, sequences in a batch
  std::int64_t sequence_length = 0;  // T, tokens in a sequence
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::int64_t prefetch_depth = 1;        // batches read ahead; changes no batch
  std::vector<BatchStretch> stretches{};  // what a run begins with
  bool goes_on = false;                   // a row's windows follow each other; see WindowOrder
};

/// Where training sequences start in a stream of N tokens; depends on the settings and the
/// sequence's number alone. An epoch cuts the stream into non-overlapping windows of T inputs, each
/// with one further target. With shuffle the cut starts at a random offset in [0, T) and the
/// windows come in a seeded permutation, both new each epoch; without, windows come in order from
/// token 0. An epoch has floor((N - T) / T) windows with shuffle (what every offset leaves room
/// for, at least 1), floor((N - 1) / T) without. With goes_on the windows are in order too, and each of
/// the B rows has as many that follow each other: window w of row b is number w·B + b; those that
/// are left over are not used.
class WindowOrder {
 public:
  /// Throws DataError if tokens < T + 1; `name` says in the message whose tokens.
  WindowOrder(std::int64_t tokens, const BatchSettings& settings, const std::string& name);
  std::int64_t windows_per_epoch() const { return windows_; }
  /// First token of training sequence `example` = 0, 1, …, counted over all epochs.
  std::int64_t start_of(std::int64_t example) const;

 private:
  bool is_shuffled() const { return settings_.shuffle && !settings_.goes_on; }
  std::int64_t tokens_;
  BatchSettings settings_;
  std::int64_t windows_;
};

/// Which sequences batch i of a run holds, a pure function of the settings: first the stretches'
/// batches, then those of the settings' own size. The windows of a WindowOrder, which are as long
/// as the longest sequence, are used up one after the other, each token once. A stretch of
/// sequences of T / n tokens takes each batch's windows in n pieces, of which batch after batch
/// holds the next one.
class BatchOrder {
 public:
  /// Throws DataError as WindowOrder; Error where a stretch's sequences are no whole part of the
  /// longest, its batches no multiple of the pieces, or its batch larger than the settings' own.
  BatchOrder(std::int64_t tokens, const BatchSettings& settings, const std::string& name);
  std::int64_t windows_per_epoch() const { return windows_.windows_per_epoch(); }
  BatchShape shape_of(std::int64_t batch) const { return part_of(batch).shape; }
  /// First token of sequence `row` of the batch.
  std::int64_t start_of(std::int64_t batch, std::int64_t row) const;

 private:
  struct Part {
    std::int64_t first_batch = 0, first_window = 0;
    BatchShape shape;
    std::int64_t pieces = 1;  // of a window
  };
  const Part& part_of(std::int64_t batch) const;

  WindowOrder windows_;
  std::vector<Part> parts_;
};

}  // namespace hybrid_trainer
