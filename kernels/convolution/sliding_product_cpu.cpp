#include <cstring>
#include <memory>
#include <optional>

#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/convolution/convolution_cpu.h"
#include "src/core/threads.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kSlabWords = 64 << 10;  // 256 KB: fits in the L2 cache with a panel
constexpr std::int64_t kMinWindows = 24;       // minimum windows of a row in a slab
constexpr std::int64_t kEnoughItems = 16;      // enough for any number of threads

/// Sizes of the part of x that a thread copies at a time, indexed by (tap of the first dimension,
/// row, place, word).
struct Slab {
  std::int64_t rows, windows;  // maximum windows of the second and the third dimension
  std::int64_t high, wide;     // places that these windows read
  std::int64_t words;          // words per place
  std::int64_t row_words() const { return wide * words; }
  std::int64_t plane_words() const { return high * row_words(); }
};

/// Windows that an item computes, their group, and their panels of outputs.
struct Item {
  std::int64_t example, group, plane;
  std::int64_t row, end_row, window, end_window;
  std::int64_t panel, end_panel;
};

std::int64_t parts_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

/// Copies the channels of a place of x to words, rounding them if the types differ, and adds zeros.
template <class To, class From>
inline void copy_place(To* to, const From* from, std::int64_t channels, std::int64_t wide) {
  for (std::int64_t c = 0; c < channels; ++c) {
    if constexpr (std::is_same_v<To, From>) {
      to[c] = from[c];
    } else {
      store(to + c, load(from + c));
    }
  }
  for (std::int64_t c = channels; c < wide; ++c) to[c] = To{};
}

/// Copies places of x to words of a slab: `To` is float, or BFloat16 if words are pairs.
template <class To, class From>
inline void copy_places(To* to, const From* from, std::int64_t count, std::int64_t stride,
                        std::int64_t channels, std::int64_t wide) {
  if constexpr (std::is_same_v<To, From>) {
    if (channels == wide && stride == channels) {
      std::memcpy(to, from, static_cast<std::size_t>(count * channels) * sizeof(To));
      return;
    }
  }
  if (channels == wide && stride == channels)
    return copy_place(to, from, count * channels, count * channels);
  for (std::int64_t i = 0; i < count; ++i)
    copy_place(to + i * wide, from + i * stride, channels, wide);
}

/// Weights in panels of outputs, with a word's weights adjacent, in the order of the runs.
class PackedWeights {
 public:
  /// `words`: words per place. `depth`: words per window.
  PackedWeights(const SlidingProduct& product, const WindowTiles& tiles, bool pairs,
                std::int64_t words, std::int64_t depth, const Stream& stream)
      : of_(product),
        tiles_(tiles),
        pairs_(pairs),
        words_(words),
        depth_(depth),
        panels_(parts_of(product.outputs, tiles.width())),
        weights_(empty_workspace(product.groups * panels_ * depth * tiles.width(), DType::kF32,
                                 stream)) {}
  std::int64_t panels() const { return panels_; }
  std::int64_t panel_vectors(std::int64_t panel) const {
    const std::int64_t left = of_.outputs - panel * tiles_.width();
    return left > tiles_.lanes() ? 2 : 1;
  }
  float* panel_weights(std::int64_t group, std::int64_t panel) const {
    return weights_.data<float>() + (group * panels_ + panel) * depth_ * tiles_.width();
  }
  std::int64_t count() const { return of_.groups * panels_; }
  void pack(std::int64_t i) const {
    run_on(instruction_set(), [this, i] { pack_panel(i / panels_, i % panels_); });
  }

