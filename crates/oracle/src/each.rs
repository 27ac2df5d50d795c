//! The `@each` directive: a table that generates the rows of a file once for each of its lines.
//!
//! The table is the first block of the file. Its first line names the columns, for example `@each $field $value`. The
//! cells of the following lines are separated by bars.

use anyhow::{Context, Result, ensure};

const DIRECTIVE: &str = "@each ";

/// Expands a file: returns one document for each line of its table, or the file itself if it has no table.
pub fn texts(file: &str) -> Result<Vec<String>> {
    let is_comment = |line: &&str| line.starts_with('#') || line.trim().is_empty();
    let is_table =
        file.lines().find(|line| !is_comment(line)).is_some_and(|line| line.starts_with(DIRECTIVE));
    let Some((_, table)) = file.split_once(DIRECTIVE).filter(|_| is_table) else {
        return Ok(vec![file.to_owned()]);
    };
    let (table, rows) = table.split_once("\n\n").context("a table ends with an empty line")?;
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let table: Vec<&str> = lines.filter(|line| !is_comment(line)).collect();
    let text = |line: &&str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        ensure!(cells.len() == columns.len(), "{line:?} has {} cells", cells.len());
        let cells = columns.iter().zip(cells);
        Ok(cells.fold(rows.to_owned(), |text, (column, cell)| text.replace(column, cell)))
    };
    table.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each_line() {
        let file = "# What.\n@each $a $b\n1 | {\"x\":1}\n# 2\n3 | 4\n\n== of $a\n\nGET $b\n";
        let texts = texts(file).unwrap();
        assert_eq!(texts, ["== of 1\n\nGET {\"x\":1}\n", "== of 3\n\nGET 4\n"]);
    }

    #[test]
    fn a_file_without_a_table_is_unchanged() {
        for file in ["", "# What.\n\n== of $a\n\nGET $b\n", "== a\n@each $b\n\n"] {
            assert_eq!(texts(file).unwrap(), [file]);
        }
    }

    #[test]
    fn invalid_tables_are_rejected() {
        for file in ["@each $a $b\n1\n\n== x", "@each $a\n1"] {
            assert!(texts(file).is_err(), "{file}");
        }
    }
}
