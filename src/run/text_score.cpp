#include "src/run/text_score.h"

#include <algorithm>
#include <boost/json.hpp>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "src/core/messages.h"
#include "src/core/threads.h"
#include "src/files/json.h"

namespace hybrid_trainer {

namespace {

using Measure = TextScore::Measure;
using Rows = std::vector<TextRow>;

void require_width(const TextOutputs& outputs, std::int64_t wanted, const char* labels) {
  if (outputs.width() == wanted) return;
  throw ShapeMismatch(
      concat("text_score: got ", outputs.width(), " outputs per text, want ", wanted, labels));
}

Measure share_measure(const char* title, const char* key, std::int64_t right, std::size_t of) {
  const auto n = static_cast<double>(of);
  return {title, key, static_cast<double>(right) / n,
          wilson_interval(static_cast<double>(right), n)};
}

TextScore score_of_classes(const TextOutputs& outputs, const Rows& rows, const ModelConfig& model) {
  require_width(outputs, std::ssize(model.labels), ", one per class");
  std::vector<std::string> names;
  for (const ClassLabel& label : model.labels) names.push_back(label.name);
  TextScore score{.confusion = ConfusionTable(std::move(names))};
  std::int64_t right = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto logits = outputs.of(i, 0);
    const auto actual = static_cast<std::size_t>(rows[i].class_index.value());
    const auto predicted =
        static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
    score.confusion->add(actual, predicted);
    right += actual == predicted ? 1 : 0;
  }
  score.measures = {share_measure("accuracy", "accuracy", right, rows.size()),
                    {"macro F1", "macro_f1", score.confusion->macro_f1()}};
  return score;
}

TextScore score_of_labels(const TextOutputs& outputs, const Rows& rows) {
  const auto labels = static_cast<std::size_t>(outputs.width());
  std::vector<ConfusionTable::Class> each(labels);
  ConfusionTable::Class all;
  std::int64_t exact = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    require_width(outputs, std::ssize(rows[i].labels), ", one per label");
    bool is_exact = true;
    for (std::size_t k = 0; k < labels; ++k) {
      const bool actual = rows[i].labels[k] > 0.5f, predicted = outputs.of(i, 0)[k] > 0;
      for (ConfusionTable::Class* counts : {&each[k], &all}) {
        counts->actual += actual ? 1 : 0;
        counts->predicted += predicted ? 1 : 0;
        counts->right += actual && predicted ? 1 : 0;
      }
      is_exact = is_exact && actual == predicted;
    }
    exact += is_exact ? 1 : 0;
  }
  double sum = 0;
  for (const ConfusionTable::Class& one : each) sum += one.f1();
  return {.measures = {{"micro F1", "micro_f1", all.f1()},
                       {"macro F1", "macro_f1", sum / static_cast<double>(labels)},
                       share_measure("exact match", "exact_match", exact, rows.size())}};
}

std::vector<double> first_labels(const Rows& rows) {
  std::vector<double> labels;
  for (const TextRow& row : rows) labels.push_back(static_cast<double>(row.labels.at(0)));
  return labels;
}

std::vector<double> first_outputs(const TextOutputs& outputs, const Rows& rows,
                                  std::int64_t role = 0) {
  require_width(outputs, 1, "");
  std::vector<double> values;
  for (std::size_t i = 0; i < rows.size(); ++i)
    values.push_back(static_cast<double>(outputs.of(i, role)[0]));
  return values;
}

std::vector<Measure> correlations(std::span<const double> values, std::span<const double> labels,
                                  std::int64_t channels = 0) {
  return {{.title = "Pearson's correlation",
           .key = "pearson",
           .value = pearson_correlation(values, labels),
           .channels = channels},
          {.title = "Spearman's correlation",
           .key = "spearman",
           .value = spearman_correlation(values, labels),
           .channels = channels}};
}