 private:
  void pack_panel(std::int64_t group, std::int64_t panel) const {
    visit_real(of_.dtype, [&]<class T>(T) {
      const T* const from = static_cast<const T*>(of_.weight.first) + group * of_.weight.group +
                            panel * tiles_.width() * of_.weight.output;
      const std::int64_t lanes = panel_vectors(panel) * tiles_.lanes();
      const std::int64_t outputs = std::min(lanes, of_.outputs - panel * tiles_.width());
      const std::int64_t of_word = pairs_ ? 2 : 1;
      float* to = panel_weights(group, panel);
      if (rows_are_words()) return transpose_rows(to, from, lanes, outputs);
      for_each_tap([&](std::int64_t tap) {
        for (std::int64_t word = 0; word < words_; ++word, to += lanes) {
          for (std::int64_t half = 0; half < of_word; ++half) {
            const std::int64_t input = word * of_word + half;
            const T* const column = from + tap * of_.weight.tap + input * of_.weight.input;
            put_column(to, half, lanes, input < of_.inputs ? outputs : 0, column);
          }
        }
      });
    });
  }
  /// Returns whether an output's weights are already stored in the order of the runs' words.
  bool rows_are_words() const {
    return (!pairs_ || of_.inputs % 2 == 0) && of_.weight.input == 1 &&
           of_.weight.tap == of_.inputs;
  }
  template <class T>
  void transpose_rows(float* to, const T* from, std::int64_t lanes, std::int64_t outputs) const {
    constexpr std::int64_t kBlock = 16;  // words of a row in one cache line
    if (outputs < lanes) std::fill_n(to, depth_ * lanes, 0.0f);
    for (std::int64_t first = 0; first < depth_; first += kBlock) {
      const std::int64_t count = std::min(kBlock, depth_ - first);
      for (std::int64_t i = 0; i < outputs; ++i) {
        float words[kBlock];
        const T* const row = from + i * of_.weight.output;
        if (std::is_same_v<T, BFloat16> && !pairs_) {
          for (std::int64_t k = 0; k < count; ++k) words[k] = load(row + first + k);
        } else {
          std::memcpy(words, reinterpret_cast<const char*>(row) + 4 * first,
                      static_cast<std::size_t>(4 * count));
        }
        for (std::int64_t k = 0; k < count; ++k) to[(first + k) * lanes + i] = words[k];
      }
    }
  }
  template <class T>
  void put_column(float* to, std::int64_t half, std::int64_t lanes, std::int64_t outputs,
                  const T* from) const {
    const std::int64_t stride = of_.weight.output;
    if (pairs_) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        auto* const halves = reinterpret_cast<BFloat16*>(to) + half;
        for (std::int64_t i = 0; i < outputs; ++i) halves[2 * i] = from[i * stride];
        for (std::int64_t i = outputs; i < lanes; ++i) halves[2 * i] = BFloat16{};
      }
      return;
    }
    for (std::int64_t i = 0; i < outputs; ++i) to[i] = load(from + i * stride);
    for (std::int64_t i = outputs; i < lanes; ++i) to[i] = 0.0f;
  }
  template <class Visit>
  void for_each_tap(const Visit& visit) const {
    for (const SlidingTap& plane : of_.dimensions[0].taps)
      for (const SlidingTap& row : of_.dimensions[1].taps)
        for (const SlidingTap& tap : of_.dimensions[2].taps)
          visit((plane.index * of_.kernel[1] + row.index) * of_.kernel[2] + tap.index);
  }

  const SlidingProduct& of_;
  const WindowTiles& tiles_;
  bool pairs_;
  std::int64_t words_, depth_, panels_;
  Tensor weights_;
};

/// Returns whether channels are few and odd: floats are then cheaper than pairs with a zero.
bool is_odd_and_small(const SlidingProduct& product) {
  return product.inputs % 2 == 1 && product.inputs < 8;
}

class SlidingRun {
 public:
  SlidingRun(const SlidingProduct& product, const Stream& stream)
      : of_(product),
        pairs_(product.dtype == DType::kBF16 && multiplies_pairs() && !is_odd_and_small(product)),
        tiles_(pairs_, TileSteps::kRows),
        slab_(slab_of(product)) {
    make_runs();
    weights_.emplace(of_, tiles_, pairs_, slab_.words, depth_, stream);
    sum_words_ = tiles_.max_rows() * tiles_.width() + weights_->panels() * tiles_.width();
    slab_words_ = static_cast<std::int64_t>(dim(0).taps.size()) * slab_.plane_words();
    rows_ = parts_of(dim(1).windows, slab_.rows);
    row_parts_ = parts_of(dim(2).windows, slab_.windows);
    slabs_ = of_.batch * of_.groups * dim(0).windows * rows_ * row_parts_;
    cuts_ = std::clamp<std::int64_t>(kEnoughItems / slabs_, 1, weights_->panels());
  }
  std::int64_t scratch_words() const { return slab_words_ + sum_words_; }
  const PackedWeights& weights() const { return *weights_; }
  std::int64_t items() const { return slabs_ * cuts_; }
  std::int64_t depth() const { return depth_; }

