#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/convolution/convolution_cpu.h"
#include "src/core/threads.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kSlabWindows = 256;     // windows whose places of x are copied together
constexpr std::int64_t kPassWindows = 128;     // windows whose gradients fit in the L1 cache
constexpr std::int64_t kLineWords = 64 << 10;  // words of x copied together
constexpr std::int64_t kSumWords = 96 << 10;   // sums of a task that fit in the L2 cache
constexpr std::int64_t kMinDepth = 128;        // words of weights per output in a task
constexpr std::int64_t kPartWindows = 512;     // windows per part; the sums of parts are added
constexpr std::int64_t kEnoughTasks = 16;      // enough for any number of threads

std::int64_t ceiling(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

/// A block of windows, in some rows of an example's plane, that a task reads together.
struct WindowRows {
  std::int64_t example, plane, row, end_row, window, end_window;
  std::int64_t rows() const { return end_row - row; }
  std::int64_t windows() const { return end_window - window; }
};

/// Part of the weight's gradient: panels of outputs, taps in planes, and a part of all windows.
struct WeightTask {
  std::int64_t part, group, panel, end_panel, tap_plane, end_tap_plane;
};

/// Copies words of dy and of x: floats, or pairs of bf16 from two adjacent windows.
class WindowWords {
 public:
  /// `wide` is the number of places in a line that the windows read together.
  WindowWords(const SpatialWindow& window, const Tensor& dy, const Tensor& x, std::int64_t inputs,
              std::int64_t of_word, std::int64_t wide)
      : of_(window), dy_(dy), x_(x), inputs_(inputs), of_word_(of_word), wide_(wide) {}
  /// Copies a panel of dy from element `first` on, for each window or pair of windows.
  void copy_gradients(float* to, const WindowRows& rows, std::int64_t first, std::int64_t outputs,
                      std::int64_t wide) const {
    const std::int64_t stride = dy_.size(dy_.shape().rank() - 1);
    visit_real(dy_.dtype(), [&]<class T>(T) {
      for (std::int64_t row = 0; row < rows.rows(); ++row) {
        const T* const from = dy_.data<T>() + first + row * of_.out[2] * stride;
        for (std::int64_t i = 0; i < rows.windows(); i += of_word_, to += wide) {
          const T* const at = from + i * stride;
          if constexpr (std::is_same_v<T, BFloat16>) {
            if (of_word_ == 2) {
              put_pairs(to, at, i + 1 < rows.windows() ? at + stride : nullptr, outputs, wide);
              continue;
            }
          }
          for (std::int64_t j = 0; j < outputs; ++j) to[j] = load(at + j);
          for (std::int64_t j = outputs; j < wide; ++j) to[j] = 0.0f;
        }
      }
    });
  }
  /// Copies a line of x from the windows' first place. Pairs are elements i and i + stride.
  void copy_line(float* to, std::int64_t line, const WindowRows& rows, std::int64_t group) const {
    const std::int64_t left = rows.window * of_.stride[2] - of_.padding[2], channels = of_.channels;
    const std::int64_t places = wide_ + of_.stride[2];
    const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, places),
                       end = std::clamp<std::int64_t>(of_.in[2] - left, begin, places);
    visit_real(x_.dtype(), [&]<class T>(T) {
      const T* const from =
          x_.data<T>() + (line * of_.in[2] + left + begin) * channels + group * inputs_;
      if constexpr (std::is_same_v<T, BFloat16>)
        if (of_word_ == 2) return copy_pairs(to, from, begin, end, places);
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

 private:
  static void put_pairs(float* to, const BFloat16* low, const BFloat16* high, std::int64_t count,
                        std::int64_t wide) {
    auto* const halves = reinterpret_cast<BFloat16*>(to);
    for (std::int64_t j = 0; j < count; ++j) {
      halves[2 * j] = low[j];
      halves[2 * j + 1] = high != nullptr ? high[j] : BFloat16{};
    }
    std::fill_n(halves + 2 * count, 2 * (wide - count), BFloat16{});
  }

  void copy_pairs(float* to, const BFloat16* from, std::int64_t begin, std::int64_t end,
                  std::int64_t places) const {
    auto* const words = reinterpret_cast<std::uint32_t*>(to);
    const std::int64_t far = of_.stride[2] * inputs_, total = places * inputs_;
    std::fill_n(words, begin * inputs_, 0u);
    std::fill_n(words + end * inputs_, (places - end) * inputs_, 0u);
    if (of_.channels == inputs_) {
      for (std::int64_t i = 0; i < (end - begin) * inputs_; ++i)
        words[begin * inputs_ + i] = from[i].bits;
    } else {
      for (std::int64_t place = 0; place < end - begin; ++place)
        for (std::int64_t c = 0; c < inputs_; ++c)
          words[(begin + place) * inputs_ + c] = from[place * of_.channels + c].bits;
    }
    for (std::int64_t i = 0; i + far < total; ++i) words[i] |= words[i + far] << 16;
    for (std::int64_t i = std::max<std::int64_t>(0, total - far); i < total; ++i)
      words[i] &= 0xFFFFu;
  }

  const SpatialWindow& of_;
  const Tensor &dy_, &x_;
  std::int64_t inputs_, of_word_, wide_;
};

/// Computes a weight's gradient in tiles of a panel of outputs by words, over all windows.
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
        row_depth_(window.kernel[2] * inputs_) {
    choose_slabs();
    choose_tasks();
    sums_ =
        empty_workspace(parts_ * groups_ * panels_ * depth() * tiles_.width(), DType::kF32, stream);
    scratch_ =
        empty_workspace(threads() * (high_ * line_words_ + gradient_words_), DType::kF32, stream);
  }

  void run(GradientMode mode) {
    const std::int64_t panel_tasks = ceiling(panels_, task_panels_),
                       plane_tasks = ceiling(of_.kernel[0], task_planes_);
    const auto sum_task = [&](std::int64_t worker, std::int64_t at) {
      WeightTask task{};
      task.tap_plane = at % plane_tasks * task_planes_, at /= plane_tasks;
      task.end_tap_plane = std::min(task.tap_plane + task_planes_, of_.kernel[0]);
      task.panel = at % panel_tasks * task_panels_, at /= panel_tasks;
      task.end_panel = std::min(task.panel + task_panels_, panels_);
      task.group = at % groups_, task.part = at / groups_;
      sum(task, scratch_.data<float>() + worker * (high_ * line_words_ + gradient_words_));
    };
    run_tasks(parts_ * groups_ * panel_tasks * plane_tasks, sum_task);
    run_tasks(groups_ * panels_, [&](std::int64_t, std::int64_t at) {
      run_on(instruction_set(), [&] { finish(at / panels_, at % panels_, mode); });
    });
  }

 private:
  std::int64_t depth() const { return of_.taps() * inputs_; }
  WindowWords words() const { return {of_, dy_, x_, inputs_, of_word_, wide_}; }

  void choose_slabs() {
    slab_windows_ = std::min(of_.out[2], kPassWindows);
    pass_rows_ = std::clamp<std::int64_t>(kPassWindows / slab_windows_, 1, of_.out[1]);
    pass_rows_ = ceiling(of_.out[1], ceiling(of_.out[1], pass_rows_));  // of equal size
    slab_rows_ = std::min(of_.out[1], ceiling(kSlabWindows, slab_windows_));
    slab_rows_ = std::max<std::int64_t>(1, slab_rows_ / pass_rows_) * pass_rows_;
    const auto high = [&] {
      return (slab_rows_ - 1) * of_.stride[1] + (of_.kernel[1] - 1) * of_.dilation[1] + 1;
    };
    wide_ = (slab_windows_ - 1) * of_.stride[2] + (of_.kernel[2] - 1) * of_.dilation[2] + 1;
    // Includes the words that the second element of a pair reads beyond the last window.
    line_words_ = (wide_ + of_.stride[2]) * inputs_;
    while (slab_rows_ > 1 && high() * line_words_ > kLineWords) --slab_rows_;
    high_ = high();
    pass_rows_ = std::min(pass_rows_, slab_rows_);
    gradient_words_ = pass_rows_ * ceiling(slab_windows_, of_word_) * tiles_.width();
    slabs_ = of_.batch * of_.out[0] * ceiling(of_.out[1], slab_rows_) *
             ceiling(of_.out[2], slab_windows_);
  }
  void choose_tasks() {
    const std::int64_t plane_depth = of_.kernel[1] * row_depth_;
    task_planes_ = std::min(of_.kernel[0], ceiling(kMinDepth, plane_depth));
    task_panels_ = std::clamp<std::int64_t>(
        kSumWords / (task_planes_ * plane_depth * tiles_.width()), 1, panels_);
    const std::int64_t windows = of_.batch * of_.out[0] * of_.out[1] * of_.out[2];
    const std::int64_t most = std::max<std::int64_t>(1, std::min(slabs_, windows / kPartWindows));
    const auto tasks = [&] {
      return groups_ * ceiling(panels_, task_panels_) * ceiling(of_.kernel[0], task_planes_);
    };
    while (task_panels_ > 1 && tasks() * most < kEnoughTasks) --task_panels_;
    parts_ = std::clamp<std::int64_t>(ceiling(kEnoughTasks, tasks()), 1, most);
  }

  std::int64_t vectors(std::int64_t panel) const {
    return outputs_ - panel * tiles_.width() > tiles_.lanes() ? 2 : 1;
  }
  std::int64_t width(std::int64_t panel) const { return vectors(panel) * tiles_.lanes(); }
  float* sums_of(std::int64_t part, std::int64_t group, std::int64_t panel) const {
    return sums_.data<float>() +
           ((part * groups_ + group) * panels_ + panel) * depth() * tiles_.width();
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
    const std::int64_t plane_depth = of_.kernel[1] * row_depth_;
    for (std::int64_t panel = task.panel; panel < task.end_panel; ++panel) {
      std::fill_n(
          sums_of(task.part, task.group, panel) + task.tap_plane * plane_depth * width(panel),
          (task.end_tap_plane - task.tap_plane) * plane_depth * width(panel), 0.0f);
    }
    const std::int64_t end = slabs_ * (task.part + 1) / parts_;
    for (std::int64_t at = slabs_ * task.part / parts_; at < end; ++at) {
      for (std::int64_t plane = task.tap_plane; plane < task.end_tap_plane; ++plane)
        add_tap_plane(slab(at), task, plane, scratch, scratch + gradient_words_);
    }
  }

  /// Adds the sums over the windows for the taps of a plane of the kernel.
  void add_tap_plane(const WindowRows& rows, const WeightTask& task, std::int64_t tap_plane,
                     float* gradients, float* copies) const {
    const std::int64_t plane =
        rows.plane * of_.stride[0] - of_.padding[0] + tap_plane * of_.dilation[0];
    if (plane < 0 || plane >= of_.in[0]) return;
    const std::int64_t first = rows.row * of_.stride[1] - of_.padding[1];
    const LineRows lines = line_rows(copies, rows, plane, first, task.group);
    for (std::int64_t panel = task.panel; panel < task.end_panel; ++panel) {
      for (std::int64_t row = rows.row; row < rows.end_row; row += pass_rows_) {
        WindowRows pass = rows;
        pass.row = row, pass.end_row = std::min(row + pass_rows_, rows.end_row);
        const GradientRows of_panel = gradient_rows(gradients, pass, task.group, panel);
        for (std::int64_t tap_row = 0; tap_row < of_.kernel[1]; ++tap_row) {
          float* const sums = sums_of(task.part, task.group, panel) +
                              (tap_plane * of_.kernel[1] + tap_row) * row_depth_ * width(panel);
          add_tap_row(pass, tap_row, of_panel, lines, vectors(panel), sums);
        }
      }
    }
  }

  /// Lines of x, starting at the first place of the windows. Line i of the second dimension is at
  /// (i − begin)·step.
  struct LineRows {
    const float* first;
    std::int64_t step, begin;
  };
  /// Returns x itself if its words are floats and the windows read no padding of a line. Otherwise
  /// copies it. `first` is the line at which `copies` begins.
  LineRows line_rows(float* copies, const WindowRows& rows, std::int64_t plane, std::int64_t first,
                     std::int64_t group) const {
    const std::int64_t left = rows.window * of_.stride[2] - of_.padding[2],
                       line = (rows.example * of_.in[0] + plane) * of_.in[1],
                       reach = (rows.windows() - 1) * of_.stride[2] +
                               (of_.kernel[2] - 1) * of_.dilation[2] + 1;
    if (x_.dtype() == DType::kF32 && groups_ == 1 && left >= 0 && left + reach <= of_.in[2]) {
      const std::int64_t step = of_.in[2] * of_.channels;
      return {x_.data<float>() + line * step + left * of_.channels, step, 0};
    }
    const std::int64_t high =
        (rows.rows() - 1) * of_.stride[1] + (of_.kernel[1] - 1) * of_.dilation[1] + 1;
    run_on(instruction_set(), [&] {
      for (std::int64_t at = std::max<std::int64_t>(0, first);
           at < std::min(first + high, of_.in[1]); ++at)
        words().copy_line(copies + (at - first) * line_words_, line + at, rows, group);
    });
    return {copies, line_words_, first};
  }

  /// A panel of dy: the words of window or pair i start at word i·step.
  struct GradientRows {
    const float* first;
    std::int64_t step;
  };
  /// Returns dy itself if it already has the layout of a copy; otherwise copies it.
  GradientRows gradient_rows(float* copies, const WindowRows& rows, std::int64_t group,
                             std::int64_t panel) const {
    const std::int64_t stride = groups_ * outputs_,
                       outputs = std::min(width(panel), outputs_ - panel * tiles_.width());
    const bool has_tile_layout = dy_.dtype() == DType::kF32 && outputs == width(panel) &&
                                 outputs == stride && rows.windows() == of_.out[2];
    const std::int64_t at =
        (((rows.example * of_.out[0] + rows.plane) * of_.out[1] + rows.row) * of_.out[2] +
         rows.window) *
            stride +
        group * outputs_ + panel * tiles_.width();
    if (has_tile_layout) return {dy_.data<float>() + at, stride};
    run_on(instruction_set(),
           [&] { words().copy_gradients(copies, rows, at, outputs, width(panel)); });
    return {copies, width(panel)};
  }

  void add_tap_row(const WindowRows& rows, std::int64_t tap_row, const GradientRows& gradients,
                   const LineRows& lines, std::int64_t vectors_of, float* sums) const {
    const std::int64_t steps = ceiling(rows.windows(), of_word_);
    thread_local std::vector<WordRun> runs;
    runs.clear();
    for (std::int64_t row = 0; row < rows.rows(); ++row) {
      const std::int64_t line =
          (rows.row + row) * of_.stride[1] - of_.padding[1] + tap_row * of_.dilation[1];
      if (line >= 0 && line < of_.in[1])
        runs.push_back({(line - lines.begin) * lines.step, steps, row * steps});
    }
    WindowTile tile{.step = of_word_ * of_.stride[2] * inputs_,
                    .runs = runs.data(),
                    .run_count = static_cast<std::int64_t>(runs.size()),
                    .b = gradients.first,
                    .b_step = gradients.step,
                    .adds = true};
    // Words contiguous in x: the words of all taps, or of one tap if the window is dilated.
    const bool joined = of_.dilation[2] == 1;
    const std::int64_t together = joined ? row_depth_ : inputs_;
    const std::int64_t parts = ceiling(together, tiles_.max_rows());
    for (std::int64_t tap = 0; tap < (joined ? 1 : of_.kernel[2]); ++tap) {
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t begin = together * part / parts,
                           count = together * (part + 1) / parts - begin;
        tile.a = lines.first + tap * of_.dilation[2] * inputs_ + begin;
        tile.sums = sums + (tap * inputs_ + begin) * vectors_of * tiles_.lanes();
        tiles_.sum(count, vectors_of, tile);
      }
    }
  }

  /// Adds the sums of a panel's parts in order, and writes them to rows of dweight.
  void finish(std::int64_t group, std::int64_t panel, GradientMode mode) const {
    const std::int64_t wide = width(panel),
                       outputs = std::min(wide, outputs_ - panel * tiles_.width());
    float* const to =
        dweight_.data<float>() + (group * outputs_ + panel * tiles_.width()) * depth();
    const float* const first = sums_of(0, group, panel);
    const std::int64_t part_words = groups_ * panels_ * depth() * tiles_.width();
    const bool adds = mode == GradientMode::kAccumulate;
    constexpr std::int64_t kBlock = 16;  // words whose rows of sums fit in the L1 cache
    for (std::int64_t begin = 0; begin < depth(); begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, depth());
      for (std::int64_t j = 0; j < outputs; ++j) {
        for (std::int64_t k = begin; k < end; ++k) {
          float total = 0;
          for (std::int64_t part = 0; part < parts_; ++part)
            total += first[part * part_words + k * wide + j];
          float& out = to[j * depth() + k];
          out = (adds ? out : 0.0f) + total;
        }
      }
    }
  }

  const SpatialWindow& of_;
  std::int64_t groups_, inputs_, outputs_;
  const Tensor &dweight_, &dy_, &x_;
  std::int64_t of_word_;  // windows per word: 2 for pairs
  WindowTiles tiles_;
  std::int64_t panels_;
  std::int64_t row_depth_;  // elements read by the taps of a row of the kernel
  std::int64_t slab_windows_ = 1, slab_rows_ = 1, pass_rows_ = 1, high_ = 1, wide_ = 1,
               line_words_ = 0;
  std::int64_t gradient_words_ = 0, slabs_ = 1;
  std::int64_t task_planes_ = 1, task_panels_ = 1, parts_ = 1;
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
