#include "hybrid_trainer/observability/reliability.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/units.h"

namespace hybrid_trainer {
namespace {

constexpr double kSide = 200, kMargin = 36;

std::string at(double share) { return units::fixed(kMargin + share * kSide, 1); }
std::string above(double share) { return units::fixed(kSide - share * kSide + 8, 1); }

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return concat("<text x=\"", units::fixed(x, 1), "\" y=\"", units::fixed(y, 1),
                "\" text-anchor=\"", anchor, "\">", text, "</text>");
}

}  // namespace

void Reliability::add(const StepRecord& record) {
  if (record.decision == Decision::kNone || !record.confidence) return;
  const double confidence = std::clamp(*record.confidence, 0.0, 1.0);
  Bin& bin = bins_[std::min<std::size_t>(9, static_cast<std::size_t>(10 * confidence))];
  ++bin.made;
  bin.accepted += record.decision == Decision::kAccepted ? 1 : 0;
  bin.confidence += confidence;
}

std::string Reliability::html() const {
  std::string dots, told;
  for (const Bin& bin : bins_) {
    if (bin.made == 0) continue;
    const auto made = static_cast<double>(bin.made);
    const double confidence = bin.confidence / made;
    const double share = static_cast<double>(bin.accepted) / made;
    const std::string text = concat("confidence ", units::fixed(confidence, 2), ": ", bin.accepted,
                                    " of ", bin.made, " accepted in full");
    told += concat(told.empty() ? "" : "; ", text);
    dots +=
        concat("<circle cx=\"", at(confidence), "\" cy=\"", above(share), "\" r=\"",
               units::fixed(3 + 1.5 * std::log2(made), 1), "\"><title>", text, "</title></circle>");
  }
  if (dots.empty()) return "";
  std::string svg = concat("<svg class=\"reliability\" viewBox=\"0 0 ", kSide + kMargin + 12, " ",
                           kSide + kMargin + 8, "\" role=\"img\" aria-label=\"", told,
                           "\"><path class=\"grid\" d=\"M", at(0), " ", above(0), "H", at(1), "V",
                           above(1), "H", at(0), "Z\"/><path class=\"exact\" d=\"M", at(0), " ",
                           above(0), "L", at(1), " ", above(1), "\"/>", dots);
  for (const double share : {0.0, 0.5, 1.0}) {
    svg += label(kMargin + share * kSide, kSide + 22, "middle", units::fixed(share, 1));
    svg += label(kMargin - 6, kSide - share * kSide + 12, "end", units::fixed(share, 1));
  }
  svg += label(kMargin + kSide / 2, kSide + kMargin + 2, "middle", "confidence");
  return concat(
      "<h3>Confidence and what came of it <small>share accepted in full, by tenths; the "
      "larger, the more</small></h3>",
      svg, "</svg>");
}

}  // namespace hybrid_trainer