  void run(std::int64_t index, float* scratch) const {
    Item item{};
    const std::int64_t cut = index % cuts_;
    std::int64_t at = index / cuts_;
    item.window = at % row_parts_ * slab_.windows, at /= row_parts_;
    item.row = at % rows_ * slab_.rows, at /= rows_;
    item.plane = at % dim(0).windows, at /= dim(0).windows;
    item.group = at % of_.groups, item.example = at / of_.groups;
    item.end_window = std::min(item.window + slab_.windows, dim(2).windows);
    item.end_row = std::min(item.row + slab_.rows, dim(1).windows);
    item.panel = weights_->panels() * cut / cuts_;
    item.end_panel = weights_->panels() * (cut + 1) / cuts_;
    fill(item, scratch);
    multiply(item, scratch, scratch + slab_words_);
  }

 private:
  const SlidingDimension& dim(std::size_t i) const { return of_.dimensions[i]; }

  Slab slab_of(const SlidingProduct& product) const {
    const std::int64_t words = pairs_ ? (product.inputs + 1) / 2 : product.inputs;
    const auto &first = product.dimensions[0], &second = product.dimensions[1],
               &third = product.dimensions[2];
    const auto planes = std::max<std::int64_t>(1, static_cast<std::int64_t>(first.taps.size()));
    const auto span = [](const SlidingDimension& of, std::int64_t windows) {
      return (windows - 1) * of.step + of.reach();
    };
    Slab slab{1, third.windows, 0, 0, words};
    const auto fits = [&] {
      return planes * span(second, slab.rows) * span(third, slab.windows) * words <= kSlabWords;
    };
    while (slab.windows > kMinWindows && !fits())
      slab.windows = std::max(kMinWindows, (slab.windows + 1) / 2);
    while (slab.rows < second.windows && fits()) ++slab.rows;
    if (slab.rows > 1 && !fits()) --slab.rows;
    // Reduces the slab so that each thread has several items, if there is enough work.
    const std::int64_t others =
        product.batch * product.groups * first.windows * parts_of(third.windows, slab.windows);
    if (others < kEnoughItems) {
      const std::int64_t wanted = parts_of(kEnoughItems, others);
      slab.rows = std::max<std::int64_t>(1, std::min(slab.rows, parts_of(second.windows, wanted)));
    }
    const std::int64_t now = others * parts_of(second.windows, slab.rows);
    while (slab.windows > 4 * kMinWindows &&
           now * parts_of(third.windows, slab.windows) < kEnoughItems)
      slab.windows = (slab.windows + 1) / 2;
    slab.rows = parts_of(second.windows, parts_of(second.windows, slab.rows));
    slab.windows = parts_of(third.windows, parts_of(third.windows, slab.windows));
    slab.high = span(second, slab.rows), slab.wide = span(third, slab.windows);
    return slab;
  }

  /// Computes the runs of a window's words in a slab. Contiguous taps of a row form one run.
  void make_runs() {
    for (std::size_t plane = 0; plane < dim(0).taps.size(); ++plane) {
      for (const SlidingTap& row : dim(1).taps) {
        const std::int64_t base =
            static_cast<std::int64_t>(plane) * slab_.plane_words() + row.offset * slab_.row_words();
        const std::size_t begun = runs_.size();
        for (const SlidingTap& tap : dim(2).taps) {
          const std::int64_t offset = base + tap.offset * slab_.words;
          if (runs_.size() > begun && runs_.back().offset + runs_.back().count == offset) {
            runs_.back().count += slab_.words;
          } else {
            runs_.push_back({offset, slab_.words, depth_});
          }
          depth_ += slab_.words;
        }
        runs_of_row_ = runs_.size() - begun;
      }
    }
  }