TextScore score_of_numbers(const TextOutputs& outputs, const Rows& rows) {
  const std::vector<double> values = first_outputs(outputs, rows), labels = first_labels(rows);
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    sum += (values[i] - labels[i]) * (values[i] - labels[i]);
  TextScore score{.measures = {{"mean squared error", "mean_squared_error",
                                sum / static_cast<double>(rows.size())}}};
  for (Measure& measure : correlations(values, labels)) score.measures.push_back(measure);
  return score;
}

/// Returns the leading channels of the given texts, divided by their norm, (texts, channels) f32.
Tensor directions(const TextOutputs& outputs, std::span<const std::int64_t> texts,
                  std::int64_t channels, const Stream& host) {
  const Tensor all =
      Tensor::empty({std::ssize(texts), channels}, DType::kF32, MemoryKind::kWorkspace, host);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto leading = outputs.of(texts[i]).first(static_cast<std::size_t>(channels));
    std::ranges::copy(normalized(leading),
                      all.data<float>() + static_cast<std::int64_t>(i) * channels);
  }
  return all;
}

double cosine(const float* a, const float* b, std::int64_t channels) {
  return std::transform_reduce(a, a + channels, b, 0.0, std::plus<>(), [](float x, float y) {
    return static_cast<double>(x) * static_cast<double>(y);
  });
}

std::vector<Measure> score_of_cosines(const TextOutputs& outputs, const Rows& rows,
                                      std::int64_t channels, const Stream& host) {
  std::vector<double> cosines;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<std::int64_t> pair{outputs.first[i], outputs.first[i] + 1};
    const Tensor both = directions(outputs, pair, channels, host);
    cosines.push_back(cosine(both.data<float>(), both.data<float>() + channels, channels));
  }
  return correlations(cosines, first_labels(rows), channels);
}

/// Position of a text among others in the order of similarity to an anchor.
struct Position {
  std::int64_t above = 0, equal = 0;  // others with a larger similarity, and with the same

  /// Return the expected values for a random order of equally similar texts.
  double accuracy() const { return above > 0 ? 0 : 1 / static_cast<double>(equal + 1); }
  double reciprocal_rank() const {
    double sum = 0;
    for (std::int64_t rank = above + 1; rank <= above + equal + 1; ++rank)
      sum += 1 / static_cast<double>(rank);
    return sum / static_cast<double>(equal + 1);
  }
};

/// Returns the position of candidates[targets[i]] among all candidates for each anchor i.
std::vector<Position> positions_of(const Tensor& anchors, const Tensor& candidates,
                                   const std::vector<std::int64_t>& targets, const Stream& host) {
  constexpr std::int64_t kElementsAtOnce = 1 << 22;
  const std::int64_t count = anchors.size(0), width = candidates.size(0);
  const std::int64_t at_once = std::clamp<std::int64_t>(kElementsAtOnce / width, 1, count);
  const Tensor block = Tensor::empty({at_once, width}, DType::kF32, MemoryKind::kWorkspace, host);
  std::vector<Position> positions(static_cast<std::size_t>(count));
  for (std::int64_t first = 0; first < count; first += at_once) {
    const std::int64_t some = std::min(at_once, count - first);
    kernels::matmul(block.rows(0, some), anchors.rows(first, first + some), kernels::Transpose::kNo,
                    candidates, kernels::Transpose::kYes, kernels::GradientMode::kOverwrite, host);
    run_each(some, 1, [&](std::int64_t i) {
      const std::span<const float> row{block.data<float>() + i * width,
                                       static_cast<std::size_t>(width)};
      const auto at = static_cast<std::size_t>(first + i);
      const float own = row[static_cast<std::size_t>(targets[at])];
      positions[at] = {std::ranges::count_if(row, [own](float other) { return other > own; }),
                       std::ranges::count(row, own) - 1};
    });
  }
  return positions;
}

