#include "hybrid_trainer/data/batch_loader.h"

#include <bit>
#include <cmath>
#include <span>
#include <stop_token>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/random.h"
#include "src/core/narrow.h"
#include "src/core/threads.h"

namespace hybrid_trainer {

namespace {

/// Tokens and targets of row `row` from the tokens that begin at `start`.
void read_sequence(const TokenDataset& dataset, std::int64_t start, const Batch& batch,
                   std::int64_t row) {
  const std::int64_t length = batch.tokens_per_example();
  std::int32_t* tokens = batch.at("tokens").data<std::int32_t>() + row * length;
  std::int32_t* targets = batch.at("targets").data<std::int32_t>() + row * length;
  dataset.read(start, {tokens, static_cast<std::size_t>(length)});
  std::copy(tokens + 1, tokens + length, targets);
  dataset.read(start + length, {targets + length - 1, 1});
}

std::string name_of(const TokenDataset& dataset) {
  return concat("split ", name_of(dataset.split()), " of ", dataset.folder().string());
}

/// The first tokens and targets under another shape.
Batch shaped(const Batch& batch, const BatchShape& shape) {
  const auto part = [&](const char* name) {
    const Tensor& whole = batch.at(name);
    return whole.view({whole.elements()})
        .rows(0, shape.tokens())
        .view({shape.batch_size, shape.sequence_length});
  };
  return token_batch(part("tokens"), part("targets"));
}

// High halves of the third words of the random keys.
constexpr std::uint64_t kPlaceKey = 0x6D61736Bu;  // "mask"
constexpr std::uint64_t kKindKey = kPlaceKey + 1, kWordKey = kPlaceKey + 2;
constexpr float kMasked = 0.8f, kChanged = 0.9f;  // the others stay

/// Of the random numbers of one sequence.
struct SequenceKey {
  std::uint64_t seed, step, row;
  RandomKey of(std::uint64_t purpose) const { return {seed, step, (purpose << 32) + row}; }
};

void mask_sequence(std::span<std::int32_t> tokens, std::int32_t* targets,
                   const MaskSettings& settings, const SequenceKey& key) {
  const std::uint64_t length = tokens.size();
  std::fill_n(targets, length, kNoTarget);
  const std::int64_t count = masked_tokens(settings.share, std::ssize(tokens));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t at =
        random_permuted(key.of(kPlaceKey), static_cast<std::uint64_t>(i), length);
    targets[at] = tokens[at];
    const float kind = to_unit_float(random_word(key.of(kKindKey), at));
    if (kind < kMasked) {
      tokens[at] = settings.mask_token;
    } else if (kind < kChanged) {
      const auto words = static_cast<std::uint64_t>(settings.words);
      tokens[at] = narrow<std::int32_t>(random_below(key.of(kWordKey), at, words));
    }
  }
}

/// Masks each sequence of a batch of next-token windows, by key_of(row, its tokens).
template <class KeyOf>
Batch masked(Batch batch, const MaskSettings& settings, const KeyOf& key_of) {
  const std::int64_t length = batch.tokens_per_example();
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    const std::span tokens(batch.at("tokens").data<std::int32_t>() + row * length,
                           static_cast<std::size_t>(length));
    mask_sequence(tokens, batch.at("targets").data<std::int32_t>() + row * length, settings,
                  key_of(row, tokens));
  }
  batch.set_targets(static_cast<double>(batch.size() * masked_tokens(settings.share, length)));
  return batch;
}

/// A number that other tokens hardly share (Fowler, Noll and Vo's hash).
std::uint64_t fingerprint(std::span<const std::int32_t> tokens) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const std::int32_t token : tokens)
    hash = (hash ^ std::bit_cast<std::uint32_t>(token)) * 0x100000001B3u;
  return hash;
}

}  // namespace

/// A ring of batches and the thread that fills those to come. Batch i lies in slot i mod their
/// number, so that the one in use is the slot that is wanted last.
class BatchLoader::Prefetch {
 public:
  Prefetch(const BatchSource& source, std::int64_t depth, const Stream& stream)
      : source_(source), slots_(static_cast<std::size_t>(depth + 1)) {
    for (Slot& slot : slots_) slot.memory = source.empty_batch(stream);
    thread_ =
        start_thread([this] { return std::jthread([this](std::stop_token stop) { run(stop); }); });
  }

  /// Batch `index`, which is already filled if it follows the one taken before.
  Batch take(std::int64_t index) {
    std::unique_lock lock(mutex_);
    // What index - 1 left free is wanted only now that nobody reads it any more.
    const auto count = static_cast<std::int64_t>(slots_.size());
    for (std::int64_t i = index; i < index + count; ++i) slot_of(i).wanted = i;
    changed_.notify_all();
    Slot& slot = slot_of(index);
    changed_.wait(lock, [&] { return slot.filled == index; });
    if (slot.failure) {
      slot.filled = kNone;
      std::rethrow_exception(std::exchange(slot.failure, nullptr));
    }
    return slot.batch;
  }