  /// Range [begin, end) of a window's taps along a dimension that read places inside x.
  struct TapRange {
    std::size_t begin, end;
  };
  TapRange taps_within(const SlidingDimension& of, std::int64_t window) const {
    const std::int64_t first = window * of.step + of.origin;
    TapRange range{0, of.taps.size()};
    while (range.begin < range.end && first + of.taps[range.begin].offset < 0) ++range.begin;
    while (range.begin < range.end && first + of.taps[range.end - 1].offset >= of.places)
      --range.end;
    return range;
  }
  /// Selects the runs of a row of windows, except those that read only padding.
  void choose_runs(std::vector<WordRun>& runs, std::int64_t plane, std::int64_t row) const {
    const TapRange planes = taps_within(dim(0), plane), rows = taps_within(dim(1), row);
    const std::size_t taps = dim(1).taps.size();
    runs.clear();
    for (std::size_t i = planes.begin; i < planes.end; ++i) {
      const auto first = runs_.begin() + static_cast<std::ptrdiff_t>(i * taps * runs_of_row_);
      runs.insert(runs.end(), first + static_cast<std::ptrdiff_t>(rows.begin * runs_of_row_),
                  first + static_cast<std::ptrdiff_t>(rows.end * runs_of_row_));
    }
  }

  void fill(const Item& item, float* slab) const {
    visit_real(of_.dtype, [&]<class T>(T) {
      run_on(instruction_set(), [&] {
        if (pairs_) {
          fill_slab<BFloat16, T>(item, reinterpret_cast<BFloat16*>(slab), 2 * slab_.words);
        } else {
          fill_slab<float, T>(item, slab, slab_.words);
        }
      });
    });
  }
  /// `channels` is the number of channels per place in the slab.
  template <class To, class From>
  void fill_slab(const Item& item, To* slab, std::int64_t channels) const {
    if constexpr (!std::is_same_v<To, BFloat16> || std::is_same_v<From, BFloat16>) {
      const std::int64_t stride = of_.groups * of_.inputs;
      const std::int64_t left = item.window * dim(2).step + dim(2).origin;
      const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, slab_.wide),
                         end = std::clamp<std::int64_t>(dim(2).places - left, begin, slab_.wide);
      const std::int64_t high = (item.end_row - item.row - 1) * dim(1).step + dim(1).reach();
      const std::int64_t row_elements = slab_.wide * channels;
      for (std::size_t tap = 0; tap < dim(0).taps.size(); ++tap) {
        const std::int64_t plane =
            item.plane * dim(0).step + dim(0).origin + dim(0).taps[tap].offset;
        To* const to = slab + static_cast<std::int64_t>(tap) * slab_.high * row_elements;
        for (std::int64_t r = 0; r < high; ++r) {
          const std::int64_t row = item.row * dim(1).step + dim(1).origin + r;
          To* const line = to + r * row_elements;
          // Lines outside x are never read.
          if (plane < 0 || plane >= dim(0).places || row < 0 || row >= dim(1).places) continue;
          const From* const from =
              static_cast<const From*>(of_.x) + item.group * of_.inputs +
              (((item.example * dim(0).places + plane) * dim(1).places + row) * dim(2).places +
               left + begin) *
                  stride;
          std::fill_n(line, begin * channels, To{});
          copy_places(line + begin * channels, from, end - begin, stride, of_.inputs, channels);
          std::fill_n(line + end * channels, (slab_.wide - end) * channels, To{});
        }
      }
    }
  }

  void multiply(const Item& item, const float* slab, float* scratch) const {
    float* const sums = scratch;
    float* const start = scratch + tiles_.max_rows() * tiles_.width();
    if (of_.bias != nullptr) {
      std::fill_n(start, weights_->panels() * tiles_.width(), 0.0f);
      std::copy_n(of_.bias + item.group * of_.outputs, of_.outputs, start);
    }
    thread_local std::vector<WordRun> runs;
    for (std::int64_t panel = item.panel; panel < item.end_panel; ++panel) {
      const std::int64_t vectors = weights_->panel_vectors(panel);
      WindowTile tile{.step = dim(2).step * slab_.words,
                      .b = weights_->panel_weights(item.group, panel),
                      .b_step = vectors * tiles_.lanes(),
                      .start = of_.bias == nullptr ? nullptr : start + panel * tiles_.width(),
                      .sums = sums};
      const std::int64_t windows = item.end_window - item.window,
                         parts = parts_of(windows, tiles_.max_rows());
      for (std::int64_t row = item.row; row < item.end_row; ++row) {
        const float* const line = slab + (row - item.row) * dim(1).step * slab_.row_words();
        choose_runs(runs, item.plane, row);
        tile.runs = runs.data(), tile.run_count = static_cast<std::int64_t>(runs.size());
        for (std::int64_t part = 0; part < parts; ++part) {
          const std::int64_t begin = windows * part / parts, end = windows * (part + 1) / parts;
          tile.a = line + begin * tile.step;
          tiles_.sum(end - begin, vectors, tile);
          write(item, row, item.window + begin, end - begin, panel, vectors, sums);
        }
      }
    }
  }

  void write(const Item& item, std::int64_t row, std::int64_t window, std::int64_t count,
             std::int64_t panel, std::int64_t vectors, const float* sums) const {
    const std::int64_t width = vectors * tiles_.lanes(),
                       outputs = std::min(width, of_.outputs - panel * tiles_.width());
    const std::int64_t stride = of_.groups * of_.outputs;
    const std::int64_t line =
        ((item.example * dim(0).results + dim(0).first + item.plane * dim(0).spread) *
             dim(1).results +
         dim(1).first + row * dim(1).spread) *
            dim(2).results +
        dim(2).first;
    visit_real(of_.dtype, [&]<class T>(T) {
      T* const to = static_cast<T*>(of_.result) + line * stride + item.group * of_.outputs +
                    panel * tiles_.width();
      for (std::int64_t i = 0; i < count; ++i) {
        T* const at = to + (window + i) * dim(2).spread * stride;
        const float* const from = sums + i * width;
        if constexpr (std::is_same_v<T, float>) {
          std::memcpy(at, from, static_cast<std::size_t>(outputs) * sizeof(float));
        } else {
#pragma omp simd
          for (std::int64_t j = 0; j < outputs; ++j) store(at + j, from[j]);
        }
      }
    });
  }

  const SlidingProduct& of_;
  bool pairs_;
  WindowTiles tiles_;
  Slab slab_;
  std::vector<WordRun> runs_;
  std::size_t runs_of_row_ = 1;
  std::int64_t depth_ = 0;
  std::optional<PackedWeights> weights_;
  std::int64_t slab_words_ = 0, sum_words_ = 0;
  std::int64_t rows_ = 1, row_parts_ = 1, slabs_ = 1, cuts_ = 1;
};

}  // namespace