std::vector<Measure> score_of_pairs(const TextOutputs& outputs, const Rows& rows,
                                    std::int64_t channels, const Stream& host) {
  std::vector<std::int64_t> others, targets;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    targets.push_back(std::ssize(others));
    for (std::int64_t role = 1; role < std::ssize(rows[i].ends); ++role)
      others.push_back(outputs.first[i] + role);
  }
  double accuracy = 0, reciprocal = 0;
  for (const Position& position :
       positions_of(directions(outputs, outputs.first, channels, host),
                    directions(outputs, others, channels, host), targets, host)) {
    accuracy += position.accuracy();
    reciprocal += position.reciprocal_rank();
  }
  const auto n = static_cast<double>(rows.size());
  return {{.title = "accuracy@1", .key = "accuracy@1", .value = accuracy / n, .channels = channels},
          {.title = "MRR", .key = "mrr", .value = reciprocal / n, .channels = channels}};
}

TextScore score_of_embeddings(const TextOutputs& outputs, const Rows& rows,
                              const std::vector<std::int64_t>& dimensions) {
  const Stream host(make_host_pool());
  const bool has_scores = !rows.front().labels.empty();
  std::vector<std::int64_t> widths{outputs.width()};
  for (const std::int64_t channels : dimensions)
    if (std::ranges::count(widths, channels) == 0) widths.push_back(channels);
  TextScore score;
  for (const std::int64_t channels : widths) {
    for (Measure& measure : has_scores ? score_of_cosines(outputs, rows, channels, host)
                                       : score_of_pairs(outputs, rows, channels, host)) {
      if (channels == outputs.width()) measure.channels = 0;
      score.measures.push_back(std::move(measure));
    }
  }
  return score;
}

TextScore score_of_ranks(const TextOutputs& outputs, const Rows& rows) {
  const std::vector<double> scores = first_outputs(outputs, rows), labels = first_labels(rows);
  if (!std::ranges::all_of(labels, [](double label) { return label == 0 || label == 1; }))
    return {.measures = {correlations(scores, labels).back()}};
  std::vector<bool> is_positive;
  for (const double label : labels) is_positive.push_back(label == 1);
  return {.measures = {
              {"area under the ROC curve", "roc_auc", area_under_roc(scores, is_positive)},
              {"average precision", "average_precision", average_precision(scores, is_positive)}}};
}

TextScore score_of_rewards(const TextOutputs& outputs, const Rows& rows) {
  const std::vector<double> chosen = first_outputs(outputs, rows),
                            rejected = first_outputs(outputs, rows, 1);
  std::int64_t right = 0;
  double margins = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    right += chosen[i] > rejected[i] ? 1 : 0;
    margins += chosen[i] - rejected[i];
  }
  return {.measures = {share_measure("accuracy", "accuracy", right, rows.size()),
                       {"mean margin", "margin", margins / static_cast<double>(rows.size())}}};
}

TextScore score_of(const TextOutputs& outputs, const Rows& rows,
                   const HybridTrainerConfig& config) {
  if (config.objective == "embed")
    return score_of_embeddings(outputs, rows, config.texts.dimension_list());
  if (config.objective == "rank") return score_of_ranks(outputs, rows);
  if (config.objective == "reward") return score_of_rewards(outputs, rows);
  if (config.texts.has_class(config.objective))
    return score_of_classes(outputs, rows, config.model);
  return config.texts.labels == "several" ? score_of_labels(outputs, rows)
                                          : score_of_numbers(outputs, rows);
}

}  // namespace

ConfusionTable::Class ConfusionTable::of(std::size_t index) const {
  Class counts{.right = count(index, index)};
  for (std::size_t other = 0; other < names_.size(); ++other) {
    counts.actual += count(index, other);
    counts.predicted += count(other, index);
  }
  return counts;
}

