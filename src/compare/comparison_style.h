#pragma once

namespace hybrid_trainer {

/// The report's style sheet.
inline constexpr char kComparisonStyle[] = R"css(
:root { --page: #f4f5f8; --card: #fff; --ink: #1b2130; --soft: #5d6679; --rule: #e2e5ec; --warn: #a85b00; --good: #1a7f4b;
  --c0: #2667d9; --c1: #d9480f; --c2: #2b8a3e; --c3: #9a3fd1; --c4: #c4264e; --c5: #0c8599; --c6: #946200; --c7: #5d6679; }
@media (prefers-color-scheme: dark) {
  :root { --page: #11141b; --card: #1a1f2a; --ink: #e7eaf1; --soft: #97a1b5; --rule: #2c3342; --warn: #f2a93b; --good: #4cc38a;
    --c0: #6ea0ff; --c1: #ff8f5c; --c2: #6cc67d; --c3: #c98bf5; --c4: #ff6d8f; --c5: #4cc3d9; --c6: #e0b04a; --c7: #97a1b5; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 18px 20px 40px; display: grid; gap: 14px; }
main > *, .columns > * { min-width: 0; }
h1 { font-size: 22px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 0 0 6px; }
h1 small, h2 small, .soft { font-weight: 400; color: var(--soft); font-size: 13px; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 16px 14px; overflow-x: auto; }
.columns { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 8px; border-top: 1px solid var(--rule); vertical-align: top; }
thead th { border-top: 0; color: var(--soft); font-weight: 400; font-size: 13px; }
th:first-child { text-align: left; padding-left: 0; font-weight: 550; white-space: nowrap; }
td small { display: block; color: var(--soft); white-space: nowrap; }
ul { margin: 0; padding-left: 18px; } li { overflow-wrap: anywhere; }
.flag { color: var(--warn); } .claim { color: var(--good); font-weight: 600; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px; background: currentColor; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; } .legend b { color: var(--ink); font-weight: 400; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--soft); }
svg .line { stroke: currentColor; fill: none; stroke-width: 1.6; stroke-linejoin: round; }
svg circle { fill: currentColor; stroke: var(--card); }
a { color: var(--c0); } p { margin: 4px 0; } summary { font-weight: 600; cursor: pointer; }
pre { margin: 10px 0 0; font: 13px/1.5 ui-monospace, Menlo, Consolas, "Liberation Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 760px) { .columns { grid-template-columns: 1fr; } main { padding: 14px 12px 30px; } }
)css";

}  // namespace hybrid_trainer
