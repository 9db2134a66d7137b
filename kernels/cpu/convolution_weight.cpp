#include <algorithm>
#include <vector>

#include "hybrid_trainer/core/thread_team.h"
#include "kernels/backend.h"
#include "kernels/cpu/convolution_parts.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/window_tiles.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

constexpr std::int64_t kSlabWindows = 256;  // read at a time, so that they stay in the second cache
constexpr std::int64_t kLeastDepth = 128;   // words of weights that a task has for each output
constexpr std::int64_t kEnoughTasks = 16;   // for any number of threads that reads them

std::int64_t ceiling(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

/// Windows of some rows that a task reads at a time.
struct WindowRows {
  std::int64_t example, plane, row, end_row, window, end_window;
  std::int64_t rows() const { return end_row - row; }
  std::int64_t windows() const { return end_window - window; }
};

/// Gradients of the weights of one panel of outputs for the taps of some rows of the kernel, over a
/// part of all windows.
struct WeightTask {
  std::int64_t part, group, panel, tap_row, end_tap_row;
};

/// A weight's gradient: tiles of a panel of outputs by words that lie together in x, summed over all
/// windows. Where words are pairs, a pair is of two windows side by side.
class WeightGradient {
 public:
  WeightGradient(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                 const SpatialWindow& window, std::int64_t groups, const Stream& stream)
      : of_(window),
        groups_(groups),
        inputs_(window.channels / groups),
        outputs_(dweight.size(0) / groups),
        dweight_(dweight),
        dy_(dy),
        x_(x),
        of_word_(x.dtype() == DType::kBF16 && multiplies_pairs() ? 2 : 1),
        tiles_(of_word_ == 2, TileSteps::kPlaces),
        panels_(ceiling(outputs_, tiles_.width())),
        row_depth_(window.kernel[2] * inputs_),
        slab_windows_(std::min(window.out[2], kSlabWindows)),
        slab_rows_(std::min(window.out[1], ceiling(kSlabWindows, slab_windows_))) {
    const std::int64_t tap_rows = window.kernel[0] * window.kernel[1];
    task_rows_ = std::min(tap_rows, ceiling(kLeastDepth, row_depth_));
    row_tasks_ = ceiling(tap_rows, task_rows_);
    slabs_ = of_.batch * of_.out[0] * ceiling(of_.out[1], slab_rows_) *
             ceiling(of_.out[2], slab_windows_);
    parts_ = std::clamp<std::int64_t>(kEnoughTasks / (groups * panels_ * row_tasks_), 1, slabs_);
    sums_ = empty_workspace(parts_ * groups * panels_ * tap_rows * row_depth_ * tiles_.width(),
                            DType::kF32, stream);
    wide_ = (slab_windows_ - 1) * of_.stride[2] + (of_.kernel[2] - 1) * of_.dilation[2] + 1;
    // Beside the words themselves those that the second of a pair reads beyond the last window.
    line_words_ = (wide_ + of_.stride[2]) * inputs_;
    gradient_words_ = slab_rows_ * ceiling(slab_windows_, of_word_) * tiles_.width();
    scratch_ = empty_workspace(threads() * (slab_rows_ * line_words_ + gradient_words_),
                               DType::kF32, stream);
  }

  void run(GradientMode mode) {
    const std::int64_t tap_rows = of_.kernel[0] * of_.kernel[1];
    run_tasks(parts_ * groups_ * panels_ * row_tasks_, [&](std::int64_t worker, std::int64_t at) {
      WeightTask task{};
      task.tap_row = at % row_tasks_ * task_rows_, at /= row_tasks_;
      task.end_tap_row = std::min(task.tap_row + task_rows_, tap_rows);
      task.panel = at % panels_, at /= panels_;
      task.group = at % groups_, task.part = at / groups_;
      sum(task, scratch_.data<float>() + worker * (slab_rows_ * line_words_ + gradient_words_));
    });
    run_tasks(groups_ * panels_, [&](std::int64_t, std::int64_t at) {
      run_on(instruction_set(), [&] { finish(at / panels_, at % panels_, mode); });
    });
  }

 private:
  std::int64_t vectors(std::int64_t panel) const {
    return outputs_ - panel * tiles_.width() > tiles_.lanes() ? 2 : 1;
  }
  float* sums_of(std::int64_t part, std::int64_t group, std::int64_t panel,
                 std::int64_t tap_row) const {
    const std::int64_t tap_rows = of_.kernel[0] * of_.kernel[1];
    return sums_.data<float>() +
           (((part * groups_ + group) * panels_ + panel) * tap_rows + tap_row) * row_depth_ *
               tiles_.width();
  }

  WindowRows slab(std::int64_t at) const {
    const std::int64_t across = ceiling(of_.out[2], slab_windows_),
                       down = ceiling(of_.out[1], slab_rows_);
    WindowRows rows{};
    rows.window = at % across * slab_windows_, at /= across;
    rows.row = at % down * slab_rows_, at /= down;
    rows.plane = at % of_.out[0], rows.example = at / of_.out[0];
    rows.end_window = std::min(rows.window + slab_windows_, of_.out[2]);
    rows.end_row = std::min(rows.row + slab_rows_, of_.out[1]);
    return rows;
  }

  void sum(const WeightTask& task, float* scratch) const {
    float* const gradients = scratch;
    float* const lines = scratch + gradient_words_;
    float* const sums = sums_of(task.part, task.group, task.panel, task.tap_row);
    std::fill_n(
        sums, (task.end_tap_row - task.tap_row) * row_depth_ * vectors(task.panel) * tiles_.lanes(),
        0.0f);
    const std::int64_t end = slabs_ * (task.part + 1) / parts_;
    for (std::int64_t at = slabs_ * task.part / parts_; at < end; ++at) {
      const WindowRows rows = slab(at);
      run_on(instruction_set(), [&] { copy_gradients(gradients, rows, task); });
      for (std::int64_t tap_row = task.tap_row; tap_row < task.end_tap_row; ++tap_row)
        add_tap_row(rows, task, tap_row, gradients, lines);
    }
  }

  /// Adds what the taps of a row of the kernel sum over the windows.
  void add_tap_row(const WindowRows& rows, const WeightTask& task, std::int64_t tap_row,
                   const float* gradients, float* lines) const {
    const std::int64_t plane =
        rows.plane * of_.stride[0] - of_.padding[0] + tap_row / of_.kernel[1] * of_.dilation[0];
    if (plane < 0 || plane >= of_.in[0]) return;
    // Rows of windows whose tap is within x.
    const std::int64_t offset = tap_row % of_.kernel[1] * of_.dilation[1] - of_.padding[1];
    const auto place = [&](std::int64_t row) { return row * of_.stride[1] + offset; };
    std::int64_t first = rows.row, end = rows.end_row;
    while (first < end && place(first) < 0) ++first;
    while (first < end && place(end - 1) >= of_.in[1]) --end;
    if (first == end) return;
    run_on(instruction_set(), [&] {
      for (std::int64_t row = first; row < end; ++row) {
        copy_line(lines + (row - first) * line_words_,
                  (rows.example * of_.in[0] + plane) * of_.in[1] + place(row), rows, task.group);
      }
    });
    const std::int64_t steps = ceiling(rows.windows(), of_word_),
                       width = vectors(task.panel) * tiles_.lanes();
    thread_local std::vector<WordRun> runs;
    runs.clear();
    for (std::int64_t row = 0; row < end - first; ++row) runs.push_back({row * line_words_, steps});
    float* const sums = sums_of(task.part, task.group, task.panel, task.tap_row) +
                        (tap_row - task.tap_row) * row_depth_ * width;
    WindowTile tile{.step = of_word_ * of_.stride[2] * inputs_,
                    .runs = runs.data(),
                    .run_count = end - first,
                    .b = gradients + (first - rows.row) * steps * width,
                    .adds = true};
    // Words that lie together in x: those of all taps, or, dilated, of one.
    const bool joined = of_.dilation[2] == 1;
    const std::int64_t together = joined ? row_depth_ : inputs_;
    const std::int64_t parts = ceiling(together, tiles_.most_rows());
    for (std::int64_t tap = 0; tap < (joined ? 1 : of_.kernel[2]); ++tap) {
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t begin = together * part / parts,
                           count = together * (part + 1) / parts - begin;
        tile.a = lines + tap * of_.dilation[2] * inputs_ + begin;
        tile.sums = sums + (tap * inputs_ + begin) * width;
        tiles_.sum(count, vectors(task.panel), tile);
      }
    }
  }

  /// A panel of dy, window by window, or pair by pair.
  void copy_gradients(float* to, const WindowRows& rows, const WeightTask& task) const {
    const std::int64_t width = vectors(task.panel) * tiles_.lanes(),
                       outputs = std::min(width, outputs_ - task.panel * tiles_.width()),
                       stride = groups_ * outputs_;
    visit_real(dy_.dtype(), [&](auto real) {
      using T = decltype(real);
      for (std::int64_t row = rows.row; row < rows.end_row; ++row) {
        const T* from =
            dy_.data<T>() +
            (((rows.example * of_.out[0] + rows.plane) * of_.out[1] + row) * of_.out[2] +
             rows.window) *
                stride +
            task.group * outputs_ + task.panel * tiles_.width();
        for (std::int64_t i = 0; i < rows.windows(); i += of_word_, to += width) {
          const T* const at = from + i * stride;
          if constexpr (std::is_same_v<T, BFloat16>) {
            if (of_word_ == 2) {
              put_pairs(to, at, i + 1 < rows.windows() ? at + stride : nullptr, outputs, width);
              continue;
            }
          }
          for (std::int64_t j = 0; j < outputs; ++j) to[j] = load(at + j);
          for (std::int64_t j = outputs; j < width; ++j) to[j] = 0.0f;
        }
      }
    });
  }
  /// Words of (low, high); high may be null: zeros.
  static void put_pairs(float* to, const BFloat16* low, const BFloat16* high, std::int64_t count,
                        std::int64_t wide) {
    auto* const halves = reinterpret_cast<BFloat16*>(to);
    for (std::int64_t j = 0; j < count; ++j) {
      halves[2 * j] = low[j];
      halves[2 * j + 1] = high != nullptr ? high[j] : BFloat16{};
    }
    std::fill_n(halves + 2 * count, 2 * (wide - count), BFloat16{});
  }

  /// A line of x from the windows' first place on, with zeros outside. Of pairs, word i has elements
  /// i and i + those of a stride.
  void copy_line(float* to, std::int64_t line, const WindowRows& rows, std::int64_t group) const {
    const std::int64_t left = rows.window * of_.stride[2] - of_.padding[2], channels = of_.channels;
    const std::int64_t places = wide_ + of_.stride[2];
    const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, places),
                       end = std::clamp<std::int64_t>(of_.in[2] - left, begin, places);
    visit_real(x_.dtype(), [&](auto real) {
      using T = decltype(real);
      const T* const from =
          x_.data<T>() + (line * of_.in[2] + left + begin) * channels + group * inputs_;
      if constexpr (std::is_same_v<T, BFloat16>) {
        if (of_word_ == 2) return copy_pairs(to, from, begin, end, places);
      }
      std::fill_n(to, begin * inputs_, 0.0f);
      float* at = to + begin * inputs_;
      if (channels == inputs_) {
        for (std::int64_t i = 0; i < (end - begin) * inputs_; ++i) at[i] = load(from + i);
      } else {
        for (std::int64_t place = 0; place < end - begin; ++place)
          for (std::int64_t c = 0; c < inputs_; ++c)
            at[place * inputs_ + c] = load(from + place * channels + c);
      }
      std::fill_n(at + (end - begin) * inputs_, (places - end) * inputs_, 0.0f);
    });
  }
  void copy_pairs(float* to, const BFloat16* from, std::int64_t begin, std::int64_t end,
                  std::int64_t places) const {
    auto* const words = reinterpret_cast<std::uint32_t*>(to);
    const std::int64_t far = of_.stride[2] * inputs_, total = places * inputs_;
    std::fill_n(words, begin * inputs_, 0u);
    std::fill_n(words + end * inputs_, (places - end) * inputs_, 0u);
    for (std::int64_t place = begin; place < end; ++place) {
      const BFloat16* const in = from + (place - begin) * of_.channels;
      std::uint32_t* const out = words + place * inputs_;
      for (std::int64_t c = 0; c < inputs_; ++c) out[c] = in[c].bits;
    }
    for (std::int64_t i = 0; i + far < total; ++i) words[i] |= words[i + far] << 16;
    for (std::int64_t i = std::max<std::int64_t>(0, total - far); i < total; ++i)
      words[i] &= 0xFFFFu;
  }

  /// The parts of a panel in their order, to rows of dweight.
  void finish(std::int64_t group, std::int64_t panel, GradientMode mode) const {
    const std::int64_t depth = of_.taps() * inputs_, width = vectors(panel) * tiles_.lanes(),
                       outputs = std::min(width, outputs_ - panel * tiles_.width());
    float* const to = dweight_.data<float>() + (group * outputs_ + panel * tiles_.width()) * depth;
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t j = 0; j < outputs; ++j) {
        float total = 0;
        for (std::int64_t part = 0; part < parts_; ++part)
          total += sum_at(part, group, panel, k, width)[j];
        float& out = to[j * depth + k];
        out = (mode == GradientMode::kAccumulate ? out : 0.0f) + total;
      }
    }
  }
  const float* sum_at(std::int64_t part, std::int64_t group, std::int64_t panel, std::int64_t k,
                      std::int64_t width) const {
    const std::int64_t task_depth = task_rows_ * row_depth_, first = k / task_depth * task_rows_;
    return sums_of(part, group, panel, first) + k % task_depth * width;
  }

  const SpatialWindow& of_;
  std::int64_t groups_, inputs_, outputs_;
  const Tensor &dweight_, &dy_, &x_;
  std::int64_t of_word_;  // windows of a word: 2 of pairs
  WindowTiles tiles_;
  std::int64_t panels_;
  std::int64_t row_depth_;  // elements that the taps of a row of the kernel read
  std::int64_t slab_windows_, slab_rows_;
  std::int64_t task_rows_ = 1, row_tasks_ = 1, slabs_ = 1, parts_ = 1;
  std::int64_t wide_ = 0, line_words_ = 0, gradient_words_ = 0;
  Tensor sums_, scratch_;
};

}  // namespace

void convolve_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                              const SpatialWindow& window, std::int64_t groups, GradientMode mode,
                              const Stream& stream) {
  WeightGradient gradient(dweight, dy, x, window, groups, stream);
  if (!simulated(stream)) gradient.run(mode);
}

}  // namespace hybrid_trainer::kernels::cpu
