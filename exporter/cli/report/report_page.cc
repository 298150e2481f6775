// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "exporter/cli/report/report_text.h"
#include "exporter/findings/words.h"
#include "exporter/text/text_line.h"
#include "exporter/web/page_files.h"  // generated

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kMostRows = 200;  // of a table; the JSON has all
constexpr size_t kMostChartRows = 24;
constexpr double kWidth = 1000, kHeight = 60;  // of a picture, which CSS stretches

// Beside page.css. Paper is white, and has room to the side for no more than the page is wide.
constexpr std::string_view kOwnStyle = R"(
.bar { fill: var(--accent); }
.bar.bad { fill: var(--bad); }
.bar.soft { fill: var(--soft); }
.key::before { content: "■ "; color: var(--accent); }
.key.bad::before { color: var(--bad); }
.key.soft::before { color: var(--soft); }
.line.soft { stroke: var(--soft); }
.plot { margin: 1rem 0; }
.plot.ranks .ticks-y { max-width: 16rem; }
.plot.ranks .ticks-y span { line-height: 1.3; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
@media (max-width: 34rem) { .plot.ranks .ticks-y { max-width: 8rem; } }
@media print {
  :root {
    --ground: #fff; --card: #fff; --line: #dfe3e8; --text: #17202b; --soft: #55626f; --accent: #1d5fd1;
    --good: #187a3f; --bad: #b3261e; --bad-ground: #fdeceb; --warn: #8a5300; --warn-ground: #fdf3e0; --info: #1d5fd1;
    print-color-adjust: exact;
  }
  body { max-width: none; }
  .wide { overflow: visible; border: none; }
  th, td { white-space: normal; }
  tr, .plot { break-inside: avoid; }
}
)";

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const std::string_view name = c == '&'   ? "&amp;"
                                  : c == '<' ? "&lt;"
                                  : c == '>' ? "&gt;"
                                  : c == '"' ? "&quot;"
                                             : std::string_view(&c, 1);
    escaped += name;
  }
  return escaped;
}

std::string_view PageStyle() {
  return std::ranges::find(kPageFiles, "page.css", [](const auto& file) { return file.first; })
      ->second;
}

std::string Span(const std::string& text) { return "<span>" + Escaped(text) + "</span>"; }
std::string Key(const char* kind, const char* text) {
  return fmt::format("<span class=\"key {}\">{}</span> ", kind, text);
}

// A chart with its axes, as plot.js makes it. `rows`: of bars; 0: it has lines.
std::string Plot(const std::string& title, const std::string& keys, const std::string& ticks,
                 const std::string& shapes, const std::string& ends, size_t rows) {
  return fmt::format(
      "<figure class=\"plot{0}\"><figcaption>{1}<span>{2}</span></figcaption>\n"
      "<div class=\"ticks-y\">{3}</div><div class=\"field\"><svg class=\"chart\" role=\"img\" "
      "aria-label=\"{4}\" viewBox=\"0 0 {5} {6}\" preserveAspectRatio=\"none\">{7}</svg></div>"
      "<div class=\"ticks-x\">{8}</div></figure>\n",
      rows > 0 ? fmt::format(" ranks\" style=\"--rows:{}", rows) : "", Span(title), keys, ticks,
      Escaped(title), kWidth, rows > 0 ? 10.0 * static_cast<double>(rows) : kHeight, shapes, ends);
}

double PositionOf(const Report& report, double time) {
  const double length = std::max(report.to - report.from, 1.0);
  return std::clamp((time - report.from) / length, 0.0, 1.0) * kWidth;
}

// The corners of a line. A gap in time is a gap in the line.
std::string PathOf(const Report& report, const std::vector<Point>& points, double top) {
  const double gap = points.size() < 2 ? 0 : 2.5 * (points[1].time - points[0].time);
  std::string path;
  for (size_t i = 0; i < points.size(); ++i) {
    const bool joins = i > 0 && points[i].time - points[i - 1].time <= gap;
    path += fmt::format("{}{:.1f},{:.2f}", joins ? 'L' : 'M', PositionOf(report, points[i].time),
                        kHeight * (1 - std::clamp(points[i].value / top, 0.0, 1.0)));
  }
  return path;
}

std::string TimeEnds(const Report& report) {
  return Span(MomentText(report.from)) + Span(MomentText(report.to, report.from) + " UTC");
}

std::string WaitingChart(const Report& report) {
  double top = 0;
  for (const Point& point : report.gpus) top = std::max(top, point.value);
  if (!(top > 0)) return "";
  const std::string shapes = fmt::format(
      "<path class=\"grid\" d=\"M0,0H{0}M0,{1}H{0}\"/><path class=\"line soft\" "
      "d=\"{2}\"/><path class=\"line\" d=\"{3}\"/>",
      kWidth, kHeight / 2, PathOf(report, report.gpus, top), PathOf(report, report.waiting, top));
  return Plot("GPUs of the job, and GPUs that wait", Key("soft", "all") + Key("", "waiting"),
              Span(fmt::format("{:.3g}", top)) + Span(fmt::format("{:.3g}", top / 2)) + Span("0"),
              shapes, TimeEnds(report), 0);
}

