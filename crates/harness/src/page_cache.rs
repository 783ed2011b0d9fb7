//! A file's pages in the page cache before a measurement.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use iosonde_protocol::PageCache;
use rustix::fs::{Advice, fadvise};

/// Bytes of one read.
const CHUNK_BYTES: usize = 1 << 20;

/// Brings the first `bytes` of a file or device into the state that a spec requires.
///
/// # Errors
/// When it cannot be written back or read.
pub fn prepare_page_cache(file: &File, wanted: PageCache, bytes: u64) -> io::Result<()> {
    match wanted {
        PageCache::Keep => Ok(()),
        PageCache::Drop => {
            // Dirty pages cannot be dropped.
            file.sync_all()?;
            Ok(fadvise(file, 0, None, Advice::DontNeed)?)
        }
        PageCache::Warm => {
            let (mut buffer, mut offset) = (vec![0; CHUNK_BYTES], 0);
            while offset < bytes {
                match file.read_at(&mut buffer, offset)? {
                    0 => break,
                    read => offset += read as u64,
                }
            }
            Ok(())
        }
    }
}