double ConfusionTable::macro_f1() const {
  double sum = 0, classes = 0;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const Class counts = of(i);
    if (counts.actual + counts.predicted == 0) continue;
    sum += counts.f1();
    ++classes;
  }
  return sum / classes;
}

std::string ConfusionTable::text(std::size_t most) const {
  std::vector<std::size_t> shown(names_.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  if (shown.size() > most) {
    std::ranges::stable_sort(shown, std::greater<>(), [&](std::size_t i) { return of(i).actual; });
    shown.resize(most);
    std::ranges::sort(shown);
  }
  std::size_t name_width = 0, width = 1;
  for (const std::size_t i : shown) {
    name_width = std::max(name_width, names_[i].size());
    for (const std::size_t j : shown)
      width = std::max(width, std::max(std::to_string(count(i, j)), std::to_string(j)).size());
  }
  const auto cell = [](std::size_t size, const auto& value) {
    const std::string text = concat(value);
    return std::string(size > text.size() ? size - text.size() : 0, ' ') + text;
  };
  const std::size_t index_width = std::to_string(names_.size() - 1).size();
  std::string text = std::string(index_width + 1 + name_width, ' ');
  for (const std::size_t j : shown) text += "  " + cell(width, j);
  text += "  <- predicted";
  for (const std::size_t i : shown) {
    text += concat("\n", cell(index_width, i), " ", names_[i],
                   std::string(name_width - names_[i].size(), ' '));
    for (const std::size_t j : shown) text += "  " + cell(width, count(i, j));
  }
  if (shown.size() < names_.size())
    text += concat("\n", names_.size() - shown.size(),
                   " classes with fewer examples are not shown; --json has all");
  return text;
}

boost::json::object ConfusionTable::json() const {
  boost::json::array classes, rows;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const Class counts = of(i);
    classes.push_back({{"name", names_[i]},
                       {"examples", counts.actual},
                       {"precision", counts.precision()},
                       {"recall", counts.recall()},
                       {"f1", counts.f1()}});
    boost::json::array row;
    for (std::size_t j = 0; j < names_.size(); ++j) row.emplace_back(count(i, j));
    rows.push_back(std::move(row));
  }
  return {{"classes", std::move(classes)}, {"confusion", std::move(rows)}};
}

std::string TextScore::text() const {
  std::string text;
  for (const Measure& measure : measures) {
    text += concat(text.empty() ? "" : ", ", measure.title,
                   measure.channels > 0 ? concat(" of ", measure.channels, " channels") : "", " ",
                   measure.value ? brief(*measure.value) : "undefined");
    if (measure.interval)
      text += concat(" (95 % interval ", units::fixed(measure.interval->low, 3), " to ",
                     units::fixed(measure.interval->high, 3), ")");
  }
  return concat(text, " over ", examples, examples == 1 ? " example" : " examples");
}

boost::json::object TextScore::json() const {
  boost::json::object found, dimensions;
  for (const Measure& measure : measures) {
    if (measure.channels > 0) {
      boost::json::value& part = dimensions[std::to_string(measure.channels)];
      if (part.is_null()) part.emplace_object();
      part.get_object()[measure.key] = json_or_null(measure.value);
      continue;
    }
    found[measure.key] = json_or_null(measure.value);
    if (measure.interval)
      found[measure.key + "_interval"] = {measure.interval->low, measure.interval->high};
  }
  if (!dimensions.empty()) found["dimensions"] = std::move(dimensions);
  found["examples"] = examples;
  if (confusion)
    for (auto& [key, value] : confusion->json()) found[key] = std::move(value);
  return found;
}

TextScore text_score(const TextOutputs& outputs, const std::vector<TextRow>& rows,
                     const HybridTrainerConfig& config) {
  require(!rows.empty() && outputs.first.size() == rows.size(),
          "text_score: want the outputs of at least one row");
  TextScore score = score_of(outputs, rows, config);
  score.examples = std::ssize(rows);
  return score;
}

}  // namespace hybrid_trainer