void multiply_sliding(std::span<const SlidingProduct> products, const Stream& stream) {
  std::vector<std::unique_ptr<SlidingRun>> runs;
  std::vector<std::pair<const SlidingRun*, std::int64_t>> panels, items;
  std::int64_t words = 0;
  for (const SlidingProduct& product : products) {
    runs.push_back(std::make_unique<SlidingRun>(product, stream));
    words = std::max(words, runs.back()->scratch_words());
  }
  const Tensor scratch = empty_workspace(threads() * words, DType::kF32, stream);
  if (simulated(stream)) return;
  // Starts with the runs that take longest.
  std::stable_sort(runs.begin(), runs.end(),
                   [](const auto& x, const auto& y) { return x->depth() > y->depth(); });
  for (const auto& run : runs) {
    for (std::int64_t i = 0; i < run->weights().count(); ++i) panels.emplace_back(run.get(), i);
    for (std::int64_t i = 0; i < run->items(); ++i) items.emplace_back(run.get(), i);
  }
  run_tasks(std::ssize(panels), [&](std::int64_t, std::int64_t at) {
    const auto& [run, i] = panels[static_cast<std::size_t>(at)];
    run->weights().pack(i);
  });
  run_tasks(std::ssize(items), [&](std::int64_t worker, std::int64_t at) {
    const auto& [run, i] = items[static_cast<std::size_t>(at)];
    run->run(i, scratch.data<float>() + worker * words);
  });
}

}  // namespace hybrid_trainer::kernels::cpu