// Rows of bars, each with its label; from the first on, as many as fit.
class Rows {
 public:
  bool StartsRow(const std::string& label) {
    is_cut_ = count_ == kMostChartRows;
    if (is_cut_) return false;
    ticks_ += Span(label);
    ++count_;
    return true;
  }
  void AddBar(double from, double to, const char* kind) {
    constexpr double kLeast = 2;  // a short time is seen as well
    shapes_ += fmt::format(
        "<rect class=\"bar {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"7\"/>", kind,
        std::min(from, kWidth - kLeast), 10.0 * static_cast<double>(count_) - 8.5,
        std::max(kLeast, to - from));
  }
  std::string Chart(const std::string& title, const std::string& keys,
                    const std::string& ends) const {
    const std::string whole = is_cut_ ? fmt::format("{}, the first {}", title, count_) : title;
    return count_ == 0 ? "" : Plot(whole, keys, ticks_, shapes_, ends, count_);
  }

 private:
  std::string ticks_, shapes_;
  size_t count_ = 0;
  bool is_cut_ = false;
};

std::string EventsChart(const Report& report, const std::vector<ReportEvent>& events,
                        const std::string& title) {
  Rows rows;
  for (const ReportEvent& event : events) {
    const std::string place = PlaceOf(event.labels);
    const char* const colon = event.name.empty() || place.empty() ? "" : ": ";
    if (event.times.empty() || !rows.StartsRow(Printable(event.name) + colon + place)) continue;
    for (const auto& [begin, end] : event.times)
      rows.AddBar(PositionOf(report, begin), PositionOf(report, end),
                  event.severity == "critical" ? "bad"
                  : event.severity == "info"   ? "soft"
                                               : "");
  }
  return rows.Chart(title, "", TimeEnds(report));
}

std::string TrafficChart(const Report& report) {
  Rows rows;
  double most = 0;
  for (const ReportTraffic& row : report.traffic) most = std::max(most, row.busy_seconds);
  for (const ReportTraffic& row : report.traffic) {
    if (!(most > 0) || !rows.StartsRow(Printable(row.comm_name) + ' ' + Printable(row.collective)))
      break;
    const double end = row.busy_seconds / most * kWidth;
    const double transfer = row.least_seconds > 0 ? end * (1 - row.waiting_share()) : end;
    rows.AddBar(0, transfer, "");
    if (transfer < end) rows.AddBar(transfer, end, "bad");
  }
  return rows.Chart("GPU time by communicator and function",
                    Key("", "transfer") + Key("bad", "waiting for the last rank"),
                    Span("0") + Span(GpuTimeText(most)));
}

std::string HtmlOf(const ReportTable& table) {
  std::string html = fmt::format(
      "<h2>{0}</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>"
      "<thead><tr>",
      Escaped(table.title));
  const auto kind = [&](size_t column) {
    return table.columns[column].is_text ? "" : " class=\"number\"";
  };
  for (size_t i = 0; i < table.columns.size(); ++i)
    html += fmt::format("<th scope=\"col\"{}>{}</th>", kind(i), table.columns[i].head);
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      html += fmt::format("<td{}>{}</td>", kind(i), Escaped(row[i]));
    html += "</tr>\n";
  }
  html += "</tbody></table></div>\n";
  if (table.left_out > 0)
    Line(html, "<p class=\"note\">{} more: JSON has all.</p>", table.left_out);
  return html;
}

}  // namespace

std::string ReportPage(const Report& report) {
  const std::string title = Escaped(TitleOf(report));
  std::string html;
  Line(html, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
  Line(html,
       "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
       "'unsafe-inline'\">");
  Line(html, "<meta name=\"viewport\" content=\"width=device-width\">");
  Line(html, "<title>{}</title>\n<style>{}{}</style></head>\n<body>", title, PageStyle(),
       kOwnStyle);
  Line(html, "<header><h1>{}</h1><p>{}</p></header>\n<main>", title, Escaped(TimeOf(report)));
  const auto has = [&](const char* severity) {
    return std::ranges::count(report.events, severity, &ReportEvent::severity) > 0;
  };
  Line(html, "<section id=\"verdict\" class=\"{}\" aria-label=\"Summary\">",
       has("critical")  ? "bad"
       : has("warning") ? "warn"
                        : "good");
  for (const std::string& sentence : SummaryOf(report)) Line(html, "<p>{}</p>", Escaped(sentence));
  Line(html, "</section>");
  html += WaitingChart(report);
  html += EventsChart(report, report.waited_for, "Ranks that the others waited for");
  html += EventsChart(report, report.events, "Alerts and findings");
  html += TrafficChart(report);
  for (const ReportTable& table : TablesOf(report, kMostRows)) html += HtmlOf(table);
  Line(html, "</main></body></html>");
  return html;
}

}  // namespace nccl_exporter::exporter