 private:
  static constexpr std::int64_t kNone = -1;
  struct Slot {
    Batch memory;
    Batch batch;                  // the part of it that is used
    std::int64_t wanted = kNone;  // index of the batch that belongs here
    std::int64_t filled = kNone;  // index of the batch that is here, complete
    std::exception_ptr failure;   // while filling it
  };

  Slot& slot_of(std::int64_t index) {
    return slots_[static_cast<std::size_t>(index) % slots_.size()];
  }

  /// The slot whose batch is needed first among those that are not there, or null.
  Slot* next_to_fill() {
    Slot* next = nullptr;
    for (Slot& slot : slots_) {
      if (slot.wanted != slot.filled && (next == nullptr || slot.wanted < next->wanted))
        next = &slot;
    }
    return next;
  }

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return next_to_fill() != nullptr; })) {
      Slot& slot = *next_to_fill();
      const std::int64_t index = slot.wanted;
      slot.filled = kNone;
      lock.unlock();
      std::exception_ptr failure;
      try {
        slot.batch = source_.read(index, slot.memory);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      slot.failure = failure;
      slot.filled = index;
      changed_.notify_all();
    }
  }

  const BatchSource& source_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

WindowBatches::WindowBatches(const TokenDataset& dataset, const BatchSettings& settings)
    : dataset_(&dataset),
      goes_on_(settings.goes_on),
      largest_{settings.batch_size, settings.sequence_length},
      order_(dataset.tokens(), settings, name_of(dataset)) {}

Batch WindowBatches::read(std::int64_t batch_index, const Batch& memory) const {
  Batch batch = shaped(memory, order_.shape_of(batch_index));
  if (goes_on_) batch.set_goes_on(batch_index % (windows_per_epoch() / batch.size()) != 0);
  for (std::int64_t row = 0; row < batch.size(); ++row)
    read_sequence(*dataset_, order_.start_of(batch_index, row), batch, row);
  return batch;
}

BatchLoader::BatchLoader(std::unique_ptr<const BatchSource> source, std::int64_t prefetch_depth,
                         const Stream& stream)
    : source_(std::move(source)),
      prefetch_(std::make_unique<Prefetch>(*source_, prefetch_depth, stream)) {}

BatchLoader::~BatchLoader() = default;

Batch BatchLoader::next() {
  Batch batch = prefetch_->take(taken_);
  ++taken_;
  return batch;
}

void BatchLoader::seek(std::int64_t batch_index) {
  require(batch_index >= 0, "a loader cannot go before its first batch");
  taken_ = batch_index;
}

EvaluationWindows::EvaluationWindows(const TokenDataset& dataset, std::int64_t batch_size,
                                     std::int64_t sequence_length, const Stream& stream)
    : dataset_(&dataset), batch_size_(batch_size) {
  const std::int64_t predicted = dataset.tokens() - 1;
  if (predicted < 1) {
    throw DataError(concat(name_of(dataset), " has ", dataset.tokens(),
                           " tokens; an evaluation takes at least 2"));
  }
  length_ = std::min(sequence_length, predicted);
  windows_ = predicted / length_;
  rest_ = predicted % length_;
  memory_ = empty_token_batch({std::min(batch_size_, windows_), length_}, false, stream);
}

Batch EvaluationWindows::batch(std::int64_t index) {
  require(index >= 0 && index < batches(), "an evaluation has no batch of this number");
  if (index == whole_batches()) {
    const Batch rest = shaped(memory_, {1, rest_});
    read_sequence(*dataset_, windows_ * length_, rest, 0);
    return rest;
  }
  const std::int64_t first = index * batch_size_;
  const std::int64_t count = std::min(batch_size_, windows_ - first);
  for (std::int64_t row = 0; row < count; ++row) {
    read_sequence(*dataset_, (first + row) * length_, memory_, row);
  }
  return memory_.examples(0, count);
}

std::int64_t masked_tokens(double share, std::int64_t length) {
  return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(length)));
}

Batch MaskedBatches::read(std::int64_t batch_index, const Batch& memory) const {
  return masked(source_->read(batch_index, memory), settings_,
                [&](std::int64_t row, std::span<const std::int32_t>) {
                  return SequenceKey{settings_.seed, static_cast<std::uint64_t>(batch_index),
                                     static_cast<std::uint64_t>(row)};
                });
}

Batch MaskedEvaluation::batch(std::int64_t index) {
  return masked(batches_->batch(index), settings_,
                [](std::int64_t, std::span<const std::int32_t> tokens) {
                  return SequenceKey{0, fingerprint(tokens), 0};
                });
}

}  // namespace hybrid_trainer
