//! Edge lists in files: text, or pairs of binary numbers. Anything else in them is an error with its place.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use iosonde_harness::target::{OFlags, Targets};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::EdgeFormat;

use super::{Edge, Take};

/// Edges of a batch.
const BATCH: usize = 8_192;
const BUFFER_BYTES: usize = 1 << 20;
/// Longest line without its end. A longer one is no edge, and would have to be kept in memory.
const LINE_BYTES_MAX: u64 = 4_096;
/// The largest number marks a vertex without a parent.
const VERTEX_MAX: u64 = u32::MAX as u64 - 1;

/// An edge list in a file.
pub(crate) struct EdgeList<'a> {
    path: &'a Path,
    format: EdgeFormat,
    targets: &'a Targets,
    version: String,
}

impl<'a> EdgeList<'a> {
    pub(crate) fn open(path: &'a Path, format: EdgeFormat, targets: &'a Targets) -> Result<EdgeList<'a>, RunError> {
        let list = EdgeList {
            path,
            format,
            targets,
            version: String::new(),
        };
        let metadata = list.file()?.metadata().map_err(|error| list.unreadable(&error))?;
        if !metadata.is_file() {
            return Err(list.wrong(
                "",
                "it is not a regular file",
                "name a file with one edge after the other",
            ));
        }
        let pair = list.pair_bytes();
        if pair > 0 && !metadata.len().is_multiple_of(pair) {
            return Err(list.wrong(
                "",
                format!(
                    "its {} bytes are no multiple of {pair}, the size of an edge",
                    metadata.len()
                ),
                "check that the format fits the file, and that the file is complete",
            ));
        }
        Ok(EdgeList {
            version: format!(
                "{} bytes, changed {}.{:09}",
                metadata.len(),
                metadata.mtime(),
                metadata.mtime_nsec()
            ),
            ..list
        })
    }

    pub(crate) fn version(&self) -> String {
        self.version.clone()
    }

    pub(crate) fn each(&self, take: Take<'_>) -> Result<(), RunError> {
        let reader = BufReader::with_capacity(BUFFER_BYTES, self.file()?);
        match self.format {
            EdgeFormat::Text => self.each_of_text(reader, take),
            EdgeFormat::U32 | EdgeFormat::U64 => self.each_of_pairs(reader, take),
        }
    }

    fn each_of_text(&self, mut reader: impl BufRead, take: Take<'_>) -> Result<(), RunError> {
        let mut batch = Vec::with_capacity(BATCH);
        let (mut line, mut number) = (Vec::new(), 0_u64);
        loop {
            line.clear();
            let mut limited = reader.by_ref().take(LINE_BYTES_MAX + 1);
            let read = limited.read_until(b'\n', &mut line);
            if read.map_err(|error| self.unreadable(&error))? == 0 {
                break;
            }
            number += 1;
            if line.len() as u64 > LINE_BYTES_MAX && line.last() != Some(&b'\n') {
                return Err(self.wrong(
                    &format!("line {number}"),
                    format!("it has more than {LINE_BYTES_MAX} bytes"),
                    "write one edge a line, and split long comments; check that the format fits the file",
                ));
            }
            if let Some(edge) = self.edge_of_line(&line, number)? {
                batch.push(edge);
            }
            if batch.len() == BATCH {
                take(&batch)?;
                batch.clear();
            }
        }
        take(&batch)
    }

    /// The edge of a line, unless it is empty or a comment.
    fn edge_of_line(&self, line: &[u8], number: u64) -> Result<Option<Edge>, RunError> {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' || line[0] == b'%' {
            return Ok(None);
        }
        let place = || format!("line {number}");
        let mut words = line
            .split(|byte| matches!(byte, b' ' | b'\t' | b','))
            .filter(|word| !word.is_empty());
        let (Some(from), Some(to), None) = (words.next(), words.next(), words.next()) else {
            return Err(self.wrong(
                &place(),
                format!("`{}` is not a pair of numbers", shown(line)),
                "write one edge a line, as two decimal numbers; remove weights and other columns",
            ));
        };
        let vertex = |word: &[u8]| match decimal(word) {
            Some(value) if value <= VERTEX_MAX => Ok(value as u32),
            _ => Err(self.wrong(
                &place(),
                format!("`{}` is no vertex", shown(word)),
                "number vertices from 0 to at most 4294967294",
            )),
        };
        Ok(Some((vertex(from)?, vertex(to)?)))
    }

    fn each_of_pairs(&self, mut reader: impl Read, take: Take<'_>) -> Result<(), RunError> {
        let pair = self.pair_bytes() as usize;
        let mut bytes = vec![0; pair * BATCH];
        let mut batch = Vec::with_capacity(BATCH);
        let mut edges = 0_u64;
        loop {
            let filled = fill(&mut reader, &mut bytes).map_err(|error| self.unreadable(&error))?;
            batch.clear();
            for chunk in bytes[..filled].chunks_exact(pair) {
                let (from, to) = chunk.split_at(pair / 2);
                batch.push((self.vertex(from, edges)?, self.vertex(to, edges)?));
                edges += 1;
            }
            take(&batch)?;
            if filled < bytes.len() {
                return Ok(());
            }
        }
    }

    fn vertex(&self, bytes: &[u8], edge: u64) -> Result<u32, RunError> {
        let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        match value <= VERTEX_MAX {
            true => Ok(value as u32),
            false => Err(self.wrong(
                &format!("edge {edge}"),
                format!("{value} is no vertex"),
                "number vertices from 0 to at most 4294967294, and check that the format fits the file",
            )),
        }
    }

    fn pair_bytes(&self) -> u64 {
        match self.format {
            EdgeFormat::Text => 0,
            EdgeFormat::U32 => 8,
            EdgeFormat::U64 => 16,
        }
    }

    fn file(&self) -> Result<File, RunError> {
        let opened = self.targets.open(self.path, OFlags::RDONLY);
        opened.map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &std::io::Error) -> RunError {
        RunError::io("read", self.path, error).at("`graph.source`")
    }

    fn wrong(&self, place: &str, what: impl std::fmt::Display, hint: &str) -> RunError {
        let message = format!("cannot import `{}`: {what}", self.path.display());
        RunError::new(Code::InvalidInput, message, hint).at(place)
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

fn decimal(word: &[u8]) -> Option<u64> {
    let is_decimal = word.len() <= 19 && word.iter().all(u8::is_ascii_digit);
    is_decimal.then(|| word.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

/// The beginning of foreign text, without control characters.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(40)]);
    text.chars()
        .map(|each| if each.is_control() { '?' } else { each })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(content: &[u8], format: EdgeFormat) -> Result<Vec<Edge>, RunError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("edges");
        std::fs::write(&path, content).unwrap();
        let targets = Targets::default();
        let mut edges = Vec::new();
        EdgeList::open(&path, format, &targets)?.each(&mut |batch| {
            edges.extend_from_slice(batch);
            Ok(())
        })?;
        Ok(edges)
    }

    #[test]
    fn text_has_three_separators_and_pairs_of_both_widths_are_little_endian() {
        let edges = import(b"# SNAP\n% other\n\n0 1\n2\t3\n 4,5\r\n6 , 7", EdgeFormat::Text).unwrap();
        assert_eq!(edges, [(0, 1), (2, 3), (4, 5), (6, 7)]);
        let narrow = [1_u32, 2, 70_000, 3].map(u32::to_le_bytes).concat();
        assert_eq!(import(&narrow, EdgeFormat::U32).unwrap(), [(1, 2), (70_000, 3)]);
        let wide = [1_u64, 2, 70_000, 3].map(u64::to_le_bytes).concat();
        assert_eq!(import(&wide, EdgeFormat::U64).unwrap(), [(1, 2), (70_000, 3)]);
    }

    #[test]
    fn garbage_is_refused_with_its_place() {
        use EdgeFormat::{Text, U32, U64};
        let wide = u64::MAX.to_le_bytes().repeat(2);
        let cases: [(&[u8], EdgeFormat, &str, &str); 8] = [
            (b"0 1\n0 x\n", Text, "`x` is no vertex", "line 2"),
            (b"0 1 0.5\n", Text, "`0 1 0.5` is not a pair", "line 1"),
            (b"0\n", Text, "`0` is not a pair", "line 1"),
            (b"0 -1\n", Text, "`-1` is no vertex", "line 1"),
            (b"0 4294967295\n", Text, "`4294967295` is no vertex", "line 1"),
            (b"\xff\x00\x1b[2J 1\n", Text, "is no vertex", "line 1"),
            (b"0123456789", U32, "no multiple of 8", ""),
            (&wide, U64, "18446744073709551615 is no vertex", "edge 0"),
        ];
        for (content, format, message, context) in cases {
            assert_refused(content, format, message, context);
        }
    }

    #[track_caller]
    fn assert_refused(content: &[u8], format: EdgeFormat, message: &str, context: &str) {
        let failure = import(content, format).unwrap_err().to_failure();
        assert_eq!([&failure.code[..], &failure.context], ["invalid_input", context]);
        assert!(failure.message.contains(message), "{}", failure.message);
        assert!(!failure.message.contains('\x1b'));
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_and_not_split() {
        let longest = LINE_BYTES_MAX as usize;
        let line = |start: &str, bytes: usize| format!("2 3\n{start}{}", " ".repeat(bytes - start.len()));
        for start in ["0 1", "#", ""] {
            let fits = line(start, longest);
            let edges = import(format!("{fits}\n4 5\n").as_bytes(), EdgeFormat::Text).unwrap();
            assert_eq!((edges[0], *edges.last().unwrap()), ((2, 3), (4, 5)));
            assert_eq!(import(fits.as_bytes(), EdgeFormat::Text).unwrap()[0], (2, 3));
            for end in ["4 5\n", "\n", ""] {
                let content = line(start, longest + usize::from(end.len() < 3)) + end;
                let message = "has more than 4096 bytes";
                assert_refused(content.as_bytes(), EdgeFormat::Text, message, "line 2");
            }
        }
    }
}
