//! The recording of a terminal, as an SVG file: the transcript of the README, whose lines appear one after the other.

use std::fmt::Write;

/// Pixels from one line to the next.
const LINE: usize = 18;
/// Pixels of a column, in a font of 13 pixels.
const COLUMN: f32 = 7.85;
/// Seconds before a command, and before a line of its output.
const COMMAND: f32 = 1.2;
const OUTPUT: f32 = 0.06;

/// The recording of the first `console` block of the page.
pub fn svg(page: &str) -> String {
    let block = page.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
    let lines: Vec<&str> = block.trim_end().lines().collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let width = (columns as f32 * COLUMN) as usize + 32;
    let height = (lines.len() + 2) * LINE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"kubectl get llamas and farmpods\">\n\
         <style>\n\
         text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d0d7de; white-space: pre; \
         animation: appear .1s both; }}\n\
         .command {{ fill: #7ee787; }}\n\
         @keyframes appear {{ from {{ opacity: 0; }} to {{ opacity: 1; }} }}\n\
         @media (prefers-reduced-motion: reduce) {{ text {{ animation: none; }} }}\n\
         </style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    let mut seconds = 0.0;
    for (index, line) in lines.iter().enumerate() {
        let is_command = line.starts_with("$ ");
        seconds += if is_command { COMMAND } else { OUTPUT };
        if line.is_empty() {
            continue;
        }
        let class = if is_command { " class=\"command\"" } else { "" };
        let y = (index + 2) * LINE - LINE / 2;
        let text = line.replace('&', "&amp;").replace('<', "&lt;");
        let style = format!("animation-delay:{seconds:.2}s");
        writeln!(
            svg,
            "<text{class} x=\"16\" y=\"{y}\" xml:space=\"preserve\" style=\"{style}\">{text}</text>"
        )
        .unwrap();
    }
    svg.push_str("</svg>\n");
    svg
}
