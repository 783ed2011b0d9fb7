//! The file of a file mapping: its contents and its pages in the page cache.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iosonde_harness::target::{OFlags, Targets};
use iosonde_harness::{RunError, prepare_page_cache};
use iosonde_protocol::{LayoutResult, PageCache};

use crate::content::{Contents, WORD_BYTES};

/// Pages that are compared to decide whether a file has its contents already.
const SAMPLED_PAGES: u64 = 64;
const CHUNK_PAGES: u64 = 256;

/// A file with the contents of a run's pages.
pub(crate) struct PageFile<'a> {
    path: &'a Path,
    file: File,
    contents: Contents,
    pages: u64,
}

impl<'a> PageFile<'a> {
    /// Opens it, and creates it where it is missing.
    pub(crate) fn open(
        targets: &Targets,
        path: &'a Path,
        contents: Contents,
        pages: u64,
    ) -> Result<PageFile<'a>, RunError> {
        let file = targets
            .open(path, OFlags::RDWR | OFlags::CREATE)
            .map_err(|error| RunError::io("open", path, &error))?;
        Ok(PageFile {
            path,
            file,
            contents,
            pages,
        })
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Writes all pages unless the file has them; `progress` receives the bytes so far and returns whether to continue.
    pub(crate) fn lay_out(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<LayoutResult, RunError> {
        let page_bytes = self.contents.words() * WORD_BYTES;
        if self.has_contents() {
            return Ok(LayoutResult {
                written_bytes: 0,
                kept_bytes: self.pages * page_bytes,
            });
        }
        let mut written_bytes = 0;
        for first in (0..self.pages).step_by(CHUNK_PAGES as usize) {
            let last = (first + CHUNK_PAGES).min(self.pages);
            let chunk: Vec<u8> = (first..last).flat_map(|page| self.bytes_of(page)).collect();
            self.file
                .write_all_at(&chunk, first * page_bytes)
                .map_err(|error| RunError::io("write", self.path, &error))?;
            written_bytes += chunk.len() as u64;
            if !progress(written_bytes) {
                break;
            }
        }
        self.file
            .sync_all()
            .map_err(|error| RunError::io("sync", self.path, &error))?;
        Ok(LayoutResult {
            written_bytes,
            kept_bytes: 0,
        })
    }

    /// Brings the file's pages in the page cache into the state that the spec requires.
    pub(crate) fn prepare_cache(&self, page_cache: PageCache) -> Result<(), RunError> {
        let bytes = self.pages * self.contents.words() * WORD_BYTES;
        prepare_page_cache(&self.file, page_cache, bytes)
            .map_err(|error| RunError::io("prepare the page cache of", self.path, &error))
    }

    /// Returns true if pages evenly spaced over the file, the first and the last among them, have their contents.
    fn has_contents(&self) -> bool {
        let samples = SAMPLED_PAGES.min(self.pages).max(2);
        let page_bytes = self.contents.words() * WORD_BYTES;
        let mut bytes = vec![0; page_bytes as usize];
        (0..samples).all(|sample| {
            let page = (self.pages - 1) * sample / (samples - 1);
            let read = self.file.read_exact_at(&mut bytes, page * page_bytes);
            read.is_ok() && bytes == self.bytes_of(page)
        })
    }

    fn bytes_of(&self, page: u64) -> Vec<u8> {
        let words = (0..self.contents.words()).map(|place| self.contents.first(page, place));
        words.flat_map(u64::to_ne_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    #[test]
    fn a_file_is_written_once_and_mapped_with_its_contents() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pages");
        let (targets, contents) = (Targets::default(), Contents::new(9, 4096, 0.0));
        let file = PageFile::open(&targets, &path, contents, 300).unwrap();
        let first = file.lay_out(&mut |_| true).unwrap();
        assert_eq!((first.written_bytes, first.kept_bytes), (300 * 4096, 0));
        let second = file.lay_out(&mut |_| true).unwrap();
        assert_eq!((second.written_bytes, second.kept_bytes), (0, 300 * 4096));
        file.prepare_cache(PageCache::Warm).unwrap();
        let mapping = Mapping::file(contents, 300, file.file(), &path).unwrap();
        assert!((0..300).all(|page| mapping.is_whole(page)));
        file.file().write_all_at(&[0xff], 4096 * 299 + 17).unwrap();
        assert!(!mapping.is_whole(299));
        assert_eq!(file.lay_out(&mut |_| true).unwrap().written_bytes, 300 * 4096);
    }
}
